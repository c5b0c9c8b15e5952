"""MQTT sinks on a mosquitto that is killed, frozen and restarted, and in whole services."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from cuttable import CuttablePort
from mqttbrokers import StartMosquitto, stored
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5

import streamer
from connectors.backoff import Backoff
from connectors.memory import Message, memory_topic
from connectors.message import block_of
from connectors.mqtt.sink import MqttSink
from connectors.mqtt.sinkconfig import MqttSinkConfig
from pipelines import Data
from streamer.devbroker.mqtt import MqttBroker


def sink_to(url: str, **fields: Any) -> MqttSink:
    return MqttSink(MqttSinkConfig(url=url, **{"topic": "out", "client_id": "sink", **fields}))


def send(sink: MqttSink, start: int, stop: int, topics: int = 1) -> None:
    messages = [Message(b"%d" % number, topic=f"out/{number % topics}") for number in range(start, stop)]
    assert sink.send(block_of(messages, start), time.monotonic() + 60) == {}


def confirmed(sink: MqttSink) -> list[int]:
    return [row for rows in sink.confirmed() for row in rows.tolist()]


def firsts(values: list[int]) -> list[int]:
    return list(dict.fromkeys(values))


@pytest.mark.slow
@pytest.mark.parametrize(("qos", "version"), [(1, "5"), (2, "5"), (1, "3.1.1"), (0, "5")])
def test_nothing_is_lost_and_order_is_kept_through_many_cuts(mqtt_broker: MqttBroker, qos: int, version: str) -> None:
    draw = random.Random(qos)
    name = f"cuts-{qos}-{version}"
    with (
        MqttClient(mqtt_broker.host, mqtt_broker.port, name, version=MQTTv5) as reader,
        CuttablePort(mqtt_broker.port) as port,
    ):
        reader.subscribe(f"{name}/#", 1)
        sink = sink_to(f"mqtt://127.0.0.1:{port.port}", qos=qos, version=version, client_id=f"{name}-sink")
        sink.open()
        sent = 0
        for _ in range(6):
            for _ in range(draw.randrange(5, 30)):
                count = draw.randrange(1, 60)
                block = [Message(b"%d" % n, topic=f"{name}/{n % 3}") for n in range(sent, sent + count)]
                assert sink.send(block_of(block, sent), time.monotonic() + 60) == {}
                sent += count
                time.sleep(draw.choice([0, 0, 0.002]))
            port.cut()
            port.mend()
        assert sink.barrier(time.monotonic() + 60) == {}
        assert sorted(confirmed(sink)) == list(range(sent))
        sink.close()
        arrived: list[tuple[str, int]] = []
        deadline = time.monotonic() + 30
        while len({number for _, number in arrived}) < sent and time.monotonic() < deadline:
            arrived += [(one.topic, int(one.payload)) for one in reader.listen(0.1)]
        for topic in range(3):
            found = firsts([number for name_, number in arrived if name_ == f"{name}/{topic}"])
            assert found == list(range(topic, sent, 3))


@pytest.mark.slow
def test_a_broker_that_is_killed_and_started_again_gets_what_it_had_not_confirmed(
    start_mosquitto: StartMosquitto, tmp_path: Path
) -> None:
    broker = start_mosquitto(tmp_path / "data")
    with MqttClient(broker.host, broker.port, "reader", clean=False, expiry=600, version=MQTTv5) as reader:
        reader.subscribe("out/#", 1)
    sink = sink_to(broker.url)
    sink.open()
    send(sink, 0, 500)
    assert sink.barrier(time.monotonic() + 30) == {}
    stored(broker)
    broker.kill()
    send(sink, 500, 1000)
    deadline = time.monotonic() + 20
    while sink.down() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sink.down()
    broker.restart()
    assert sink.barrier(time.monotonic() + 60) == {}
    assert sink.down() is None
    sink.close()
    with MqttClient(broker.host, broker.port, "reader", clean=False, expiry=600, version=MQTTv5) as reader:
        arrived: set[int] = set()
        deadline = time.monotonic() + 30
        while len(arrived) < 1000 and time.monotonic() < deadline:
            arrived |= {int(one.payload) for one in reader.arrived()}
            time.sleep(0.02)
    assert arrived == set(range(1000))


@pytest.mark.slow
def test_a_broker_that_is_frozen_is_found_out_and_gets_the_rest_when_it_goes_on(
    start_mosquitto: StartMosquitto,
) -> None:
    broker = start_mosquitto()
    sink = sink_to(broker.url, keepalive=1)
    sink.open()
    broker.freeze()
    send(sink, 0, 10)
    deadline = time.monotonic() + 20
    while sink.down() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sink.down()
    broker.thaw()
    assert sink.barrier(time.monotonic() + 60) == {}
    assert sorted(confirmed(sink)) == list(range(10))
    sink.close()


def test_a_message_larger_than_mosquitto_takes_is_refused_alone(start_mosquitto: StartMosquitto) -> None:
    broker = start_mosquitto(max_packet_size="1000")
    sink = sink_to(broker.url)
    sink.open()
    refused = sink.send(block_of([Message(b"a"), Message(bytes(2000)), Message(b"b")]), time.monotonic() + 10)
    assert list(refused) == [1]
    assert "max_packet_size" in str(refused[1])
    assert sink.barrier(time.monotonic() + 30) == {}
    assert sorted(confirmed(sink)) == [0, 2]
    sink.close()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_at_which_mosquitto_ends_the_connection_is_lost_alone_and_the_others_go_on(
    start_mosquitto: StartMosquitto, monkeypatch: pytest.MonkeyPatch, qos: int
) -> None:
    monkeypatch.setattr(Backoff, "wait", lambda backoff: 0.01)
    broker = start_mosquitto(max_packet_size="1000")
    sink = sink_to(broker.url, version="3.1.1", qos=qos)
    sink.open()
    values = [b"a", b"b", bytes(2000), b"c", b"d"]
    assert sink.send(block_of([Message(value) for value in values]), time.monotonic() + 10) == {}
    lost = sink.barrier(time.monotonic() + 120)
    assert list(lost) == [2]
    assert "this message of 2020 bytes" in str(lost[2])
    assert "too large (mosquitto: max_packet_size)" in str(lost[2])
    assert sorted(confirmed(sink)) == [0, 1, 3, 4]
    assert sink.send(block_of([Message(b"e")], 5), time.monotonic() + 10) == {}
    assert sink.barrier(time.monotonic() + 30) == {}
    sink.close()


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_what_mosquitto_would_end_the_connection_for_is_refused_at_once_and_the_others_go_on(
    mqtt_broker: MqttBroker, version: str
) -> None:
    sink = sink_to(mqtt_broker.url, version=version)
    sink.open()
    odd = [
        Message(b"0", topic="shunned/a\x01b"),
        Message(b"1", topic="shunned/\ufdd0"),
        Message(b"2", topic="shunned/good"),
        Message(b"3", topic="shunned/good", headers=(("why", b"line 1\nline 2"),)),
        Message(b"4", topic="shunned/good", headers=(("a\x7f", b"x"), ("good", b"\xc3\xa4"))),
        Message(b"5", topic="shunned/good", headers=(("good", b"\xc3\xa4"),)),
    ]
    refused = sink.send(block_of(odd), time.monotonic() + 60)
    # MQTT 3.1.1 has no headers.
    assert sorted(refused) == ([0, 1, 3, 4] if version == "5" else [0, 1])
    assert "a control character (U+0001), for which brokers close the connection" in str(refused[0])
    assert "a noncharacter (U+FDD0)" in str(refused[1])
    if version == "5":
        assert "the header 'why': it holds a control character (U+000A)" in str(refused[3])
    assert sink.barrier(time.monotonic() + 60) == {}
    sink.close()


def test_an_error_of_several_lines_reaches_the_dead_letters(mqtt_broker: MqttBroker) -> None:
    sink = sink_to(mqtt_broker.url, topic="letters/lines", dead_letters=True)
    sink.open()
    with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as client:
        client.subscribe("letters/lines", 1)
        letter = Message(b"record", headers=(("streamer-text", b"line 1\nline 2"), ("own", b"a")))
        assert sink.send(block_of([letter]), time.monotonic() + 60) == {}
        assert sink.barrier(time.monotonic() + 60) == {}
        (message,) = client.take(1)
    assert message.payload == b"record"
    said = dict(message.properties.json()["UserProperty"])  # type: ignore[union-attr]
    assert said == {"streamer-text": "line 1\ufffdline 2", "own": "a"}
    sink.close()


def test_a_topic_that_the_sink_may_not_write_to_is_lost_alone(start_mosquitto: StartMosquitto, tmp_path: Path) -> None:
    rights = tmp_path / "acl"
    rights.write_text("topic readwrite out/#\n")
    rights.chmod(0o700)
    broker = start_mosquitto(acl_file=str(rights))
    sink = sink_to(broker.url)
    sink.open()
    block = [Message(b"a", topic="out/1"), Message(b"b", topic="secret"), Message(b"c", topic="out/2")]
    assert sink.send(block_of(block), time.monotonic() + 10) == {}
    lost = sink.barrier(time.monotonic() + 30)
    assert list(lost) == [1]
    assert "not authorized" in str(lost[1])
    assert sorted(confirmed(sink)) == [0, 2]
    sink.close()


def test_a_service_writes_results_to_topics_made_from_values_and_dead_letters(
    mqtt_broker: MqttBroker, tmp_path: Path
) -> None:
    name = f"service-{tmp_path.name}"
    service = streamer.loads(f"""
