"""Run a service without a broker: the same definition on memory connectors, for tests and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from connectors.codec import Codec
from connectors.codecs.registry import codec_of
from connectors.config import SourceConfig
from connectors.memory import (
    Faults,
    MemorySink,
    MemorySource,
    MemoryTopic,
    MemoryTransactionalSink,
    MemoryTransactions,
)
from connectors.message import Message, records_of
from connectors.records import Header
from pipelines.data.batch import Batch
from pipelines.data.data import Data, as_data
from pipelines.errors import StreamerError
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.agent.runs.clock import Clock
from streamer.agent.summary import Summary
from streamer.definition.connectors.listed import result_sinks_of
from streamer.definition.service import Service
from streamer.delivery.deadletter import Original, original
from streamer.delivery.guarantee import guarantee
from streamer.testing.registries import Schema, input_codec, registries_in_memory
from streamer.testing.requests import fitting


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
    """The messages of each sink, by its name, in order; with their topics where those are made from values. That of
    a shadow may have fewer, as batches are skipped while it is busy."""
    decoded: Mapping[str, list[Data | None]]
    """The decoded messages of each sink; `None` for a message without a payload or that cannot be read back."""
    unreadable: Mapping[str, Mapping[int, Exception]]
    """The errors of messages that a sink's codec wrote but cannot read, by the sink's name and the message's index."""
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
"""A record as given by the caller: a `Data` or `dict`, a payload, `None` (a tombstone), or a `Message` of these."""


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
    schemas: Mapping[str, Schema] | None = None,
    sink_schemas: Mapping[str, Schema] | None = None,
    clock: Clock | None = None,
) -> Report:
    """Run `service` over `records` to their end and report.

    `records` are `Data` or `dict`s (encoded with the source's codec), payloads, `None` (a tombstone) or `Message`s with
    key, headers and topic, whose values are one of these; with several sources a mapping by the source's name. Sources
    and sinks are in memory; pipeline, codecs, batching, delivery and failure rules are the service's own. Raises
    `ServiceFailed` if an error stopped the service, unless `check` is false: then `summary` has it. Errors of opening,
    and those of codecs that cannot write a record that was given, are raised in any case; `TimeoutError` after
    `timeout` seconds.

    No schema registry is asked. `schemas`, by the name of the source, has the schemas by which records are encoded
    where a codec has a registry: of Avro and JSON a file or the schema itself, of protobuf `{"descriptors": FILE,
    "message": NAME}`. Without one it is that of the codec, for Avro else one that is derived from the records. So it is
    with `sink_schemas` and results.

    `clock` says what the time is for the steps; default: that of this computer.
    """
    by_source = records if isinstance(records, Mapping) else {service.sources[0].label: records}
    unknown = set(by_source) - {config.label for config in service.sources}
    if unknown:
        raise StreamerError(f"the service has no source {sorted(unknown)[0]!r}")
    with registries_in_memory(service, sink_schemas or {}) as changed:
        given = {
            config.label: _messages(
                config,
                list(by_source.get(config.label, ())),
                (schemas or {}).get(config.label),
                partial(fitting, changed, config),
            )
            for config in changed.sources
        }
        report = _report(changed, given, timeout, clock)
    if check and report.summary.reason == "failed":
        raise ServiceFailed(report)
    return report


def _report(
    service: Service, given: Mapping[str, list[Message | bytes | None]], timeout: float, clock: Clock | None
) -> Report:
    sources = {name: MemorySource(messages, name=name) for name, messages in given.items()}
    sinks, dead = _sinks(service)
    letters = dead[0].topic if dead else MemoryTopic("dead_letter")
    assembly = build(service, sources=sources, sinks=sinks, dead=dead)
    if clock is not None:
        assembly.clock = clock
    agent = Agent(service, assembly=assembly)
    agent.start()
    try:
        summary = agent.join(timeout)
    finally:
        agent.stop()
    decoded: dict[str, list[Data | None]] = {}
    unreadable: dict[str, Mapping[int, Exception]] = {}
    for config in result_sinks_of(service):
        decoded[config.label], failed = _decoded(sinks[config.label].messages, codec_of(config.codec))
        if failed:
            unreadable[config.label] = failed
    return Report(
        sinks={name: sink.messages for name, sink in sinks.items()},
        decoded=decoded,
        unreadable=unreadable,
        dead=[_dead_letter(message) for message in letters.messages()],
        acknowledged=sum(sum(source.acknowledged) for source in sources.values()),
        summary=summary,
    )


