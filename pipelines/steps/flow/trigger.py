"""Triggers: when a pipeline runs by itself, independently of calls."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from pipelines.data.data import Data
from pipelines.errors import StreamerError
from pipelines.late import late
from pipelines.steps.base import Typed
from pipelines.steps.config import EXTENSION, Form, Int

if TYPE_CHECKING:
    from pipelines.executors.opentrigger import Clock, OpenTrigger


class Trigger(Typed):
    """Base of the triggers; a plug-in may bring more (group `streamer.triggers`)."""

    kind: ClassVar[str] = "trigger"
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    @abstractmethod
    def open(self, clock: Clock) -> OpenTrigger:
        """The open trigger, which runs the pipeline at its times."""


def _as_data(value: Any) -> Any:
    if not isinstance(value, Mapping) or isinstance(value, Data):
        return value
    try:
        return Data.from_json(json.dumps(value))
    except StreamerError as error:
        raise ValueError(str(error)) from error


class LoopTrigger(Trigger):
    """Base of the triggers that run the pipeline in a loop, in a thread of their own.

    A call returns the latest result at once, the same object for all callers; only before the first result it waits.
    The record that it is called with is not used.
    """

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data, `data` in its JSON form."""
        written = super().to_dict(form)
        data: Data | None = getattr(self, "data", None)
        if data is not None:
            written["data"] = json.loads(data.to_json())
        return written


_Input = Annotated[Any, BeforeValidator(_as_data), WithJsonSchema({"type": "object"})]
_OnError = Annotated[Literal["stop", "continue"], EXTENSION]


class SimpleLoopTrigger(LoopTrigger):
    """Run the pipeline again and again, without a pause or at fixed intervals; each record gets the latest result."""

    type_name: ClassVar[str] = "SIMPLE_LOOP_TRIGGER"

    frequency_ms: Annotated[Int, Field(ge=0)] | None = None
    """Milliseconds from the start of a run to the start of the next; default: no pause. If a run takes longer, the next
    one starts at its end, and the runs that were due meanwhile are left out."""
    data: _Input = None
    """The record that each run gets as its input; default: an empty one."""
    on_error: _OnError = "stop"
    """After a run that failed: `stop` ends the loop, and all records from then on fail with that error; `continue` logs
    the error, and records get the earlier result until a run succeeds."""

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.trigger:Loop.periodic")


class TimeLoopTrigger(LoopTrigger):
    """Run the pipeline at fixed times of the system's clock; each record gets the latest result.

    It runs at each multiple of `frequencyMs` since 1970 (UTC) plus `offset`: `frequencyMs: 3600000, offset: 900000`
    runs it every hour at a quarter past.
    """

    type_name: ClassVar[str] = "TIME_LOOP_TRIGGER"

    frequency_ms: Annotated[Int, Field(gt=0)]
    """Milliseconds from one run to the next."""
    offset: Int = 0
    """Milliseconds after each multiple of `frequencyMs`."""
    data: _Input = None
    """The record that each run gets as its input; default: an empty one."""
    on_error: _OnError = "stop"
    """After a run that failed: `stop` ends the loop, and all records from then on fail with that error; `continue` logs
    the error, and records get the earlier result until a run succeeds."""

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.trigger:Loop.clock_aligned")


class CachingTrigger(Trigger):
    """Run the pipeline for a record only if the last run began more than `frequencyMs` ago.

    Other records get the result of that run. Konduit Serving's design record ADR 0010 describes it.
    """

    type_name: ClassVar[str] = "CACHING_TRIGGER"

    frequency_ms: Annotated[Int, Field(ge=0)]
    """For how many milliseconds, from the start of a run, its result is given to other records."""

    open: ClassVar[Callable[..., Any]] = late("pipelines.executors.trigger:Cache.of")
