"""Services between MQTT and Kafka, on a real mosquitto and a real Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafkatopics import read
from mqttbrokers import MqttUnderTest, StartMqtt, publish
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5
from waiting import PATIENCE, until

import streamer
from streamer.agent.agent import Agent
from streamer.delivery.deadletter import original
from streamer.devbroker import Broker, LocalKafka, create_topics
from streamer.devbroker.mqtt import LocalMosquitto, MqttBroker

pytestmark = pytest.mark.slow

POISON = b'{"device": "press-1", "seq": '


def payload(number: int) -> bytes:
    return b'{"device":"press-%d","seq":%d}' % (number % 3, number)


def test_messages_go_from_mqtt_to_kafka_and_a_poisoned_one_to_the_dead_letter(
    kafka: Broker, topics: Callable[..., str], mqtt_broker: MqttBroker, tmp_path: Path
) -> None:
    name = tmp_path.name
    out, dead = topics(1, "mqtt-out"), topics(1, "mqtt-dead")
    service = streamer.loads(f"""
name: {name}
source:
  type: mqtt
  url: {mqtt_broker.url}
  topics: "{name}/{{line}}/{{device}}"
  codec: json
  key: device
  into: {{levels.line: line}}
pipeline: []
batch: {{max_records: 64}}
sink: {{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {out}, codec: json}}
dead_letter: {{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {dead}}}
""")
    # Its session is there, so that what is published before it has subscribed waits for it.
    with MqttClient(mqtt_broker.host, mqtt_broker.port, f"{name}-mqtt", version=MQTTv5, clean=False) as session:
        session.subscribe(f"{name}/+/+", 1)
    with service, MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as client:
        for number in range(300):
            client.client.publish(f"{name}/a/press-{number % 3}", POISON if number == 150 else payload(number), 1)
        client.publish(f"{name}/a/press-0", payload(300), 1)
        results = read(kafka.bootstrap, out, 300)
        letters = read(kafka.bootstrap, dead, 1)
    found = [json.loads(one.value) for one in results]
    assert sorted(one["seq"] for one in found) == [number for number in range(301) if number != 150]
    assert {one["line"] for one in found} == {"a"}
    assert {one.key for one in results} == {b"press-0", b"press-1", b"press-2"}
    assert [one.value for one in letters] == [POISON]
    origin = original(letters[0].headers)
    assert origin is not None
    assert (origin.topic, origin.step) == (f"{name}/a/press-0", "decode")
    # The poisoned one, too, is acknowledged: nothing is left in the session.
    with MqttClient(mqtt_broker.host, mqtt_broker.port, f"{name}-mqtt", version=MQTTv5, clean=False) as again:
        assert again.session_present
        assert again.nothing()


def test_records_go_from_kafka_to_mqtt_and_a_poisoned_one_to_the_dead_letter(
    kafka: Broker, topics: Callable[..., str], mqtt_broker: MqttBroker, tmp_path: Path
) -> None:
    name = tmp_path.name
    source = topics(1, "mqtt-in")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(301):
        producer.produce(source, POISON if number == 150 else payload(number), b"press-%d" % (number % 3))
    assert producer.flush(60) == 0
    text = f"""
name: {name}
source: {{type: kafka, bootstrap: "{kafka.bootstrap}", topics: {source}, group: {source}, codec: json}}
pipeline: []
batch: {{max_records: 64}}
sink:
  type: mqtt
  url: {mqtt_broker.url}
  topic: "{name}/out/{{device}}"
  topics: ["^{name}/out/press-[0-9]$"]
  codec: json
dead_letter: {{type: mqtt, url: "{mqtt_broker.url}", topic: {name}/dead}}
"""
    with MqttClient(mqtt_broker.host, mqtt_broker.port, version=MQTTv5) as reader:
        reader.subscribe(f"{name}/#", 1)
        with streamer.loads(text):
            found = reader.take(301)
            assert reader.nothing()
    dead = [one for one in found if one.topic == f"{name}/dead"]
    assert [bytes(one.payload) for one in dead] == [POISON]
    results = [(one.topic, json.loads(one.payload)) for one in found if one.topic != f"{name}/dead"]
    for device in range(3):
        numbers = [one["seq"] for topic, one in results if topic == f"{name}/out/press-{device}"]
        assert numbers == [number for number in range(device, 301, 3) if number != 150]
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": source})
    (committed,) = consumer.committed([TopicPartition(source, 0)], 60)
    consumer.close()
    assert committed.offset == 301


def test_nothing_is_acknowledged_while_kafka_is_away_and_nothing_is_lost(
    start_kafka: Callable[..., LocalKafka], start_mosquitto: Callable[..., LocalMosquitto]
) -> None:
    kafka_is_away(start_kafka(), start_mosquitto(), 5)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_nothing_is_lost_when_kafka_is_away_for_a_minute(
    start_kafka: Callable[..., LocalKafka], start_mqtt: StartMqtt
) -> None:
    kafka_is_away(start_kafka(), start_mqtt(window=100), 60)


def kafka_is_away(kafka: LocalKafka, broker: MqttUnderTest, seconds: float) -> None:
    """500 messages come while Kafka is frozen."""
    out = "away-out"
    create_topics(kafka.bootstrap, {out: 1})
    service = streamer.loads(f"""
name: away
source: {{type: mqtt, url: "{broker.url}", topics: away, codec: json, window: 100, keepalive: 1}}
pipeline: []
batch: {{max_records: 20}}
sink: {{type: kafka, bootstrap: "{kafka.bootstrap}", topic: {out}, codec: json}}
""")
    agent = Agent(service)
    agent.start()
    try:
        source: Any = agent._assembly.sources[0][2]
        assert until(lambda: source.connected)
        publish(broker, "away", payload(0))
        assert until(lambda: source.counts.acknowledged == 1)
        kafka.freeze()
        publish(broker, "away", *(payload(number) for number in range(1, 501)))
        assert until(lambda: source.counts.received >= 100)
        before = psutil.Process().memory_info().rss
        time.sleep(seconds)
        assert psutil.Process().memory_info().rss - before < 50 << 20
        assert source.counts.acknowledged == 1
        assert agent.live() is None
        kafka.thaw()
        assert until(lambda: source.counts.acknowledged == 501, seconds=PATIENCE + seconds)
        assert source.counts.duplicates == 0, "the connection was not kept alive"
    finally:
        kafka.thaw()
        agent.stop()
        summary = agent.join(60)
    assert summary.error is None
    found = [json.loads(one.value)["seq"] for one in read(kafka.bootstrap, out, 501)]
    assert list(dict.fromkeys(found)) == list(range(501))