name: {name}
source: {{type: memory, topic: {name}-in}}
pipeline: []
sink:
  type: mqtt
  url: {mqtt_broker.url}
  topic: "{name}/results/{{device}}"
  topics: ["^{name}/results/[a-z]+$"]
dead_letter: {{type: mqtt, url: "{mqtt_broker.url}", topic: {name}/dead}}
""")
    for number, device in enumerate(["pump", "fan", "../evil", "pump"]):
        memory_topic(f"{name}-in").append(Message(Data({"n": number, "device": device}).to_bytes(), b"key"))
    memory_topic(f"{name}-in").append(Message(b"\xff\xff no payload", b"bad"))
    memory_topic(f"{name}-in").end()
    with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as reader:
        reader.subscribe(f"{name}/#", 1)
        summary = service.run()
        assert summary.error is None
        found = reader.take(5)
    results = [
        (one.topic.rpartition("/")[2], Data.from_bytes(bytes(one.payload))["n"])
        for one in found
        if "/results/" in one.topic
    ]
    assert sorted(results) == [("fan", 1), ("pump", 0), ("pump", 3)]
    letters = [one for one in found if one.topic.endswith("/dead")]
    said = [dict(one.properties.json()["UserProperty"]) for one in letters]  # type: ignore[union-attr]
    assert sorted(one["streamer-step"] for one in said) == ["decode", "sink mqtt"]
    assert b"\xff\xff no payload" in [one.payload for one in letters]


def test_an_outbox_in_front_keeps_what_waits_for_the_broker(mqtt_broker: MqttBroker, tmp_path: Path) -> None:
    from connectors.outbox.wrapping import with_outbox

    name = f"kept-{tmp_path.name}"
    with (
        MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as reader,
        CuttablePort(mqtt_broker.port) as port,
    ):
        reader.subscribe(name, 1)
        config = MqttSinkConfig.model_validate(
            {
                "url": f"mqtt://127.0.0.1:{port.port}",
                "topic": name,
                "client_id": name,
                "outbox": {"path": tmp_path / "kept.outbox"},
            }
        )
        port.cut()
        first = with_outbox(config, config.build(), "service")
        first.open()
        sent = [Message(b"%d" % number, b"key", (("a", b"b"),)) for number in range(300)]
        assert first.send(block_of(sent), time.monotonic() + 10) == {}
        assert first.barrier(time.monotonic() + 10) == {}
        first.close()
        port.mend()
        second = with_outbox(config, config.build(), "service")
        second.open()
        found = reader.take(300)
        second.close()
    assert [int(one.payload) for one in found] == list(range(300))
    assert dict(found[0].properties.json()["UserProperty"]) == {"a": "b"}  # type: ignore[union-attr]


def test_a_request_is_answered_where_it_asks_if_that_is_allowed(mqtt_broker: MqttBroker, tmp_path: Path) -> None:
    name = f"asked-{tmp_path.name}"
    service = streamer.loads(f"""
