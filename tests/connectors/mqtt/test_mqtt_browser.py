"""`tap`, `send`, `replay` and `check` on a broker: retained and new messages, and errors for positions."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from faultymqtt import FaultyMqtt

from connectors.browser import Browser
from connectors.message import Message, block_of, messages_of_records
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.protocol.reasons import ReasonCode
from pipelines.errors import ConnectorError, DefinitionError
from streamer.cli.options import bus


@pytest.fixture
def broker() -> Iterator[FaultyMqtt]:
    """Our own broker."""
    broker = FaultyMqtt()
    with broker:
        yield broker


def at(broker: FaultyMqtt) -> Browser:
    """The broker as the command line finds it."""
    return bus(f"mqtt://127.0.0.1:{broker.port}", None)


def config(broker: FaultyMqtt, **fields: object) -> MqttSourceConfig:
    usual = {"url": f"mqtt://127.0.0.1:{broker.port}", "topics": "factory/{line}/#", "client_id": "factory-1"}
    return MqttSourceConfig.model_validate({**usual, **fields})


def test_a_topic_shows_what_is_retained_and_what_comes_from_now_on(broker: FaultyMqtt) -> None:
    broker.publish("factory/a", b"gone")
    broker.publish("factory/b", b"kept", retain=True)
    with at(broker).reader("factory/#", "streamer-tap") as reader:
        reader.begin(reader.starts("latest"))
        first = reader.poll(10.0)
        broker.publish("factory/a", b"new")
        second = reader.poll(10.0)
        assert not reader.at_end
    assert [(one.topic, one.value) for one in messages_of_records(first)] == [("factory/b", b"kept")]
    assert [(one.topic, one.value) for one in messages_of_records(second)] == [("factory/a", b"new")]
    assert broker.ask(lambda inside: list(inside.sessions)) == [], "it left a session behind"


def test_a_topic_has_no_beginning_and_nobody_commits(broker: FaultyMqtt) -> None:
    with at(broker).reader("factory/#", "streamer-tap") as reader:
        for ask in (lambda: reader.starts("earliest"), lambda: reader.starts(0), reader.committed, reader.range):
            with pytest.raises(ConnectorError, match="no beginning"):
                ask()


def test_a_message_of_the_browsers_sink_arrives_at_its_reader(broker: FaultyMqtt) -> None:
    browser = at(broker)
    assert browser.topics() == {}
    assert not browser.lists_topics
    with browser.reader("factory/#", "streamer-tap") as reader:
        sink = browser.sink("factory/a", "send")
        sink.open()
        assert sink.send(block_of([Message(b"1")]), time.monotonic() + 30) == {}
        assert sink.barrier(time.monotonic() + 30) == {}
        sink.close()
        assert [one.value for one in messages_of_records(reader.poll(10.0))] == [b"1"]


def test_a_wrong_topic_or_field_is_told_in_one_line() -> None:
    """`streamer send 'a/#' ...`, `streamer tap 'a/#/b'`, `-X user=me`."""
    found = bus("mqtt://127.0.0.1:1", None)
    with pytest.raises(DefinitionError, match=r'^topic: nothing can be published to "a/#": a topic name holds no wild'):
        found.sink("a/#", "send")
    with pytest.raises(DefinitionError, match=r'^topic: "a/\{device\}": write a text in place of \{device\}$'):
        found.sink("a/{device}", "send")
    with pytest.raises(DefinitionError, match=r"^topics: topic 'a/#/b': the wildcard # must be the whole last level$"):
        found.reader("a/#/b", "tap")
    with pytest.raises(DefinitionError, match=r'^usrname: no such field; did you mean "username"'):
        bus("mqtt://127.0.0.1:1", ["usrname=me"])


@pytest.mark.slow
def test_a_broker_that_is_not_there_is_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.mqtt.browser._WAIT", 0.2)
    with pytest.raises(ConnectorError, match="does not answer") as raised:
        bus("mqtt://127.0.0.1:1", None).topics()
    assert raised.value.retriable


def test_a_wrong_address_or_property_is_told() -> None:
    with pytest.raises(DefinitionError, match="WebSocket"):
        bus("ws://localhost", None)
    with pytest.raises(DefinitionError, match="usrname"):
        bus("mqtt://localhost", ["usrname=ann"])


def test_a_check_says_what_the_broker_grants_and_disturbs_nobody(broker: FaultyMqtt) -> None:
    running = config(broker).build()
    running.open()
    found = config(broker, share="group").browser()
    assert found is not None
    said = found.checked(())
    assert said is not None
    assert "MQTT 5.0" in said
    assert "$share/group/factory/+/# at QoS 1" in said
    assert "session kept 3600 s" in said
    assert "shard does" in said
    assert broker.clients == {"factory-1"}
    assert broker.ask(lambda inside: list(inside.sessions)) == ["factory-1"]
    running.close()


def test_a_check_fails_for_what_the_broker_refuses(broker: FaultyMqtt) -> None:
    broker.faults.grant = lambda asked, qos: ReasonCode.NOT_AUTHORIZED
    found = config(broker).browser()
    assert found is not None
    with pytest.raises(ConnectorError, match="refuses the topic filter"):
        found.checked(())
