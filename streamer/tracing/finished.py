"""`Finished`: what was measured of a batch, as plain values, of which its spans are written when they are sent.

The thread that runs batches only notes these values, the thread that sends writes the spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import getrandbits
from typing import Final, Literal, NamedTuple

from streamer.tracing import otlp
from streamer.tracing.traceparent import TraceContext

Outcome = Literal["committed", "aborted", "unknown"]
"""What became of a transaction."""
ABORTED: Final = "the transaction was aborted: nothing of it was published, its records come again"


class Period(NamedTuple):
    """A stage or a step of a batch, in nanoseconds since 1970."""

    name: str
    began: int
    ended: int


class Origin(NamedTuple):
    """Where a record of a bus came from."""

    system: str
    """The type of the source."""
    topic: str
    partition: int


@dataclass(slots=True)
class RecordSpan:
    """The span of one sampled record."""

    place: int
    """The record's place in the block of records."""
    parent: TraceContext | None
    """The sender's span; `None`: the trace begins here."""
    context: TraceContext
    """The record's span itself, which its result names."""
    origin: Origin | str
    """Where the record came from; a text: it is a request to the service of this name."""
    position: int
    began: int
    error: tuple[str, str] | None = None
    """The type of the record's error, and its text."""
    transaction: Outcome | None = None
    """What became of the transaction that its results were in; `None`: there was none, or it is open still."""

    @property
    def is_request(self) -> bool:
        """Whether somebody waits for an answer."""
        return isinstance(self.origin, str)


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
    transaction: Outcome | None = None
    """As in `RecordSpan`."""

    def __len__(self) -> int:
        return 1 + len(self.records) + len(self.stages) + (0 if self.run is None else 1 + len(self.steps))

    def cut(self, most: int) -> Finished:
        """The same batch with so many spans at most, 1 or more: its own, and those of its records before others."""
        left = most - 1
        records = self.records[:left]
        left -= len(records)
        if left >= len(self) - 1 - len(self.records):
            return replace(self, records=records)
        return replace(self, records=records, stages=self.stages[:left], run=None, steps=())

    def decide(self, outcome: Outcome, at: int) -> None:
        """Its transaction has ended so, at this time; results become visible by a commit, which is a stage, too."""
        self.transaction = outcome
        for each in self.records:
            each.transaction = each.transaction or outcome
        if outcome == "committed":
            self.stages = [*self.stages, Period("commit", self.ended, at)]
            self.ended = at

    def spans(self) -> list[bytes]:
        """The spans of the batch, its stages and its sampled records, as `otlp` writes them."""
        trace = new_trace()
        batch = TraceContext(trace, new_span())

        def within(parent: TraceContext, period: Period) -> tuple[TraceContext, bytes]:
            context = TraceContext(trace, new_span())
            return context, otlp.span(context, parent, _work(period.name), period.began, period.ended, b"")

        rest = [_of_batch(self.source), otlp.attribute("streamer.batch.records", self.rows), _marked(self.transaction)]
        rest += [
            otlp.link(each.context) if each.parent is None else otlp.link(each.parent, from_afar=True)
            for each in self.records
        ]
        if self.transaction == "aborted":
            rest.append(otlp.error(ABORTED))
        spans = [otlp.span(batch, None, _work("streamer batch"), self.began, self.ended, b"".join(rest))]
        spans += [within(batch, stage)[1] for stage in self.stages]
        if self.run is not None:
            run, written = within(batch, self.run)
            spans += [written, *(within(run, step)[1] for step in self.steps)]
        to_batch = otlp.link(batch)
        spans += [self._of_record(each, to_batch) for each in self.records]
        return spans

    def _of_record(self, each: RecordSpan, to_batch: bytes) -> bytes:
        head, attributes = _of_request(each.origin) if isinstance(each.origin, str) else _of_bus(each.origin)
        rest = [attributes]
        if isinstance(each.origin, Origin) and each.origin.system == "kafka":
            rest.append(otlp.attribute("messaging.kafka.offset", each.position))
        if each.error is not None:
            rest.append(otlp.attribute("error.type", each.error[0]))
        rest += [_marked(each.transaction), to_batch]
        if each.error is not None:
            rest.append(otlp.error(each.error[1]))
        elif each.transaction == "aborted":
            rest.append(otlp.error(ABORTED))
        return otlp.span(
            each.context,
            each.parent,
            head,
            each.began,
            self.ended,
            b"".join(rest),
            from_afar=each.parent is not None,
        )


def new_trace() -> int:
    """The id of a new trace."""
    return getrandbits(128) or 1


def new_span() -> int:
    """The id of a new span."""
    return getrandbits(64) or 1


@lru_cache(1000)
def _work(name: str) -> bytes:
    return otlp.name(name) + otlp.INTERNAL


@lru_cache(1000)
def _of_batch(source: str) -> bytes:
    return otlp.attribute("streamer.source", source)


@lru_cache(1000)
def _of_request(service: str) -> tuple[bytes, bytes]:
    return otlp.name(f"infer {service}") + otlp.SERVER, b""


@lru_cache(1000)
def _of_bus(origin: Origin) -> tuple[bytes, bytes]:
    """Name and kind of a record's span, and its attributes: OpenTelemetry's conventions for messages."""
    attributes = {
        "messaging.system": origin.system,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": origin.topic,
        "messaging.destination.partition.id": str(origin.partition),
    }
    head = otlp.name(f"process {origin.topic}") + otlp.CONSUMER
    return head, b"".join(otlp.attribute(key, value) for key, value in attributes.items())


@lru_cache(4)
def _marked(transaction: Outcome | None) -> bytes:
    return b"" if transaction is None else otlp.attribute("streamer.transaction", transaction)
