"""Run a service without a broker: the same definition on memory connectors, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from connectors.codec import Codec
from connectors.codecs.registry import codec_of
from connectors.config import SourceConfig
from connectors.memory import Faults, MemorySink, MemorySource, MemoryTransactionalSink, MemoryTransactions
from connectors.message import Message, records_of
from pipelines.data.batch import Batch
from pipelines.data.data import Data, as_data
from pipelines.errors import StreamerError
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.agent.summary import Summary
from streamer.definition.service import Service
from streamer.delivery.deadletter import Original, original
from streamer.delivery.guarantee import guarantee


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that failed: its message, and the headers with the error."""

    message: Message
    origin: Original

    @property
    def step(self) -> str:
        """The step in which it failed; `decode` if its payload could not be read."""
        return self.origin.step

    @property
    def error(self) -> str:
        """Class and text of the error."""
        return f"{self.origin.error}: {self.origin.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """A service's results, dead letters and counts for the records it was given."""

    sinks: Mapping[str, list[Message]]
    """The messages that each sink got, by its name, in order; with their topics where those are made from values."""
    decoded: Mapping[str, list[Data | None]]
    """The same, decoded; `None` for a message without a payload."""
    dead: list[DeadLetter]
    """The dead letters, in order."""
    acknowledged: int
    """How many records were acknowledged, over all sources."""
    summary: Summary

    @property
    def results(self) -> list[Data | None]:
        """The messages of the first sink, decoded."""
        return next(iter(self.decoded.values()))


Given: TypeAlias = Mapping[str, Any] | bytes | Message | None
"""A record as given by the caller: a `Data` or `dict`, a payload, a `Message`, or `None` (a tombstone)."""


class ServiceFailed(StreamerError):
    """The service stopped because of an error that belongs to no record. `report` holds the results until then."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"the service stopped: {report.summary.error}")
        self.report = report


def run(
    service: Service,
    records: Iterable[Given] | Mapping[str, Iterable[Given]],
    *,
    timeout: float = 60.0,
    check: bool = True,
) -> Report:
    """Run `service` over `records` to their end and report.

    `records` are `Data` or `dict`s (encoded with the source's codec), payloads, `None` (a tombstone) or `Message`s with
    key, headers and topic; with several sources a mapping by the source's name. Sources and sinks are in memory;
    pipeline, codecs, batching, delivery and failure rules are the service's own. Raises `ServiceFailed` if an error
    stopped the service, unless `check` is false: then `summary` has it. Errors of opening are raised in any case;
    `TimeoutError` after `timeout` seconds.
    """
    by_source = records if isinstance(records, Mapping) else {service.sources[0].label: records}
    unknown = set(by_source) - {config.label for config in service.sources}
    if unknown:
        raise StreamerError(f"the service has no source {sorted(unknown)[0]!r}")
    sources = {}
    for config in service.sources:
        codec = codec_of(config.codec)
        given = [_from_topic(_payload(record, codec), config) for record in by_source.get(config.label, ())]
        sources[config.label] = MemorySource(given, name=config.label)
    sinks, dead = _sinks(service)
    agent = Agent(service, assembly=build(service, sources=sources, sinks=sinks, dead=dead))
    agent.start()
    try:
        summary = agent.join(timeout)
    finally:
        agent.stop()
    report = Report(
        sinks={name: sink.messages for name, sink in sinks.items()},
        decoded={
            config.label: _decoded(sinks[config.label].messages, codec_of(config.codec)) for config in service.sinks
        },
        dead=[_dead_letter(message) for message in dead.messages],
        acknowledged=sum(sum(source.acknowledged) for source in sources.values()),
        summary=summary,
    )
    if check and summary.reason == "failed":
        raise ServiceFailed(report)
    return report


def _sinks(service: Service) -> tuple[Mapping[str, MemorySink], MemorySink]:
    names = [config.label for config in service.sinks]
    if not guarantee(service.delivery).transactional:
        return {name: MemorySink(name=name, gathers=True) for name in names}, MemorySink(name="dead_letter")
    shared = MemoryTransactions(Faults(), timeout=service.transactions.timeout)
    sinks = {name: MemoryTransactionalSink(transactions=shared, name=name, gathers=True) for name in names}
    return sinks, MemoryTransactionalSink(transactions=shared, name="dead_letter")


def payload(record: Mapping[str, Any] | bytes, codec: str | dict[str, object]) -> bytes:
    """The payload of a record, by the codec of this setting; one that is a payload already stays as it is.

    Raises the codec's error for a value that it cannot write.
    """
    found = message(record, codec).value
    assert isinstance(found, bytes)
    return found


def message(record: Mapping[str, Any] | bytes, codec: str | dict[str, object]) -> Message:
    """As `payload`, with the headers that the codec puts beside it."""
    found = _payload(record, codec_of(codec))
    return found if isinstance(found, Message) else Message(found)


def _payload(record: Given, codec: Codec) -> Message | bytes | None:
    if not isinstance(record, Mapping):
        return record
    encoded = codec.encode(Batch.of([as_data(record)]))
    for error in encoded.failed.values():
        raise error
    if encoded.headers is not None:
        return Message(encoded.values[0], headers=tuple(encoded.headers[0]))
    written: bytes | None = encoded.values[0]
    return written


def _from_topic(record: Message | bytes | None, config: SourceConfig) -> Message | bytes | None:
    """The record with the metadata in its topic's name, unless it has its own."""
    if not isinstance(record, Message) or record.topic is None or record.extras:
        return record
    return record._replace(extras=tuple(config.topic_extras(record.topic).items()))


def _decoded(messages: list[Message], codec: Codec) -> list[Data | None]:
    if not messages:
        return []
    found = codec.decode(records_of(messages, "report"), None)
    for error in found.failed.values():
        raise error
    rows = dict(zip(found.batch.rows.tolist(), found.batch.to_list(), strict=True))
    return [rows.get(row) for row in range(len(messages))]


def _dead_letter(message: Message) -> DeadLetter:
    origin = original(message.headers)
    if origin is None:
        raise StreamerError("the dead letter sink got a message that is no dead letter")
    return DeadLetter(message, origin)
