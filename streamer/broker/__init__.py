"""Brokers for development and tests: a real Apache Kafka on this machine, with nothing installed but Python."""

from streamer.broker.choose import Broker, open_broker
from streamer.broker.errors import BrokerError
from streamer.broker.jars import KAFKA_VERSION, KafkaJars
from streamer.broker.local import LocalKafka
from streamer.broker.mock import MockKafka
from streamer.broker.topics import create_topics

__all__ = [
    "KAFKA_VERSION",
    "Broker",
    "BrokerError",
    "KafkaJars",
    "LocalKafka",
    "MockKafka",
    "create_topics",
    "open_broker",
]
