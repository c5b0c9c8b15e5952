"""WINDOW: samples or running values of each key, gathered by count or by time. Konduit Serving has no such type."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pipelines.errors import nearest
from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key
from pipelines.steps.keyed.fields import Extent, Names, Span, length
from pipelines.steps.timefield import TimeConfig
from pipelines.units import Duration

AGGREGATES = ("count", "sum", "mean", "min", "max", "std", "first", "last")
"""What `aggregate` can make of the values of a window."""
MOST_AT_ONCE = 1000
"""Windows that a record may be in, where they are by time or have an `aggregate`."""
LONGEST = 1 << 20
"""The most samples of a window by count."""
ADDED = ("start", "end", "count")
"""The keys that each window has besides its own."""


class Window(Step):
    """Gathers the records of each key into windows, by count or by time.

    `values` make an array of the samples of a window, for a model: `Window(by="device", size=128, values=["ax", "ay"],
    output_name="samples")`. `aggregate` makes numbers about its values, such as their mean. A result has the values of
    `by`, the array, the numbers, and `start`, `end` and `count` of the window.
    """

    type_name: ClassVar[str] = "WINDOW"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.keyed.window:window_runner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"
    shapes: ClassVar[tuple[str, ...]] = (
        *("by", "size", "every", "values", "output_name", "aggregate", "gap", "time", "emit"),
    )
    keyed_by: ClassVar[str] = "by"

    by: Names
    """Key of the value whose records belong together, such as a device's name: a text, an integer or a boolean.
    Several, `[site, device]`, together are one."""
    size: Extent | None = None
    """How long a window is: a number of samples, `1024`, or a duration, `1m`. A record with an array of k rows has k
    samples; with an `aggregate` by count it has to have one. Without it, windows are sessions, which end with a
    `gap`."""
    every: Extent | None = None
    """How much later each window begins than the one before it, in the unit of `size`; default: as long as it is, so
    that no sample is in two."""
    values: Names | None = None
    """Keys of the samples. Several numbers are the columns of the array, in this order, as float32; a single array, of
    one row or of k rows, keeps its type."""
    output_name: Key | None = None
    """Key of the array of samples, `[count, columns]`: by count in the order in which they came, by time in that of
    their times."""
    aggregate: dict[Key, dict[str, Key]] = Field(default_factory=dict)
    """Numbers about the values of a window, besides its samples or instead of them, by the key they get: `{people:
    {count: id}, warmest: {max: temp}}`, with count, sum, mean, min, max, std, first or last."""
    gap: Span | None = None
    """How much time between two records of a key ends its window, `2s`. Without a `size` it is what ends windows."""
    idle: Span | None = None
    """After so much time without a record of the key its window ends, `30s`, records that wait in a backlog among them;
    default: it waits for the next record."""
    short: Literal["drop", "emit", "pad"] = "drop"
    """What becomes of a window by count that a gap, `idle`, `keys` or the end of the input ended before it was full: it
    is dropped, given as long as it is (`emit`), or with zeros behind its samples (`pad`)."""
    time: Literal["timestamp", "arrival"] | TimeConfig = "timestamp"
    """The time of a record: its `timestamp` on the bus, its `arrival`, when it is run, or a value,
    `{field: measured_at, unit: ms}`."""
    lateness: Duration = 0.0
    """How long a window by time waits for records that are late."""
    on_late: Literal["dead_letter", "drop"] = "dead_letter"
    """What becomes of a record that comes after its windows by time have closed: it fails, or is dropped."""
    ahead: Span = 3600.0
    """A record whose time is so far in the future fails: a wrong clock must not make all others late."""
    emit: Literal["window", "each"] = "window"
    """When `aggregate` gives a result: for a window that has closed, or running values for each record."""
    most_keys: Int = Field(100_000, alias="keys", ge=1)
    """Keys that are remembered, for a partition; beyond it the one that was silent longest goes."""

    @property
    def counted(self) -> bool:
        """Whether the size of windows is a number of samples."""
        return isinstance(self.size, int)

    @property
    def stride(self) -> int | str | None:
        """How much later each window begins than the one before it; `None` for sessions."""
        return self.size if self.every is None else self.every

    @field_validator("aggregate")
    @classmethod
    def _check_aggregate(cls, aggregate: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        for key, made in aggregate.items():
            if len(made) != 1:
                raise ValueError(f'"{key}" needs one function and the key of its values, like {{max: temp}}')
            (function,) = made
            if function not in AGGREGATES:
                raise ValueError(
                    f'"{key}" has no function "{function}"{nearest(function, AGGREGATES)}: '
                    f"there are {', '.join(AGGREGATES)}"
                )
        return aggregate

    @model_validator(mode="after")
    def _check_extent(self) -> Window:
        if self.size is None and self.gap is None:
            raise ValueError('give "size", a number of samples like 1024 or a duration like 1m, or "gap" for sessions')
        if self.every is not None and self.size is None:
            raise ValueError('"every" needs "size": sessions begin where the one before has ended')
        for field in ("size", "every"):
            value = getattr(self, field)
            if value is not None and length(value) <= 0:
                raise ValueError(f'"{field}" is {value}; it has to be more than 0')
            if isinstance(value, int) and value > LONGEST:
                raise ValueError(f'"{field}" is {value} samples; a window has at most {LONGEST}')
        if self.size is not None and self.every is not None:
            if isinstance(self.size, int) != isinstance(self.every, int):
                unit = "a number of samples" if self.counted else "a duration"
                raise ValueError(f'"every" has to be {unit}, as "size" is: {self.size} and {self.every} are not alike')
            if length(self.every) > length(self.size):
                raise ValueError(f'"every" is {self.every}, more than "size", {self.size}: samples would be left out')
        return self

    @model_validator(mode="after")
    def _check_output(self) -> Window:
        if not self.values and not self.aggregate:
            raise ValueError('give "values" with "outputName" for samples, or "aggregate" for numbers about them')
        if bool(self.values) != (self.output_name is not None):
            raise ValueError('"values" and "outputName", the key of the array, belong together')
        outputs = [*self.by, *([self.output_name] if self.output_name else []), *self.aggregate, *ADDED]
        twice = next((key for key in outputs if outputs.count(key) > 1), None)
        if twice is not None:
            raise ValueError(
                f'a window would have two values "{twice}": choose another key ({", ".join(ADDED)} are taken)'
            )
        if self.values and len(set(self.values)) < len(self.values):
            raise ValueError('"values" names a key twice')
        return self

    @model_validator(mode="after")
    def _check_kind(self) -> Window:
        if self.counted:
            self._refuse("windows by count", "lateness", "on_late")
            if self.aggregate and length(self.size or 0) > MOST_AT_ONCE * length(self.stride or 1):
                raise ValueError(f'"size" is more than {MOST_AT_ONCE} times "every": a record is in too many windows')
        else:
            self._refuse("windows by time", "short", *(() if self.size is None else ("gap",)))
            if self.size is None:
                self._refuse("sessions, which end with a gap", "lateness")
            elif length(self.size) > MOST_AT_ONCE * length(self.stride or self.size):
                raise ValueError(f'"size" is more than {MOST_AT_ONCE} times "every": a record is in too many windows')
            if length(self.gap if self.size is None else self.stride) < 0.001:
                raise ValueError("windows by time are whole milliseconds long; this is less than 1ms")
        if self.values and self.emit == "each":
            raise ValueError('"emit: each" is for "aggregate" alone: an array of samples is given when its window ends')
        if self.emit == "each":
            self._refuse('"emit: each"', "short")
        if not self.values and self.short == "pad":
            raise ValueError('"short: pad" puts zeros behind the samples of "values", which are not given: use "emit"')
        return self

    def _refuse(self, kind: str, *fields: str) -> None:
        for field in fields:
            info = type(self).model_fields[field]
            if getattr(self, field) != info.get_default():
                raise ValueError(f'"{type(self).key(field)}" does nothing for {kind}: leave it out')
