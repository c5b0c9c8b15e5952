"""The fields of a table that is a Kafka topic, `table` of a LOOKUP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator

from connectors.kafka.client.userproperties import FREE, OF_SOURCES, refuse
from connectors.kafka.config import Client, KafkaClientConfig, KafkaSourceConfig
from connectors.tables.config import TopicTableConfig


class KafkaTableConfig(KafkaClientConfig, TopicTableConfig):
    """A Kafka topic, mostly a compacted one, whose records are the rows of a table, by their keys."""

    type: Literal["kafka"] = "kafka"
    """The kind of table."""
    bootstrap: str | None = None
    """`host:port` of some of the brokers, separated by commas; by default those of the service's Kafka source, with its security properties; without such a source those of `KAFKA_BOOTSTRAP_SERVERS`, else `localhost:9092`."""  # noqa: E501
    client: Annotated[Client, FREE] = Field(default={})
    """Any property of librdkafka, such as `security.protocol`; `oauth_cb` may name a function as module:function."""

    @field_validator("client")
    @classmethod
    def _free_properties(cls, client: Client) -> Client:
        refuse(client, OF_SOURCES)
        return client

    @property
    def properties(self) -> Mapping[str, Any]:
        """Its `client`."""
        return self.client

    @property
    def place(self) -> str:
        """Its topic and brokers."""
        return f"{self.label} on {self.brokers}"

    def check(self) -> None:
        """Also its `client`."""
        super().check()
        KafkaSourceConfig(topics=(self.topic,), group=self.label, client=self.client).check_client()

    def beside(self, sources: Sequence[object]) -> Self:
        """The same table; if it names no brokers, with the brokers and the login of the first Kafka source."""
        return self.with_brokers_of(sources)
