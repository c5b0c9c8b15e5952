"""REGRESSION_OUTPUT: name the columns of an array."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key


class RegressionOutput(Step):
    """Columns of an array are added to the data by name.

    `[C]` or `[1, C]` gives one DOUBLE a name, `[N, C]` a list of N. A number of a float32 array is the DOUBLE of the
    fewest digits that gives it back: 0.1, not 0.10000000149011612.
    """

    type_name: ClassVar[str] = "REGRESSION_OUTPUT"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.models.regression:RegressionOutputRunner")

    input_name: str | None = None
    """Key of the array; none: the only array."""
    names: dict[Key, Annotated[Int, Field(ge=0)]] | None = None
    """Key to add, and the column it takes its value from, counted from 0."""
