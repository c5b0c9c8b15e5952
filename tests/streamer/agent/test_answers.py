"""Sinks that answer clients, and sinks that take the records of some sources only."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5
from waiting import until

import streamer
from connectors.memory.topic import memory_topic
from connectors.message import Message
from connectors.mqtt.endpoint.source import MqttEndpointSource
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import DefinitionError, StreamerError
from streamer import testing
from streamer.agent.decodedbatch import SOURCE_BITS
from streamer.agent.running import agent_of
from streamer.routing.sinkroute import Selection

ENDPOINT = {"type": "mqtt_endpoint", "listen": "127.0.0.1:0", "codec": "json"}
ANSWERS = {"type": "mqtt_endpoint", "codec": "json"}


def service_of(**fields: Any) -> streamer.Service:
    return streamer.loads(json.dumps({"name": uuid.uuid4().hex, "pipeline": [], **fields}))


def device(service: streamer.Service, client_id: str = "device", **options: Any) -> MqttClient:
    agent = agent_of(service)
    assert agent is not None
    source = next(one.source for one in agent._loop.intakes if isinstance(one.source, MqttEndpointSource))
    return MqttClient(*source.address, client_id, version=MQTTv5, **options)


def wait_for_the_end(service: streamer.Service) -> None:
    agent = agent_of(service)
    assert agent is not None
    agent.join(60)


def test_a_record_of_another_source_is_no_answer_though_its_key_is_a_clients_id() -> None:
    topic, results = memory_topic(uuid.uuid4().hex), memory_topic(uuid.uuid4().hex)
    service = service_of(
        source=[ENDPOINT, {"type": "memory", "topic": topic.name, "codec": "json"}],
        sink=[ANSWERS, {"type": "memory", "topic": results.name, "codec": "json"}],
        dead_letter={"type": "memory", "topic": f"{topic.name}.dead"},
    )
    with service, device(service) as client:
        topic.append(Message(b'{"x": 1}', b"device"))
        assert until(lambda: len(results.messages()) == 1)
        client.publish("ask/me", b'{"x": 2}', 1)
        (answer,) = client.take(1)
        assert json.loads(answer.payload) == {"x": 2}
        assert until(lambda: len(results.messages()) == 2)


def test_a_record_of_another_source_that_fails_is_told_to_no_client() -> None:
    topic = memory_topic(uuid.uuid4().hex)
    service = service_of(
        source=[ENDPOINT, {"type": "memory", "topic": topic.name, "codec": "json", "name": "machines"}],
        sink=ANSWERS,
        dead_letter={"type": "mqtt_endpoint"},
    )

    def talk() -> None:
        with service, device(service) as client:
            client.publish("ask/me", b"bad", 1)
            (answer,) = client.take(1)
            assert b"errorMessage" in answer.payload
            topic.append(Message(b"bad too", b"device"))
            wait_for_the_end(service)
            assert client.arrived() == []

    with pytest.raises(StreamerError, match='takes no records of the source "machines"'):
        talk()


@pytest.mark.parametrize("dead", ["answered", "memory", None])
def test_malformed_requests_of_a_client_never_stop_a_service_that_answers(dead: str | None) -> None:
    letters = memory_topic(uuid.uuid4().hex)
    given: dict[str, Any] = {"answered": {"type": "mqtt_endpoint"}, "memory": {"type": "memory", "topic": letters.name}}
    fields = {} if dead is None else {"dead_letter": given[dead]}
    service = service_of(source=ENDPOINT, sink=ANSWERS, errors={"stop_ratio": 0.5, "over": 20}, **fields)
    with service, device(service) as client:
        for _ in range(100):
            client.publish("ask/me", b"bad", 1)
        if dead != "memory":
            assert all(b"errorMessage" in one.payload for one in client.take(100))
        client.publish("ask/me", b'{"x": 1}', 1)
        (answer,) = client.take(1)
        assert json.loads(answer.payload) == {"x": 1}
        if dead == "memory":
            assert len(letters.messages()) == 100


def test_failures_of_other_sources_still_stop_a_service_that_answers() -> None:
    topic = memory_topic(uuid.uuid4().hex)
    service = service_of(
        source=[ENDPOINT, {"type": "memory", "topic": topic.name, "codec": "json"}],
        sink=ANSWERS,
        dead_letter={"type": "memory", "topic": f"{topic.name}.dead"},
        errors={"stop_ratio": 0.5, "over": 20},
    )

    def talk() -> None:
        with service, device(service) as client:
            for _ in range(100):
                client.publish("ask/me", b'{"x": 1}', 1)
            client.take(100)
            for _ in range(20):
                topic.append(Message(b"bad", None))
            wait_for_the_end(service)

    with pytest.raises(StreamerError, match="records failed in decode"):
        talk()


def test_answers_to_clients_do_not_hide_that_the_records_of_another_source_fail() -> None:
    topic = memory_topic(uuid.uuid4().hex)
    service = service_of(
        source=[ENDPOINT, {"type": "memory", "topic": topic.name, "codec": "json"}],
        sink=ANSWERS,
        dead_letter={"type": "memory", "topic": f"{topic.name}.dead"},
        errors={"stop_ratio": 0.5, "over": 20, "first": 0},
    )

    def talk() -> None:
        with service, device(service) as client:
            for _ in range(19):
                topic.append(Message(b"bad", None))
                for _ in range(4):
                    client.publish("ask/me", b'{"x": 1}', 1)
                client.take(4)
            topic.append(Message(b"bad", None))
            wait_for_the_end(service)

    with pytest.raises(StreamerError, match="20 of the last 20 records failed in decode"):
        talk()


@pytest.mark.parametrize("file", [False, True])
def test_a_client_that_does_not_acknowledge_its_answer_holds_up_no_other(file: bool, tmp_path: Path) -> None:
    sinks = [ANSWERS, *([{"type": "file", "path": str(tmp_path / "out.jsonl"), "codec": "json"}] if file else [])]
    service = service_of(source=ENDPOINT, sink=sinks, dead_letter={"type": "mqtt_endpoint"})
    with service, device(service, "silent", manual=True) as silent:
        silent.publish("ask/silent", b'{"x": 0}', 0)
        (unacknowledged,) = silent.take(1)
        with device(service) as client:
            # Each PUBLISH waits for its PUBACK: the acknowledgement of the record.
            for number in range(20):
                client.publish("ask/me", b'{"x": %d}' % number, 1)
                (answer,) = client.take(1)
                assert json.loads(answer.payload) == {"x": number}
            # The silent client is still connected, and its answer unconfirmed.
            assert silent.ended.empty()
        silent.acknowledge(unacknowledged)


def test_a_client_that_takes_no_answers_leaves_room_for_those_of_others() -> None:
    """Its records fill limits.in_flight until it is disconnected, long before the timeout of its answers."""
    service = service_of(
        source=ENDPOINT,
        sink={**ANSWERS, "timeout": "1h"},
        limits={"in_flight": "1MiB"},
        batch={"max_bytes": "256KiB"},
    )
    large = json.dumps({"x": "x" * 100_000}).encode()
    with service, device(service, "silent", manual=True) as silent, device(service) as client:
        for _ in range(30):
            silent.publish("ask/silent", large, 0)
        client.publish("ask/me", large, 1)
        client.take(1)
        assert "Quota" in str(silent.ended.get(timeout=30))


def test_the_log_of_a_service_stays_short_however_often_clients_connect(caplog: pytest.LogCaptureFixture) -> None:
    service = service_of(source=ENDPOINT, sink=ANSWERS)
    with service:
        for number in range(50):
            with device(service) as client:
                client.publish("ask/me", b'{"x": %d}' % number, 1)
                client.take(1)
    assert len([one for one in caplog.records if "lanes ended" in one.getMessage()]) < 10


def test_a_sink_with_sources_gets_the_results_of_their_records_only() -> None:
    service = service_of(
        source=[{"type": "memory", "topic": one, "name": one, "codec": "json"} for one in ("pumps", "fans")],
        sink=[
            {"type": "memory", "topic": "all", "name": "all", "codec": "json"},
            {"type": "memory", "topic": "some", "name": "some", "codec": "json", "sources": "fans"},
        ],
    )
    report = testing.run(service, {"pumps": [{"x": 1}, {"x": 2}], "fans": [{"x": 3}]})
    assert sorted(one["x"] for one in report.decoded["all"] if one is not None) == [1, 2, 3]
    assert [one["x"] for one in report.decoded["some"] if one is not None] == [3]
    assert report.acknowledged == 3


def test_a_source_that_there_is_not_is_named_with_the_nearest() -> None:
    for part in ("sink", "dead_letter"):
        fields = {
            "source": {"type": "memory", "topic": "t", "name": "pumps"},
            "sink": {"type": "memory", "topic": "a"},
            part: {"type": "memory", "topic": "b", "sources": ["pump"]},
        }
        with pytest.raises(DefinitionError, match=f'{part}.*the service has no source "pump"; did you mean "pumps"'):
            service_of(**fields)


def test_an_answering_sink_names_no_source_but_its_own() -> None:
    with pytest.raises(DefinitionError, match="leave out sources"):
        service_of(
            source=[ENDPOINT, {"type": "memory", "topic": "t", "name": "pumps"}], sink={**ANSWERS, "sources": "pumps"}
        )


def test_a_result_of_several_records_goes_to_a_sink_with_sources_if_all_are_of_these() -> None:
    first, second = 0, 1 << SOURCE_BITS
    batch = Batch.of([Data({"x": number}) for number in range(4)])
    rows = np.array([first, first + 1, first + 2, second, second + 1], np.int64)
    windows = Batch(batch.columns, 4, rows=rows, splits=np.array([0, 2, 4, 5, 5], np.int64))
    chosen = [Selection("s", sources=frozenset(one)).apply(windows).batch for one in ({0}, {1}, {0, 1})]
    assert [[int(x) for x in one.column("x").values()] for one in chosen] == [[0], [2], [0, 1, 2]]