name: {name}
source:
  type: mqtt
  url: {mqtt_broker.url}
  topics: {name}/requests
  into: {{correlation: correlation}}
pipeline: []
sink:
  type: mqtt
  url: {mqtt_broker.url}
  topic: "{{record.response_topic}}"
  topics: ["^{name}/answers/"]
  correlation: correlation
  drop: [correlation]
dead_letter: {{type: mqtt, url: "{mqtt_broker.url}", topic: {name}/dead}}
""")
    payload = Data({"n": 1}).to_bytes()
    with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as asking, service:
        asking.subscribe(f"{name}/answers/#", 1)
        asking.subscribe(f"{name}/secret", 1)
        asking.subscribe(f"{name}/dead", 1)
        for number, topic in enumerate(["answers/me", "secret"]):
            asking.publish(
                f"{name}/requests", payload, 1, ResponseTopic=f"{name}/{topic}", CorrelationData=b"request-%d" % number
            )
        asking.publish(f"{name}/requests", payload, 1)
        found = asking.take(3)
        assert asking.nothing(0.3)
    (answer,) = [one for one in found if one.topic == f"{name}/answers/me"]
    assert bytes.fromhex(answer.properties.json()["CorrelationData"]) == b"request-0"  # type: ignore[union-attr]
    assert sorted(one.topic for one in found) == [f"{name}/answers/me", f"{name}/dead", f"{name}/dead"]
