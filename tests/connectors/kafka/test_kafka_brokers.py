"""Where the brokers of connectors without `bootstrap` are, and what users are told about that."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from connectors.kafka.client.answers import topics_of
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from pipelines.errors import ConnectorError

VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"


def connectors(**fields: str) -> list[KafkaSourceConfig | KafkaSinkConfig]:
    return [KafkaSourceConfig(topics=("in",), group="g", **fields), KafkaSinkConfig(topic="out", **fields)]


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.kafka.client.answers.PATIENCE", 0.2)


def test_without_bootstrap_the_brokers_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "127.0.0.1:1")
    for config in connectors():
        assert config.brokers.address == "127.0.0.1:1"
        assert config.notes == (f"the brokers are 127.0.0.1:1 (of the environment variable {VARIABLE})",)
        with pytest.raises(ConnectorError, match=rf"127\.0\.0\.1:1 .*, of the environment .*is {VARIABLE} right\?"):
            topics_of(config)


@pytest.mark.parametrize("value", [None, "", " "])
def test_without_the_variable_too_they_are_on_this_machine(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    for config in connectors():
        assert config.brokers.address == "localhost:9092"
        (note,) = config.notes
        assert note.endswith(f"as neither bootstrap nor the environment variable {VARIABLE} is set)")


def test_bootstrap_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "other:1")
    for config in connectors(bootstrap="127.0.0.1:1"):
        assert config.brokers.address == "127.0.0.1:1"
        assert not config.notes
        with pytest.raises(ConnectorError, match=r"is bootstrap right\?") as raised:
            topics_of(config)
        assert VARIABLE not in str(raised.value)


def test_a_sink_without_bootstrap_goes_where_the_source_is_however_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "k:9092")
    sink = KafkaSinkConfig(topic="out")
    for named in ("mine:9092", None):
        source = KafkaSourceConfig(topics=("in",), bootstrap=named)
        found = sink.in_service("digits", [source])
        assert found.brokers == source.brokers
        # The note of the source says it.
        assert not found.notes
    assert sink.in_service("digits", []).brokers.address == "k:9092"


def test_brokers_named_in_two_ways_are_the_same_to_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "k:9092")
    first, named = KafkaSinkConfig(topic="a"), KafkaSinkConfig(topic="b", bootstrap="k:9092")
    assert named.differs_from(first) is None
    monkeypatch.setenv(VARIABLE, "other:9092")
    assert str(KafkaSinkConfig(topic="b").differs_from(first)).startswith("bootstrap must be the same")


def test_a_variable_that_is_no_address_is_named_where_it_would_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "kafka://k:9092")
    with pytest.raises(ValidationError, match=rf"{VARIABLE}: brokers are host:port, .*write k:9092; or set bootstrap"):
        KafkaSourceConfig(topics=("in",))
    assert KafkaSourceConfig(topics=("in",), bootstrap="k:1").brokers.address == "k:1"
