"""Brokers for development and tests: a real Apache Kafka on this machine, which needs only Python installed."""

from streamer.devbroker.choose import Broker, Substitute, open_broker
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.jars import KAFKA_VERSION, KafkaJars
from streamer.devbroker.local import LocalKafka
from streamer.devbroker.mock import MockKafka
from streamer.devbroker.registry import REGISTRY_VERSION, LocalRegistry
from streamer.devbroker.topics import create_topics

__all__ = [
    "KAFKA_VERSION",
    "REGISTRY_VERSION",
    "Broker",
    "BrokerError",
    "KafkaJars",
    "LocalKafka",
    "LocalRegistry",
    "MockKafka",
    "Substitute",
    "create_topics",
    "open_broker",
]
