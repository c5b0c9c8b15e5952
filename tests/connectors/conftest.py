"""For the tests of Kafka connectors: sources, writers, and a real Kafka that can be cut off in an instant."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType

import pytest
from cuttable import Proxy
from kafkatopics import QUICK_GROUPS, At, MakeTopic, Name, ReadTopic

from pipelines import hotpath
from pipelines.errors import MissingPackageError
from streamer.devbroker import Broker, BrokerError, LocalKafka, MockKafka, create_topics
from streamer.devbroker.settings import SLOW_LOSS


class CuttableKafka:
    """A real broker whose clients come through a proxy, as it tells them to.

    `cut` closes their connections and refuses new ones until `mend`; `broker` can be frozen.
    """

    def __init__(self) -> None:
        self._proxy = Proxy()
        here = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._proxy.port}"}
        self.broker = LocalKafka(settings=SLOW_LOSS | QUICK_GROUPS | here)
        self.bootstrap = f"127.0.0.1:{self._proxy.port}"

    def start(self) -> None:
        # The broker is asked through its proxy already while it starts.
        self._proxy.open(lambda: int(self.broker.bootstrap.rpartition(":")[2]))
        self.broker.start()

    def cut(self) -> None:
        self._proxy.close()

    def mend(self) -> None:
        self._proxy.listen()

    def stop(self) -> None:
        self._proxy.end()
        self.broker.stop()


@pytest.fixture(scope="session")
def _own_kafka() -> Iterator[CuttableKafka]:
    kafka = CuttableKafka()
    try:
        kafka.start()
    except (BrokerError, MissingPackageError) as error:
        kafka.stop()
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    yield kafka
    kafka.stop()


@pytest.fixture
def cuttable_kafka(_own_kafka: CuttableKafka) -> Iterator[CuttableKafka]:
    """A real Kafka, started once for each worker, that a test may cut off or freeze; it is whole again afterwards."""
    yield _own_kafka
    _own_kafka.broker.thaw()
    _own_kafka.cut()
    _own_kafka.mend()


@pytest.fixture
def read_topic(request: pytest.FixtureRequest, topic_name: Name) -> MakeTopic:
    """A factory of topics with a group that reads them: `read_topic(3)` has three partitions."""

    def make(partitions: int = 1, prefix: str = "test", *, on: At | None = None, **settings: str) -> ReadTopic:
        if on is None:
            kafka: Broker = request.getfixturevalue("kafka")
            return ReadTopic(kafka.bootstrap, request.getfixturevalue("topics")(partitions, prefix, **settings))
        name = topic_name(prefix)
        create_topics(on.bootstrap, {name: partitions})
        return ReadTopic(on.bootstrap, name)

    return make


@pytest.fixture
def mock_kafka(mock_kafka: MockKafka, monkeypatch: pytest.MonkeyPatch) -> MockKafka:
    """The mock cluster never says which ids topics have: sources ask for them when partitions come, and wait."""
    monkeypatch.setattr("connectors.kafka.client.queries._ATTEMPT", 0.5)
    return mock_kafka


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The compiled extension, where it was built; nothing is chosen by the environment."""
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)
    if reason := hotpath.why_not():
        pytest.skip(f"the compiled hot path: {reason}")
    extension = hotpath.choose().native
    assert extension is not None
    return extension
