"""Checks a service for use on Spark: options that a streaming query cannot honour are errors, with file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from connectors.config import SinkConfig, SourceConfig
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.definitions.document import KeyPath
from pipelines.definitions.walk import walk
from pipelines.errors import DefinitionError
from pipelines.steps.base import Step
from streamer.definition.connectors.written import Written
from streamer.definition.refusals import place_of
from streamer.definition.service import Service
from streamer.delivery.guarantee import AtLeastOnce

_INSTEAD: Final = "or run the service with streamer run"
_OF_SOURCE: Final[Mapping[str, str]] = {
    "instance": "Spark's readers are no members of a group; leave it out",
    "assignor": "Spark assigns partitions to its tasks itself; leave it out",
    "reset": "positions are those of the checkpoint: for others begin a new checkpoint",
    "revoke_timeout": "Spark takes no partitions away; leave it out",
}
"""Fields of a Kafka source that mean nothing where Spark reads, each with the hint what to do instead."""
_OF_SINK: Final[Mapping[str, str]] = {
    "timestamp": "Spark's sink for Kafka writes no timestamps: messages have the time of writing; leave it out",
    "outbox": "leave it out: Spark reads records again until their results are confirmed",
}
"""The same for a Kafka sink."""
_PARTITIONER: Final = "murmur2_random"
"""The partitioner of Java's clients, of which Spark's producer is one."""


def check_service(service: Service, written: Written) -> None:
    """Raise `DefinitionError` for settings of this service that a query of Spark cannot honour."""
    for path, message in _refused(service):
        raise written.error(path, message)
    for part in walk(service.sequence()):
        if isinstance(part.what, Step) and _remembers(part.what):
            raise DefinitionError(f"{place_of(service.written, 'pipeline', part.name)}{remembers(part.name)}")
    if len(service.sources) != 1:
        raise written.error(
            ("source",), f"a query reads one bus, and there are {len(service.sources)} sources; name all topics in one"
        )
    _check_source(service.sources[0], written)
    sinks = written.sinks_of(service)
    for sink, path in sinks:
        _check_sink(sink, path, written)
    _check_one_producer(sinks, written)


def remembers(step: str) -> str:
    """Why a step that depends on earlier records is refused."""
    return (
        f"step {step} remembers earlier records or holds them, and on Spark each micro-batch may run in another "
        f"process; leave it out, {_INSTEAD}"
    )


def _refused(service: Service) -> Iterator[tuple[KeyPath, str]]:
    if service.delivery != AtLeastOnce.name:
        yield (
            ("delivery",),
            f"{service.delivery} is not possible on Spark, whose sink for Kafka writes a micro-batch again after a "
            f"failure; choose at_least_once, {_INSTEAD}",
        )
    if service.state is not None:
        yield (
            ("state",),
            f"not possible on Spark, which keeps positions in its own checkpoint; leave it out, {_INSTEAD}",
        )
    if service.batch.type != "soft":
        yield (
            ("batch", "type"),
            f"{service.batch.type} is not possible on Spark, where a batch ends with its micro-batch; choose soft",
        )
    if service.batch.target is not None:
        yield (
            ("batch", "target_latency"),
            "not possible on Spark, where the trigger says how long records wait; write max_wait",
        )
    if service.limits.parallel > 1:
        yield ("limits", "parallel"), "on Spark its tasks run batches at the same time; leave it out"
    if service.models.follow is not None:
        yield ("models", "follow"), "not possible on Spark; leave it out, and start the query again for a new model"
    if service.variants:
        yield ("variants",), f"not possible on Spark; leave them out, {_INSTEAD}"
    for field, instead in {
        "control": "metrics are in the query's progress and in Spark's own pages; leave it out",
        "profile": "several processes cannot write one file; leave it out",
        "tracing": f"leave it out, {_INSTEAD}",
        "debug": f"leave it out, {_INSTEAD}",
    }.items():
        if getattr(service, field):
            yield (field,), f"not possible on Spark: {instead}"


def _remembers(step: Step) -> bool:
    return bool(step.shapes) and (not step.keyed_by or getattr(step, step.keyed_by) is not None)


def _check_source(source: SourceConfig, written: Written) -> None:
    path = written.connector("source")
    if not isinstance(source, KafkaSourceConfig):
        raise written.error(
            (*path, "type"), f"a service on Spark reads from Kafka, and this source is of type {source.type}"
        )
    for field, instead in _OF_SOURCE.items():
        if written.says(path, source, field):
            raise written.error((*path, field), f"not possible on Spark: {instead}")
    if source.out_of_range == "latest":
        raise written.error(
            (*path, "out_of_range"),
            "latest is not possible on Spark, which goes on at the first record that is left; choose stop or earliest",
        )


def _check_sink(sink: SinkConfig, path: KeyPath, written: Written) -> None:
    if not isinstance(sink, KafkaSinkConfig):
        raise written.error(
            (*path, "type"),
            f"on Spark results go to Kafka, and this sink is of type {sink.type}; have another service read that "
            f"topic, {_INSTEAD}",
        )
    for field, instead in _OF_SINK.items():
        if written.says(path, sink, field) and getattr(sink, field) not in (None, "now"):
            raise written.error((*path, field), f"not possible on Spark: {instead}")
    if sink.partitioner != _PARTITIONER:
        raise written.error(
            (*path, "partitioner"),
            f"{sink.partitioner} is one of librdkafka, and Spark's producer has that of Java's clients; write "
            f"{_PARTITIONER}, or leave it out",
        )


def _check_one_producer(sinks: Sequence[tuple[SinkConfig, KeyPath]], written: Written) -> None:
    first = sinks[0][0]
    assert isinstance(first, KafkaSinkConfig)
    for sink, path in sinks[1:]:
        assert isinstance(sink, KafkaSinkConfig)
        if sink.brokers.address != first.brokers.address:
            raise written.error(
                (*path, "bootstrap"),
                f"{sink.brokers} is another bus than that of the sink {first.label}, and a query writes to one; "
                "leave it out",
            )
        if sink.client and sink.client != first.client:
            raise written.error(
                (*path, "client"),
                f"differs from that of the sink {first.label}, and a query has one producer; make them the same",
            )
    for field in ("compression", "linger", "timeout"):
        setting_of_producer(sinks, field, written)


def setting_of_producer(sinks: Sequence[tuple[SinkConfig, KeyPath]], field: str, written: Written) -> Any:
    """What the sinks say of this field of their one producer, or its default; `None` for `timeout` if none says it.

    Raises `DefinitionError` with file and line if two say different values.
    """
    saying = [(sink, path) for sink, path in sinks if written.says(path, sink, field)]
    if not saying:
        return None if field == "timeout" else getattr(sinks[0][0], field)
    first = saying[0][0]
    for sink, path in saying[1:]:
        if getattr(sink, field) != getattr(first, field):
            raise written.error(
                (*path, field),
                f"differs from that of the sink {first.label}, and a query has one producer; make them the same",
            )
    return getattr(first, field)
