"""`Finished`: what was measured of a batch, as plain values, of which its spans are made when they are sent.

Spans are many objects: the thread that runs batches only notes these values, the thread that sends makes the spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import getrandbits
from typing import Any, Final, NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from streamer.tracing.traceparent import SAMPLED, TraceContext

_FLAGS: Final = TraceFlags(SAMPLED)


class Period(NamedTuple):
    """A stage or a step of a batch, in nanoseconds since 1970."""

    name: str
    began: int
    ended: int


@dataclass(slots=True)
class RecordSpan:
    """The span of one sampled record."""

    place: int
    """The record's place in the block of records."""
    parent: TraceContext | None
    """The sender's span; `None`: the trace begins here."""
    context: TraceContext
    """The record's span itself, which its result names."""
    name: str
    is_request: bool
    attributes: dict[str, Any]
    began: int
    error: tuple[str, str] | None = None
    """The type of the record's error, and its text."""


@dataclass(slots=True)
class Finished:
    """A batch that was delivered."""

    source: str
    rows: int
    began: int
    ended: int
    records: Sequence[RecordSpan]
    stages: Sequence[Period]
    run: Period | None
    steps: Sequence[Period]
    """What happened within `run`."""

    def __len__(self) -> int:
        return 1 + len(self.records) + len(self.stages) + (0 if self.run is None else 1 + len(self.steps))

    def spans(self, resource: Resource, scope: InstrumentationScope) -> list[ReadableSpan]:
        """The spans of the batch, its stages and its sampled records."""
        trace = new_trace()
        batch = _local(TraceContext(trace, new_span()))

        def span(name: str, context: SpanContext, began: int, ended: int, **others: Any) -> ReadableSpan:
            return ReadableSpan(
                name,
                context,
                resource=resource,
                instrumentation_scope=scope,
                start_time=began,
                end_time=ended,
                **others,
            )

        def within(parent: SpanContext, period: Period) -> ReadableSpan:
            return span(period.name, _local(TraceContext(trace, new_span())), period.began, period.ended, parent=parent)

        links = [Link(_local(each.context) if each.parent is None else _remote(each.parent)) for each in self.records]
        attributes = {"streamer.source": self.source, "streamer.batch.records": self.rows}
        spans = [span("streamer batch", batch, self.began, self.ended, attributes=attributes, links=links)]
        spans += [within(batch, stage) for stage in self.stages]
        if self.run is not None:
            run = within(batch, self.run)
            context = run.get_span_context()
            assert context is not None
            spans += [run, *(within(context, step) for step in self.steps)]
        to_batch = [Link(batch)]
        for each in self.records:
            status = Status()
            if each.error is not None:
                each.attributes["error.type"] = each.error[0]
                status = Status(StatusCode.ERROR, each.error[1])
            spans.append(
                span(
                    each.name,
                    _local(each.context),
                    each.began,
                    self.ended,
                    parent=None if each.parent is None else _remote(each.parent),
                    kind=SpanKind.SERVER if each.is_request else SpanKind.CONSUMER,
                    attributes=each.attributes,
                    links=to_batch,
                    status=status,
                )
            )
        return spans


def new_trace() -> int:
    """The id of a new trace."""
    return getrandbits(128) or 1


def new_span() -> int:
    """The id of a new span."""
    return getrandbits(64) or 1


def _local(context: TraceContext) -> SpanContext:
    return SpanContext(context.trace, context.span, is_remote=False, trace_flags=_FLAGS)


def _remote(context: TraceContext) -> SpanContext:
    return SpanContext(context.trace, context.span, is_remote=True, trace_flags=TraceFlags(context.flags & 0xFF))
