"""STANDARDIZE: what the step is set to, and which runner runs it. Light: every command imports this module."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pipelines import RunnerFactory, Step
from pydantic import Field


class Standardize(Step):
    """Replace an array by how many standard deviations it is away from the mean."""

    type_name: ClassVar[str] = "STANDARDIZE"

    field_name: str = "x"
    """Which array."""
    mean: float = 0.0
    """What to subtract."""
    std: Annotated[float, Field(gt=0)] = 1.0
    """What to divide by."""


RUNNER = RunnerFactory("STANDARDIZE", "numpy", "example_plugin.runner:StandardizeRunner", requires="numpy")
"""Which class runs it, imported when a pipeline opens. `requires` takes `all_of(...)` and `any_of(...)` too."""
