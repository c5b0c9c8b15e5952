"""Keys and headers of producers in other languages become values, and pass on as they came."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable

import pytest
from kafkatopics import read, write
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5

import streamer
from connectors.message import Message
from streamer.delivery.deadletter import original
from streamer.devbroker import Broker
from streamer.devbroker.mqtt import MqttBroker


def long(number: int) -> bytes:
    """As Kafka's LongSerializer writes it."""
    return struct.pack(">q", number)


@pytest.mark.slow
@pytest.mark.parametrize("hot_path", ["auto", "python"])
def test_keys_and_headers_of_javas_serializers_become_values_and_results_keep_them(
    kafka: Broker, topics: Callable[..., str], hot_path: str
) -> None:
    source, out, dead = topics(1), topics(1), topics(1)
    service = streamer.loads(f"""
name: {source}
hot_path: {hot_path}
source:
  type: kafka
  bootstrap: {kafka.bootstrap}
  topics: {source}
  codec: json
  key: long
  headers: {{seq: int, run: uuid}}
  into: {{key: machine, headers.seq: seq, headers.run: run}}
pipeline: []
sink: {{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {out}, codec: json}}
dead_letter: {{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {dead}}}
""")
    run = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")
    rows = [(long(number - 2), [("seq", struct.pack(">i", number)), ("run", str(run).encode())]) for number in range(5)]
    rows[3] = (b"three", rows[3][1])
    rows[4] = (rows[4][0], [("seq", b"4"), ("run", run.bytes)])
    for key, headers in rows:
        write(kafka.bootstrap, source, [b'{"temp":1.50}'], key=key, headers=headers)
    with service:
        results, letters = read(kafka.bootstrap, out, 3), read(kafka.bootstrap, dead, 2)
    expected = [{"temp": 1.5, "machine": number - 2, "seq": number, "run": str(run)} for number in range(3)]
    assert [json.loads(one.value) for one in results] == expected
    assert [one.value[:12] for one in results] == [b'{"temp":1.50'] * 3
    assert [(one.key, list(one.headers)) for one in results] == rows[:3]
    assert [one.key for one in letters] == [rows[3][0], rows[4][0]]
    for letter, what in zip(letters, ("the key is no long", 'the header "seq" is no int'), strict=True):
        origin = original(letter.headers)
        assert origin is not None
        assert origin.step == "decode"
        assert what in origin.text
        assert letter.value == b'{"temp":1.50}'


@pytest.mark.slow
def test_user_properties_of_mqtt_have_types(mqtt_broker: MqttBroker, tmp_path_factory: pytest.TempPathFactory) -> None:
    name = tmp_path_factory.mktemp("typed").name
    service = streamer.loads(f"""
name: {name}
source:
  type: mqtt
  url: {mqtt_broker.url}
  topics: {name}/in
  codec: json
  headers: {{run: uuid, seq: integer}}
  into: {{headers.run: run, headers.seq: seq}}
pipeline: []
sink: {{type: mqtt, url: "{mqtt_broker.url}", topic: {name}/out, codec: json}}
dead_letter: {{type: mqtt, url: "{mqtt_broker.url}", topic: {name}/dead}}
""")
    run = "123E4567-e89b-12d3-a456-426614174000"
    # Its session is there, so that what is published before it has subscribed waits for it.
    with MqttClient(mqtt_broker.host, mqtt_broker.port, f"{name}-mqtt", version=MQTTv5, clean=False) as session:
        session.subscribe(f"{name}/in", 1)
    with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as client:
        client.subscribe(f"{name}/out", 1)
        client.subscribe(f"{name}/dead", 1)
        with service:
            client.publish(f"{name}/in", b"{}", 1, UserProperty=[("run", run), ("seq", "17")])
            client.publish(f"{name}/in", b"{}", 1, UserProperty=[("run", "first")])
            messages = {message.topic: message for message in client.take(2)}
    assert json.loads(messages[f"{name}/out"].payload) == {"run": run.lower(), "seq": 17}
    assert messages[f"{name}/dead"].payload == b"{}"


def test_the_key_that_a_function_sees_is_that_of_the_bus() -> None:
    service = streamer.loads("""
source: {type: kafka, topics: in, codec: json, key: long, into: {key: id}}
pipeline: []
sink: {type: kafka, topic: "out.{id}", topics: ["^out[.]"], codec: json}
dead_letter: {type: kafka, topic: dead}
""")
    report = streamer.testing.run(service, [Message(b"{}", key=long(7)), Message(b"{}"), Message(None, key=b"gone")])
    sent = report.sinks["kafka"]
    assert [(message.topic, message.key, message.value) for message in sent[:1]] == [("out.7", long(7), b'{"id":7}')]
    # No key, no value; and nothing reads the key of a record without a payload.
    assert [letter.message.value for letter in report.dead] == [b"{}", None]


@pytest.mark.parametrize("hot_path", ["auto", "python"])
def test_a_condition_may_ask_about_values_of_keys(hot_path: str) -> None:
    service = streamer.loads(f"""
hot_path: {hot_path}
source: {{type: kafka, topics: in, codec: json, key: {{type: json}}, into: {{key.id: id}}, where: {{id: {{gt: 1}}}}}}
pipeline: []
sink: {{type: kafka, topic: out, codec: json}}
dead_letter: {{type: kafka, topic: dead}}
""")
    records = [Message(b"{}", key=b'{"id":%d}' % number) for number in range(4)]
    report = streamer.testing.run(
        service, [*records, Message(b"{}", key=b"1"), Message(b"no json", key=records[0].key)]
    )
    assert [message.value for message in report.sinks["kafka"]] == [b'{"id":2}', b'{"id":3}']
    assert [letter.message.value for letter in report.dead] == [b"{}", b"no json"]
    assert report.summary.passed == 2


def test_a_condition_on_a_typed_key_is_asked_before_payloads_are_decoded() -> None:
    service = streamer.loads("""
source: {type: kafka, topics: in, codec: json, key: long, into: {key: id}, where: {id: {gt: 1}}}
pipeline: []
sink: {type: kafka, topic: out, codec: json}
dead_letter: {type: kafka, topic: dead}
""")
    records = [Message(b"no json", key=long(1)), Message(b"{}", key=long(2)), Message(b"{}", key=b"two")]
    report = streamer.testing.run(service, records)
    assert [message.value for message in report.sinks["kafka"]] == [b'{"id":2}']
    assert [(letter.message.key, letter.origin.step) for letter in report.dead] == [(b"two", "decode")]