def _sinks(service: Service) -> tuple[Mapping[str, MemorySink], list[MemorySink]]:
    """The sinks of results by name, a shadow's too, and those of failed records, which have one topic."""
    names = [config.label for config in result_sinks_of(service)]
    if not guarantee(service.delivery).transactional:
        topic = MemoryTopic("dead_letter")
        dead = [MemorySink(topic, name="dead_letter") for _ in service.letter_sinks]
        return {name: MemorySink(name=name, gathers=True) for name in names}, dead
    shared = MemoryTransactions(Faults(), timeout=service.transactions.timeout)
    sinks: dict[str, MemorySink] = {
        name: MemoryTransactionalSink(transactions=shared, name=name, gathers=True) for name in names
    }
    if service.shadow_sink is not None:
        name = service.shadow_sink.label
        sinks[name] = MemorySink(name=name, gathers=True)
    return sinks, [MemoryTransactionalSink(transactions=shared, name="dead_letter") for _ in service.letter_sinks]


def payload(record: Mapping[str, Any] | bytes, codec: str | dict[str, object]) -> bytes:
    """The payload of a record, by the codec of this setting; one that is a payload already stays as it is.

    Raises the codec's error for a value that it cannot write.
    """
    if isinstance(record, bytes):
        return record
    ((value, _),) = _encoded([record], codec_of(codec))
    assert isinstance(value, bytes)
    return value


def _messages(
    config: SourceConfig,
    given: list[Given],
    schema: Schema | None,
    fits: Callable[[], Callable[[Mapping[str, Any]], Data]],
) -> list[Message | bytes | None]:
    """The messages of a source's records; `fits` gives the function that makes values of them as clients send them.

    Those that are not payloads yet are encoded together, so that a schema that is derived from them has all their
    values.
    """
    values = [record.value if isinstance(record, Message) else record for record in given]
    records = [value for value in values if isinstance(value, Mapping)]
    made = iter(_encoded([*map(fits(), records)], input_codec(config, schema)) if records else ())
    messages: list[Message | bytes | None] = []
    for record, value in zip(given, values, strict=True):
        message = record if isinstance(record, Message) else None
        if isinstance(value, Mapping):
            written, headers = next(made)
            message = Message(written) if message is None else message._replace(value=written)
            message = message._replace(headers=(*headers, *message.headers))
        messages.append(_from_topic(message, config) if message is not None else record)  # type: ignore[arg-type]
    return messages


def _encoded(records: Sequence[Mapping[str, Any]], codec: Codec) -> list[tuple[Any, tuple[Header, ...]]]:
    """Payload and headers of each record. Raises the codec's error for one that it cannot write."""
    encoded = codec.encode(Batch.of([as_data(record) for record in records]))
    for error in encoded.failed.values():
        raise error
    headers = encoded.headers or [()] * len(records)
    return [(value, tuple(its)) for value, its in zip(encoded.values, headers, strict=True)]


def _from_topic(record: Message, config: SourceConfig) -> Message:
    """The record with the metadata in its topic's name, unless it has its own."""
    if record.topic is None or record.extras:
        return record
    return record._replace(extras=tuple(config.topic_extras(record.topic).items()))


def _decoded(messages: list[Message], codec: Codec) -> tuple[list[Data | None], Mapping[int, Exception]]:
    """The values of these messages, and the errors of those that the codec cannot read, by index."""
    if not messages:
        return [], {}
    decoded = codec.decode(records_of(messages, "report"), None)
    rows = dict(zip(decoded.batch.rows.tolist(), decoded.batch.to_list(), strict=True))
    return [rows.get(row) for row in range(len(messages))], decoded.failed


def _dead_letter(message: Message) -> DeadLetter:
    origin = original(message.headers)
    if origin is None:
        raise StreamerError("the dead letter sink got a message that is not a dead letter")
    return DeadLetter(message, origin)
