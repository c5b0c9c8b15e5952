"""Checks a service for use inside a Faust app: options that Faust cannot honour are errors, with file and line."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from faust import App
from faust.types.agents import AgentT
from faust.types.enums import ProcessingGuarantee

from connectors.config import SinkConfig, SourceConfig
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.definitions.document import KeyPath
from pipelines.errors import DefinitionError
from streamer.definition.connectors.written import Written
from streamer.definition.service import Service
from streamer.definition.settings import StateSettings, StateTopicSettings
from streamer.delivery.guarantee import guarantee
from streamer.models.settings import SHADOW

_OF_CONSUMER: Final[Mapping[str, str]] = {
    "client": "these are librdkafka's properties; give the app broker_credentials, broker_session_timeout and the like",
    "instance": "give the app consumer_group_instance_id",
    "assignor": "Faust assigns partitions by its own assignor; leave it out",
    "max_fetch": "give the app consumer_max_fetch_size",
    "out_of_range": "Faust goes on at its consumer_auto_offset_reset; leave it out",
    "reset": "reset the group's offsets with the brokers' own tools",
}
"""Fields of a Kafka source for its client, which is Faust's own here, each with the hint what to do instead."""
_OF_PRODUCER: Final[Mapping[str, str]] = {
    "client": "these are librdkafka's properties; give the app broker_credentials and the like",
    "compression": "give the app producer_compression_type",
    "linger": "give the app producer_linger",
    "partitioner": "give the app producer_partitioner; Faust's own is that of Kafka's Java clients",
    "max_message": "give the app producer_max_request_size",
    "timeout": "give the app producer_request_timeout",
    "outbox": "leave it out: Faust keeps unacknowledged records on the bus",
}
"""The same for a Kafka sink."""


def check_service(service: Service, written: Written, *, logs_in: bool = False) -> None:
    """Raise `DefinitionError` for settings of this service that no Faust app can honour.

    `logs_in`: the app is made of the service and logs in by its `client`, which is checked elsewhere.
    """
    if guarantee(service.delivery).transactional:
        raise written.error(
            ("delivery",),
            f"{service.delivery} is not possible inside Faust: its own sends to topics that the app does not read "
            "outside of the transaction; choose at_least_once, or run the service with streamer run",
        )
    if service.hot_path == "native":
        raise written.error(
            ("hot_path",),
            "native is not possible inside Faust: its consumer gives one Python object a record; choose auto, which "
            "still decodes and encodes compiled, or run the service with streamer run",
        )
    if isinstance(service.state, StateSettings | StateTopicSettings):
        raise written.error(
            ("state",),
            "a file or a topic is not possible inside Faust, which moves partitions between its workers, and commits "
            "their positions itself; write state: memory, or run the service with streamer run",
        )
    if service.models.follow is not None:
        raise written.error(
            ("models", "follow"),
            "not possible inside Faust, where nothing takes over between two batches; leave it out and restart the "
            "workers for a new model, or run the service with streamer run",
        )
    if service.shadow_sink is not None:
        raise written.error(
            ("variants", SHADOW, "sink"),
            "not possible inside Faust, whose producer is for the results of the service; leave it out, so that they "
            "are compared only, or run the service with streamer run",
        )
    if len(service.sources) != 1:
        raise written.error(
            ("source",),
            f"a Faust app reads one bus, and there are {len(service.sources)} sources; name all topics in one",
        )
    skipped = {"client"} if logs_in else set()
    _check_source(service.sources[0], written, skipped)
    for sink, path in written.sinks_of(service):
        _check_sink(sink, path, service.sources[0], written, skipped)


