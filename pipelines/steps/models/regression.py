"""REGRESSION_OUTPUT: name the columns of an array."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key


class RegressionOutput(Step):
    """Adds columns of an array to the record, each under a key.

    An array `[C]` or `[1, C]` gives a DOUBLE for each key, `[N, C]` a list of N DOUBLEs. A float32 number is written
    with the fewest digits that identify it: 0.1, not 0.10000000149011612.
    """

    type_name: ClassVar[str] = "REGRESSION_OUTPUT"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.models.regression:RegressionOutputRunner")

    input_name: str | None = None
    """Key of the array; default: the record's only array."""
    names: dict[Key, Annotated[Int, Field(ge=0)]] | None = None
    """The keys to add, and for each the number of its column, counted from 0; at least one is needed."""
