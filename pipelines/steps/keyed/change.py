"""CHANGE: one record when the state of a key changes, in place of all its records. Konduit Serving has no such type."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key
from pipelines.steps.keyed.fields import Extent, Names, Span, length
from pipelines.steps.timefield import TimeConfig
from pipelines.units import number

STATE: Final = "state"
BEFORE: Final = "before"
SINCE: Final = "since"
COUNT: Final = "count"
ADDED: Final = (STATE, BEFORE, SINCE, COUNT)
"""The keys that a result has besides those of its record."""


def _threshold(value: Any) -> Any:
    return None if value is None else number(value, "a number like 0.9")


Threshold: TypeAlias = Annotated[float | None, BeforeValidator(_threshold)]


class Change(Step):
    """Lets the records through that change the state of a key, such as a device, and drops the others.

    The state is a text, an integer or a boolean; of a number it is `on` or `off`, by thresholds: `Change(by="device",
    value="score", on=0.9, off=0.7, after=3)` gives one record when the scores of a device have been 0.9 or more three
    times in a row, and one when they have been below 0.7. A result has all values of its record, and `state`, `before`,
    `since` and `count`.
    """

    type_name: ClassVar[str] = "CHANGE"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.keyed.change:ChangeRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"
    shapes: ClassVar[tuple[str, ...]] = ("by", "value")
    keyed_by: ClassVar[str] = "by"

    by: Names = ()
    """Key of the value that says whose state it is, such as a device's name: a text, an integer or a boolean. Several,
    `[site, device]`, together are one; without it, all records of a partition have one state."""
    value: Key
    """Key of the value that is watched: with `on` a number, or an array of one; else a text of at most 1,024
    characters, an integer or a boolean."""
    on: Threshold = None
    """A number of at least this is `on`."""
    off: Threshold = None
    """A number below this is `off`; default: `on`. Between the two the state stays as it is."""
    after: Extent = 1
    """How long the new state has to last before it counts: in so many records of the key in a row, `3`, or for so long
    by their times, `10s`."""
    remind: Span | None = None
    """Let a record through every so often while the state lasts, `1h`: while it is on, true, or any text or
    integer."""
    time: Literal["timestamp", "arrival"] | TimeConfig = "timestamp"
    """The time of a record: its `timestamp`; its `arrival`, when it is run; or a value, `{field: at, unit: s}`."""
    most_keys: Int = Field(100_000, alias="keys", ge=1)
    """Keys that are remembered, for a partition; beyond it the one that was silent longest goes."""

    @model_validator(mode="after")
    def _check_thresholds(self) -> Change:
        if self.off is not None:
            if self.on is None:
                raise ValueError('"off" needs "on", the number from which the state is on')
            if self.off > self.on:
                raise ValueError(f'"off" is {self.off:g}, above "on", {self.on:g}: a number could be both')
        if length(self.after) <= 0:
            raise ValueError(f'"after" is {self.after}; it has to be more than 0')
        return self

    @model_validator(mode="after")
    def _check_keys(self) -> Change:
        for name in self.by:
            if name in ADDED:
                raise ValueError(f'"by" is "{name}", which the step writes: give the value another key before')
        # A text that is the state is the state of its result, too.
        if self.value in ADDED and (self.value != STATE or self.on is not None):
            raise ValueError(f'"value" is "{self.value}", which the step writes: give the value another key before')
        return self
