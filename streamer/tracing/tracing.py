"""`Tracing`: the spans of batches and of their sampled records, and the contexts that results carry on.

Owned by the run thread. A batch without a sampled record has no spans.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from types import TracebackType
from typing import Any, Final, Self

from connectors.codec import RecordsOrigin
from connectors.headers import Headers
from connectors.source import Source
from pipelines.data.result import Result
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.runs.batchrun import BatchRun
from streamer.definition.service import Service
from streamer.tracing.exporting import Export
from streamer.tracing.finished import Finished, Origin, Outcome, Period, RecordSpan, new_span, new_trace
from streamer.tracing.heldback import HeldBack
from streamer.tracing.sampling import Draw, Sampled, sampled
from streamer.tracing.traceparent import SAMPLED, TraceContext, replaced

_STEPS: Final = 512
"""Steps of one run that have spans at most, the last ones."""
_ASKED: Final = frozenset({"http"})
"""Types of sources whose records are requests."""


class Tracing:
    """Makes the spans of one service. A timeline of `RunMeters`, which tells it of steps and stages."""

    def __init__(self, service: Service, sources: Mapping[str, Source], export: Export) -> None:
        """`sources` are those of the service, by name: they name the spans of requests in their answers."""
        assert service.tracing is not None
        self.put = export.put
        self._export = export
        self.transactions: HeldBack | None = None
        """Holds back batches of transactions; `None`: there are none."""
        self._draw = Draw(service.tracing.sample)
        self._types = {config.label: config.type for config in service.sources}
        self._sources = sources
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

    def transaction(self, outcome: Outcome) -> None:
        """A transaction has ended."""
        if self.transactions is not None:
            self.transactions.ended(outcome)

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
        began = _began(run, part)
        arrivals = clock.arrivals(part, began)
        spans = [self._record(part, each, arrivals.of(each.place)) for each in chosen]
        _pass_on(result, spans, first)
        if spans[0].is_request:
            self._sources[part.source].traced([(each.position, each.context.header()) for each in spans])
        failed = {**part.failed, **result.failed}
        try:
            deliver(part, result)
        finally:
            self._end(run, part, began, spans, failed, clock)

    def close(self) -> None:
        """Send the spans that wait to the collector."""
        self.transaction("unknown")
        self._export.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, part: DecodedBatch, each: Sampled, arrived: int) -> RecordSpan:
        parent, place, records = each.context, each.place, part.records
        if parent is None:
            context = TraceContext(new_trace(), new_span(), SAMPLED)
        else:
            context = TraceContext(parent.trace, new_span(), parent.flags)
        kind = self._types.get(part.source, "")
        origin: Origin | str = self._service
        if kind not in _ASKED:
            origin = Origin(kind, records.topic_of(place), records.partitions[records.span_of(place)])
        return RecordSpan(place, parent, context, origin, int(records.positions[place]), arrived)

    def _end(
        self,
        run: BatchRun,
        part: DecodedBatch,
        began: float,
        spans: Sequence[RecordSpan],
        failed: dict[int, Exception],
        clock: _Clock,
    ) -> None:
        ended = time.time_ns()
        stages = [clock.period(*stage) for stage in self._stages]
        arrivals = part.arrivals
        if arrivals is not None and arrivals.decoding_began:
            polled = arrivals.decoding_began - arrivals.gathering
            stages.append(clock.period("poll", polled, arrivals.gathering))
            stages.append(clock.period("decode", arrivals.decoding_began, arrivals.decoding))
        of_run = clock.period("run", run.began, run.seconds) if run.began else None
        steps = [clock.period(*step) for step in self._steps] if run.began else []
        if failed:
            for each in spans:
                error = failed.get(part.first + each.place)
                if error is not None:
                    each.error = type(error.__cause__ or error).__name__, str(error)
        began_at = clock.nanoseconds(began)
        finished = Finished(part.source, len(part.rows), began_at, ended, spans, stages, of_run, steps)
        if self.transactions is None:
            self.put(finished)
        else:
            self.transactions.add(part, finished)


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

    def period(self, name: str, began: float, seconds: float) -> Period:
        """A stage or step that began at `began` on `time.perf_counter`."""
        at = self._counter + int(began * 1e9)
        return Period(name, at, at + int(seconds * 1e9))

    def arrivals(self, part: DecodedBatch, began: float) -> _Arrivals:
        """When the records of a batch came into the process; `began` (`time.perf_counter`) where that is not known."""
        blocks = () if part.arrivals is None else part.arrivals.blocks
        times = [self._monotonic + int(at * 1e9) for at, _ in blocks]
        return _Arrivals([*accumulate(count for _, count in blocks)], [*times, self.nanoseconds(began)])


class _Arrivals:
    """Times of day of records, by blocks of records that came together."""

    __slots__ = ("_stops", "_times")

    def __init__(self, stops: Sequence[int], times: Sequence[int]) -> None:
        """`stops` are the ends of the blocks, `times` theirs and one for records behind them."""
        self._stops = stops
        self._times = times

    def of(self, place: int) -> int:
        """When the record at this place of the batch's records came, in nanoseconds since 1970."""
        return self._times[bisect_right(self._stops, place)]


def _began(run: BatchRun, part: DecodedBatch) -> float:
    arrivals = part.arrivals
    if arrivals is not None and arrivals.decoding_began:
        return arrivals.decoding_began - arrivals.gathering
    return run.began or time.perf_counter()


def _numbers(rows: Any) -> Sequence[int]:
    return rows if isinstance(rows, range) else [int(row) for row in rows]


def _pass_on(result: Result, spans: Sequence[RecordSpan], first: int) -> None:
    """Have the results of sampled records name the records' spans in their headers."""
    origin = result.batch.origin
    if not isinstance(origin, RecordsOrigin):
        return
    shift = first - origin.first
    records = origin.records
    column = records.header_column()
    headers = Headers.none(len(records)) if column is None else column
    places = ((each.place + shift, each.context) for each in spans)
    changed = {place: replaced(headers[place], context) for place, context in places if 0 <= place < len(headers)}
    if isinstance(headers, Headers):
        headers = headers.replaced(changed)
    else:
        headers = [*headers]
        for place, row in changed.items():
            headers[place] = row
    result.batch = result.batch.with_origin(replace(origin, records=records.with_headers(headers)))
