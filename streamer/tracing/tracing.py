"""`Tracing`: the spans of batches and of their sampled records, and the contexts that results carry on.

Owned by the run thread. A batch without a sampled record has no spans.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from connectors.codec import RecordsOrigin
from connectors.records import Header
from pipelines.data.result import Result
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.runs.batchrun import BatchRun
from streamer.definition.service import Service
from streamer.tracing.exporting import Export
from streamer.tracing.sampling import Draw, Sampled, sampled
from streamer.tracing.traceparent import SAMPLED, TraceContext, replaced

_ROOT: Final = Context()
"""Spans in it begin a trace."""
_STEPS: Final = 512
"""Steps of one run that have spans at most, the last ones."""
_NO_MESSAGES: Final = frozenset({"http"})
"""Types of sources whose records are requests."""


@dataclass(slots=True)
class _RecordSpan:
    sampled: Sampled
    span: Any
    header: TraceContext


class Tracing:
    """Makes the spans of one service. A timeline of `RunMeters`, which tells it of steps and stages."""

    def __init__(self, service: Service, export: Export) -> None:
        assert service.tracing is not None
        self._export = export
        self._tracer = export.tracer
        self._draw = Draw(service.tracing.sample)
        self._types = {config.label: config.type for config in service.sources}
        self._service = service.name
        self._noted: deque[tuple[str, float, float]] = deque(maxlen=_STEPS)
        """Steps since the last run was delivered."""
        self._steps: Iterable[tuple[str, float, float]] = ()
        """Steps of the run that is being delivered."""
        self._run_began = -1.0
        self._stages: list[tuple[str, float, float]] = []

    def step(self, step: str, began: float, seconds: float) -> None:
        """A step has run a batch, which is delivered next. From any thread."""
        self._noted.append((step, began, seconds))

    def stage(self, stage: str, began: float, seconds: float) -> None:
        """A batch was in this stage."""
        self._stages.append((stage, began, seconds))

    def deliver(
        self,
        run: BatchRun,
        part: DecodedBatch,
        result: Result,
        deliver: Callable[[DecodedBatch, Result], None],
    ) -> None:
        """Have a batch of the run delivered, and make its spans. Sampled results name the spans of their records."""
        self._stages.clear()
        if run.began != self._run_began:
            self._run_began = run.began
            self._steps, self._noted = self._noted, deque(maxlen=_STEPS)
        records, first = part.records, part.first
        rows = part.rows
        places = rows if isinstance(rows, range) and not first else [row - first for row in _numbers(rows)]
        chosen = sampled(records.header_column(), places, self._draw)
        if not chosen:
            deliver(part, result)
            return
        clock = _Clock()
        batch, spans = self._begun(run, part, chosen, clock)
        _pass_on(result, spans, first)
        failed = {**part.failed, **result.failed}
        try:
            deliver(part, result)
        finally:
            self._end(run, part, batch, spans, failed, first, clock)

    def close(self) -> None:
        """Send the spans that wait to the collector."""
        self._export.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begun(
        self, run: BatchRun, part: DecodedBatch, chosen: Sequence[Sampled], clock: _Clock
    ) -> tuple[Any, list[_RecordSpan]]:
        began = _began(run, part)
        links = [Link(_remote(each.context)) for each in chosen if each.context is not None]
        batch = self._tracer.start_span(
            "streamer batch",
            _ROOT,
            attributes={"streamer.source": part.source, "streamer.batch.records": len(part.rows)},
            links=links,
            start_time=clock.nanoseconds(began),
        )
        to_batch = [Link(batch.get_span_context())]
        spans: list[_RecordSpan] = []
        for each in chosen:
            name, kind, attributes = self._described(part, each.place)
            span = self._tracer.start_span(
                name,
                _ROOT if each.context is None else set_span_in_context(NonRecordingSpan(_remote(each.context)), _ROOT),
                kind=kind,
                attributes=attributes,
                links=to_batch,
                start_time=clock.arrival(part, part.first + each.place, began),
            )
            made = span.get_span_context()
            flags = SAMPLED if each.context is None else each.context.flags
            spans.append(_RecordSpan(each, span, TraceContext(made.trace_id, made.span_id, flags)))
            if each.context is None:
                batch.add_link(made)
        return batch, spans

    def _described(self, part: DecodedBatch, place: int) -> tuple[str, Any, dict[str, Any]]:
        """Name, kind and attributes of a record's span, by OpenTelemetry's conventions for messages."""
        kind = self._types.get(part.source, "")
        records = part.records
        if kind in _NO_MESSAGES:
            return f"infer {self._service}", SpanKind.SERVER, {}
        topic = records.topic_of(place)
        partition = records.partitions[records.span_of(place)]
        attributes: dict[str, Any] = {
            "messaging.system": kind,
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
        }
        if kind == "kafka":
            attributes["messaging.kafka.offset"] = int(records.positions[place])
        return f"process {topic}", SpanKind.CONSUMER, attributes

    def _end(
        self,
        run: BatchRun,
        part: DecodedBatch,
        batch: Any,
        spans: Sequence[_RecordSpan],
        failed: dict[int, Exception],
        first: int,
        clock: _Clock,
    ) -> None:
        ended = time.time_ns()
        within = set_span_in_context(batch, _ROOT)
        arrivals = part.arrivals
        if arrivals is not None and arrivals.decoding_began:
            polled = arrivals.decoding_began - arrivals.gathering
            self._child("poll", within, polled, arrivals.gathering, clock)
            self._child("decode", within, arrivals.decoding_began, arrivals.decoding, clock)
        if run.began:
            of_run = self._child("run", within, run.began, run.seconds, clock)
            inside = set_span_in_context(of_run, _ROOT)
            for step, began, seconds in self._steps:
                self._child(step, inside, began, seconds, clock)
        for stage, began, seconds in self._stages:
            self._child(stage, within, began, seconds, clock)
        for each in spans:
            error = failed.get(first + each.sampled.place)
            if error is not None:
                each.span.set_status(Status(StatusCode.ERROR, str(error)))
                each.span.set_attribute("error.type", type(error.__cause__ or error).__name__)
            each.span.end(ended)
        batch.end(ended)

    def _child(self, name: str, parent: Any, began: float, seconds: float, clock: _Clock) -> Any:
        span = self._tracer.start_span(name, parent, start_time=clock.nanoseconds(began))
        span.end(clock.nanoseconds(began + seconds))
        return span


class _Clock:
    """Times of day of what was measured by the process's clocks."""

    __slots__ = ("_counter", "_monotonic")

    def __init__(self) -> None:
        now = time.time_ns()
        self._counter = now - time.perf_counter_ns()
        self._monotonic = now - time.monotonic_ns()

    def nanoseconds(self, at: float) -> int:
        """`at` on `time.perf_counter`, in nanoseconds since 1970."""
        return self._counter + int(at * 1e9)

    def arrival(self, part: DecodedBatch, row: int, began: float) -> int:
        """When the record of a row came into the process; `began` (`time.perf_counter`) if that is not known."""
        if part.arrivals is not None:
            blocks = part.arrivals.of(range(row, row + 1))
            at = next((at for at, count in blocks if count), None)
            if at is not None:
                return self._monotonic + int(at * 1e9)
        return self.nanoseconds(began)


def _began(run: BatchRun, part: DecodedBatch) -> float:
    arrivals = part.arrivals
    if arrivals is not None and arrivals.decoding_began:
        return arrivals.decoding_began - arrivals.gathering
    return run.began or time.perf_counter()


def _numbers(rows: Any) -> Sequence[int]:
    return rows if isinstance(rows, range) else [int(row) for row in rows]


def _remote(context: TraceContext) -> Any:
    return SpanContext(context.trace, context.span, is_remote=True, trace_flags=TraceFlags(context.flags & 0xFF))


def _pass_on(result: Result, spans: Sequence[_RecordSpan], first: int) -> None:
    """Have the results of sampled records name the records' spans in their headers."""
    origin = result.batch.origin
    if not isinstance(origin, RecordsOrigin):
        return
    shift = first - origin.first
    headers = origin.records.header_column()
    changed: list[Sequence[Header] | None] = [None] * len(origin.records) if headers is None else list(headers)
    for each in spans:
        place = each.sampled.place + shift
        if 0 <= place < len(changed):
            changed[place] = replaced(changed[place], each.header)
    result.batch = result.batch.with_origin(replace(origin, records=origin.records.with_headers(changed)))
