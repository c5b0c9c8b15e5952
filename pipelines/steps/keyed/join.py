"""JOIN: makes one record of those of several topics that belong together. Konduit Serving has no such type."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int, Key
from pipelines.steps.keyed.fields import Names, Span
from pipelines.steps.timefield import TimeConfig
from pipelines.units import Duration

LONGER = 10.0
"""Seconds by which records wait longer than `within`, if the step does not say how long."""


class Join(Step):
    """Joins the records of two or more topics of a source, by key and within a time.

    A result has the values of `by`, and under the name of each topic all values of its record. It belongs to the record
    that came last. Each record is in one result at most: the earliest that fits is taken first.
    """

    type_name: ClassVar[str] = "JOIN"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "pipelines.runners.keyed.join:JoinRunner")
    shapes: ClassVar[tuple[str, ...]] = ("by", "topics", "time")
    keyed_by: ClassVar[str] = "by"

    by: Names
    """Key of the value that records which belong together have in common: a text, an integer or a boolean. Several,
    `[line, part]`, have to be equal all."""
    topics: Annotated[dict[Key, str], Field(min_length=2)]
    """Topics by the keys that their records get in the result: `{left: camera.parts, right: torque.parts}`. One that
    begins with `^` is a regular expression for the names of topics."""
    within: Span
    """How far the times of records that belong together are apart at most, `5s`."""
    lateness: Duration = 0.0
    """How long a record waits for others that are late: until a record of its key is this much later than it would have
    to be, in the other topic."""
    wait: Span | None = None
    """How long a record waits by the clock of the computer, if nothing comes for its key; default: 10 s longer than
    `within`. While records of the other topic come that are older than it, it waits on."""
    missing: Literal["dead_letter", "drop", "emit"] = "dead_letter"
    """What becomes of a record for which none came from another topic: it fails, is dropped, or is given alone."""
    time: Literal["timestamp", "arrival"] | TimeConfig = "timestamp"
    """The time of a record: its `timestamp` on the bus, its `arrival`, when it is run, or a value,
    `{field: measured_at, unit: ms}`."""
    ahead: Span = 3600.0
    """A record whose time is so far in the future fails."""
    most: Int = Field(100_000, ge=1)
    """Records that wait at the same time, for a partition; beyond it the one that waits longest is `missing` others."""

    @property
    def joined_topics(self) -> tuple[str, ...]:
        """Its topics."""
        return tuple(self.topics.values())

    @property
    def patience(self) -> float:
        """Seconds that a record waits by the clock of the computer."""
        return self.within + LONGER if self.wait is None else self.wait

    @field_validator("topics")
    @classmethod
    def _check_topics(cls, topics: dict[str, str]) -> dict[str, str]:
        for side, topic in topics.items():
            if not topic:
                raise ValueError(f'"{side}" names no topic')
            if topic.startswith("^"):
                try:
                    re.compile(topic)
                except re.error as error:
                    raise ValueError(f'"{side}" is no regular expression: {error}') from None
        twice = next((topic for topic in topics.values() if list(topics.values()).count(topic) > 1), None)
        if twice is not None:
            raise ValueError(f'the topic "{twice}" stands twice; its records cannot be told apart')
        return topics

    @model_validator(mode="after")
    def _check_keys(self) -> Join:
        both = next((side for side in self.topics if side in self.by), None)
        if both is not None:
            raise ValueError(
                f'"{both}" would be the key of a record and of a value of "by": choose another name for it'
            )
        if self.within < 0.001:
            raise ValueError('"within" is less than 1ms; times are whole milliseconds')
        return self
