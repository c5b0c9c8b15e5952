"""`tap`, `send` and `replay` on an MQTT broker, as somebody types them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from faultymqtt import FaultyMqtt
from mqttclient import MqttClient, until
from paho.mqtt.client import MQTTv5

from streamer.devbroker import MockKafka

pytestmark = pytest.mark.slow


@pytest.fixture
def broker() -> Iterator[FaultyMqtt]:
    """Our own broker."""
    with FaultyMqtt() as broker:
        yield broker


def tapped(cli: Any, broker: FaultyMqtt, *arguments: str) -> str:
    """What `tap` shows of one message with every property."""
    ended: list[Any] = []

    def tap() -> None:
        ended.append(cli("tap", "press/#", "-b", broker.url, "--codec", "json", "--count", "1", *arguments))

    thread = threading.Thread(target=tap)
    thread.start()
    # What was retained may have been enough for it.
    assert until(lambda: not thread.is_alive() or any(name.startswith("streamer-tap") for name in broker.clients))
    with MqttClient(broker.host, broker.port, version=MQTTv5) as client:
        while thread.is_alive():
            client.publish(
                "press/7",
                b'{"x": 1}',
                1,
                retain=True,
                ContentType="application/json",
                ResponseTopic="answers/7",
                CorrelationData=b"\x00\xff",
                UserProperty=[("trace", "abc")],
            )
            thread.join(0.2)
    assert ended[0].code == 0, ended[0].err
    out: str = ended[0].out
    return out


def test_tap_shows_what_a_message_says_besides_its_payload(cli: Any, broker: FaultyMqtt) -> None:
    (found,) = [json.loads(line) for line in tapped(cli, broker, "--json").splitlines()]
    assert found["record"] == {
        "qos": 0,
        "retained": found["record"]["retained"],
        "duplicate": False,
        "content_type": "application/json",
        "response_topic": "answers/7",
        "correlation": "00 ff",
    }
    assert found["headers"] == [["trace", "abc"]]
    out = tapped(cli, broker)
    assert "content_type=application/json  response_topic=answers/7  correlation=00 ff" in out
    assert "duplicate" not in out


def test_what_is_sent_is_tapped(cli: Any, broker: FaultyMqtt, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"x": 1}')
    with MqttClient(broker.host, broker.port) as client:
        client.subscribe("press/7", 1)
        ended = cli("send", "press/7", tmp_path / "one.json", "-b", broker.url, "--codec", "json")
        assert ended.code == 0, ended.err
        (message,) = client.take(1)
    assert json.loads(message.payload) == {"x": 1}


SERVICE = """
name: edge
source: {{type: mqtt, url: "{url}", topics: "press/{{device}}", codec: json}}
pipeline: []
sink: {{type: mqtt, topic: scores, codec: json}}
dead_letter: {{type: kafka, bootstrap: "{bootstrap}", topic: dead}}
"""


def test_dead_letters_on_kafka_go_back_to_the_mqtt_topics_that_they_came_from(
    cli: Any, broker: FaultyMqtt, mock_kafka: MockKafka, tmp_path: Path
) -> None:
    """To no other than those that the source reads; user properties and payload as they came, and once."""
    producer = Producer({"bootstrap.servers": mock_kafka.bootstrap})
    for topic, payload in (("press/7", b"bad"), ("other/7", b"forged"), ("press/8", b"worse")):
        headers: list[tuple[str, str | bytes | None]] = [
            ("streamer-record", json.dumps({"qos": 1, "correlation": {"base64": "AP8="}}).encode()),
            ("streamer-topic", topic.encode()),
            ("streamer-partition", b"0"),
            ("streamer-offset", b"3"),
            ("streamer-step", b"decode"),
            ("streamer-error", b"WireError"),
            ("trace", b"abc"),
        ]
        producer.produce("dead", payload, headers=headers)
    assert producer.flush(60) == 0
    file = tmp_path / "edge.yaml"
    file.write_text(SERVICE.format(url=broker.url, bootstrap=mock_kafka.bootstrap))
    with MqttClient(broker.host, broker.port, version=MQTTv5) as client:
        client.subscribe("#", 1)
        ended = cli("replay", file, "--json")
        assert ended.code == 1, "one of them was not allowed"
        report = json.loads(ended.out)
        assert (report["sent"], list(report["failed"].values())) == (2, [1])
        found = {one.topic: one for one in client.take(2)}
        assert {topic: one.payload for topic, one in found.items()} == {"press/7": b"bad", "press/8": b"worse"}
        assert found["press/7"].properties.UserProperty == [("trace", "abc")]  # type: ignore[union-attr]
        assert json.loads(cli("replay", file, "--json").out)["sent"] == 0
        assert client.nothing()
    shown = cli("tap", "dead", "-b", mock_kafka.bootstrap, "--from", "earliest", "--codec", "raw", "--json", "-n", "3")
    letters = [json.loads(line)["dead_letter"] for line in shown.out.splitlines()]
    assert [one["record"] for one in letters] == [{"qos": 1, "correlation": "00 ff"}] * 3
