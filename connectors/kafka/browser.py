"""`KafkaBrowser`: the topics of a Kafka cluster, read without joining a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from connectors.browser import Browser, TopicReader
from connectors.kafka.client.answers import topics_of
from connectors.kafka.client.brokers import Brokers
from connectors.kafka.client.internaltopics import reads
from connectors.kafka.client.properties import require_client
from connectors.kafka.client.userproperties import is_security
from connectors.kafka.config import KafkaClientConfig, KafkaSinkConfig, KafkaSourceConfig
from connectors.sink import Sink


class KafkaBrowser(Browser):
    """The cluster of a connector, or of an address with librdkafka's properties."""

    def __init__(
        self, brokers: Brokers, client: Mapping[str, Any], config: KafkaSourceConfig | KafkaSinkConfig | None = None
    ) -> None:
        """`config`: the connector whose properties `topics` uses; `None`: those of `client`."""
        self._brokers = brokers
        self._client = dict(client)
        self._config = config

    @classmethod
    def of(cls, config: KafkaClientConfig, client: Mapping[str, Any]) -> Self:
        """The cluster of this connector, reached with its login and the properties of `client`."""
        login = {name: value for name, value in config.client.items() if is_security(name)}
        connector = config if isinstance(config, (KafkaSourceConfig, KafkaSinkConfig)) else None
        return cls(config.brokers, {**login, **client}, connector)

    @property
    def address(self) -> str:
        return self._brokers.address

    def topics(self) -> dict[str, int]:
        return topics_of(self._config or self._sink("", "topics"))

    def matching(self, pattern: str, topics: Iterable[str]) -> list[str]:
        return [topic for topic in topics if reads([pattern], topic)]

    def reader(self, topic: str, group: str) -> TopicReader:
        require_client()
        from connectors.kafka.consumer.topicreader import KafkaTopicReader

        return KafkaTopicReader(self._brokers, topic, self._client, group=group)

    def sink(self, topic: str, name: str) -> Sink:
        return self._sink(topic, name).build()

    def _sink(self, topic: str, name: str) -> KafkaSinkConfig:
        config = KafkaSinkConfig(name=name, topic=topic or "none", client=self._client)
        return config.with_brokers(self._brokers)
