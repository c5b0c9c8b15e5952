"""DEDUP: lets one record of a key through, and drops its repetitions. Konduit Serving has no such type."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int
from pipelines.steps.keyed.fields import Names, Span
from pipelines.steps.timefield import TimeConfig


class Dedup(Step):
    """Drops records that repeat an earlier one: those whose key was let through less than `for` ago.

    With a key that only one record has, such as a device and its counter, it removes what was sent twice. With a key
    that many have, such as a device, it is a throttle: one record of each device every `for`. Time is that of the
    records.
    """

    type_name: ClassVar[str] = "DEDUP"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.keyed.dedup:DedupRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"
    shapes: ClassVar[tuple[str, ...]] = ("by",)
    keyed_by: ClassVar[str] = "by"

    by: Names
    """Key of the value that records which repeat another have in common: a text, an integer or a boolean. Several,
    `[device, seq]`, have to be equal all."""
    span: Span = Field(alias="for")
    """How long a record that was let through is remembered, `10m`."""
    time: Literal["timestamp", "arrival"] | TimeConfig = "timestamp"
    """The time of a record: its `timestamp`; its `arrival`, when it is run; or a value, `{field: at, unit: s}`."""
    most_keys: Int = Field(100_000, alias="keys", ge=1)
    """Keys that are remembered, for a partition; beyond it the one that was silent longest goes."""