def check_app(service: Service, written: Written, app: App, *, own_broker: bool = False) -> None:
    """Raise `DefinitionError` if the app is set otherwise than the service says, or so that records could be lost.

    `own_broker`: the app's brokers were given beside the service, and replace the source's `bootstrap`.
    """
    source, path, conf = service.sources[0], written.connector("source"), app.conf
    assert isinstance(source, KafkaSourceConfig)
    if {url.scheme for url in conf.broker} - {"kafka", "aiokafka"}:
        raise DefinitionError(f"the app's broker is {conf.broker[0]}: only Faust's driver kafka:// (aiokafka) works")
    brokers = {f"{url.host}:{url.port or 9092}" for url in conf.broker}
    if not own_broker and written.says(path, source, "bootstrap") and not brokers & set(brokers_of(source)):
        raise written.error(
            (*path, "bootstrap"),
            f"{source.bootstrap} is another bus than the app's, {', '.join(sorted(brokers))}; leave it out",
        )
    said = source.group != service.name if written.document is None else written.says(path, source, "group")
    if said and source.group != conf.id:
        raise written.error(
            (*path, "group"), f"the consumer group inside Faust is the app's id, {conf.id}; leave it out"
        )
    if written.says(path, source, "start") and source.start != conf.consumer_auto_offset_reset:
        raise written.error(
            (*path, "start"),
            f"the app's consumer_auto_offset_reset is {conf.consumer_auto_offset_reset}; make them the same",
        )
    if str(conf.processing_guarantee.value) == ProcessingGuarantee.EXACTLY_ONCE.value:
        raise DefinitionError("the app has processing_guarantee exactly_once, which loses records; leave it out")
    if conf.producer_acks != -1:
        raise DefinitionError(
            f"the app has producer_acks {conf.producer_acks}, so that a confirmed result may be lost; leave it out"
        )


def check_alone(service: Service, app: App, agent: AgentT[Any]) -> None:
    """Raise `DefinitionError` if an agent of the app beside the service's own reads the same topics.

    Faust acknowledges a record that one of its agents cannot decode for all others too, without giving it to them.
    """
    topics = set(service.sources[0].topic_names)
    for name, other in app.agents.items():
        if other is not agent and (both := topics & set(other.get_topic_names())):
            raise DefinitionError(
                f'service {service.name}: the agent "{name}" reads {sorted(both)[0]} too, and Faust acknowledges '
                "records that one of two agents cannot decode for both; let it read another topic, or use another app"
            )


def brokers_of(connector: SourceConfig | SinkConfig) -> list[str]:
    """`host:port` of each broker of a Kafka source or sink."""
    assert isinstance(connector, KafkaSourceConfig | KafkaSinkConfig)
    address = connector.brokers.address
    return [host if ":" in host else f"{host}:9092" for host in map(str.strip, address.split(",")) if host]


def _check_source(source: SourceConfig, written: Written, skipped: Set[str]) -> None:
    path = written.connector("source")
    if not isinstance(source, KafkaSourceConfig):
        raise written.error((*path, "type"), f"a Faust app reads from Kafka, and this source is of type {source.type}")
    for field, instead in _OF_CONSUMER.items():
        if field not in skipped and written.says(path, source, field):
            raise written.error((*path, field), f"inside Faust the consumer is Faust's: {instead}")
    if pattern := next((topic for topic in source.topics if topic.startswith("^")), None):
        raise written.error((*path, "topics"), f"a Faust app reads topics by their names, and {pattern} is a pattern")
    if source.start not in ("earliest", "latest"):
        raise written.error((*path, "start"), "inside Faust a group begins at earliest or latest, at no time")


def _check_sink(sink: SinkConfig, path: KeyPath, source: SourceConfig, written: Written, skipped: Set[str]) -> None:
    if not isinstance(sink, KafkaSinkConfig):
        raise written.error(
            (*path, "type"),
            f"inside Faust results go through Faust's producer, to Kafka, and this sink is of type {sink.type}; have "
            "the agent's sinks= or another agent do it, or run the service with streamer run",
        )
    for field, instead in _OF_PRODUCER.items():
        if field == "max_message" and written.document is None:
            # Dead letters have another default.
            continue
        if field not in skipped and written.says(path, sink, field):
            raise written.error((*path, field), f"inside Faust the producer is Faust's: {instead}")
    if not set(brokers_of(sink)) & set(brokers_of(source)):
        raise written.error(
            (*path, "bootstrap"),
            f"{sink.brokers} is another bus than the source's, and a Faust app has one; leave it out",
        )
