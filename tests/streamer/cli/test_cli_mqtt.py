"""`tap`, `send` and `replay` on an MQTT broker, as somebody types them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from faultymqtt import FaultyMqtt
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5
from waiting import until

import streamer
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


def test_the_end_of_a_topic_that_has_none_is_refused_at_once(cli: Any, broker: FaultyMqtt) -> None:
    result = cli("tap", "press/#", "-b", broker.url, "--end")
    assert result.code == 2
    assert "--end: a topic there has no end" in result.err
    assert "--count" in result.err


def test_a_field_that_is_a_number_can_be_set_for_a_command(cli: Any, broker: FaultyMqtt, tmp_path: Path) -> None:
    """`-X qos=0`, as `qos: ${QOS}` in a service file: a text."""
    records = tmp_path / "records.jsonl"
    records.write_text('{"x": 1}\n')
    result = cli("send", "press", str(records), "-b", broker.url, "--codec", "json", "-X", "qos=0")
    assert result.code == 0, result.err
    assert "1 record sent to press" in result.out + result.err


def test_a_json_file_that_is_sent_reaches_an_mqtt_subscriber(cli: Any, broker: FaultyMqtt, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"x": 1}')
    with MqttClient(broker.host, broker.port) as client:
        client.subscribe("press/7", 1)
        ended = cli("send", "press/7", tmp_path / "one.json", "-b", broker.url, "--codec", "json")
        assert ended.code == 0, ended.err
        (message,) = client.take(1)
    assert json.loads(message.payload) == {"x": 1}


def test_a_topic_or_header_for_which_brokers_close_the_connection_is_refused_at_once(
    cli: Any, broker: FaultyMqtt, tmp_path: Path
) -> None:
    (tmp_path / "one.json").write_text('{"x": 1}')
    for arguments in (["press/\x01"], ["press/7", "-H", "note=a\x02b"]):
        ended = cli("send", *arguments, tmp_path / "one.json", "-b", broker.url, "--codec", "json")
        assert ended.code in (1, 2)
        assert "for which brokers close the connection" in ended.err


RECORD = {
    "levels.device": "7",
    "qos": 1,
    "content_type": "application/json",
    "response_topic": "answers/7",
    "correlation": {"base64": "AP8="},
}
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
            ("streamer-record", json.dumps(RECORD).encode()),
            ("streamer-topic", topic.encode()),
            ("streamer-partition", b"0"),
            ("streamer-offset", b"3"),
            ("streamer-step", b"decode"),
            ("streamer-error", b"WireError"),
            ("trace", b"abc"),
        ]
        producer.produce("dead", payload, b"a level of its topic", headers=headers)
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
        assert {topic: said(one) for topic, one in found.items()} == {
            topic: ("application/json", "answers/7", b"\x00\xff", [("trace", "abc")]) for topic in found
        }
        assert json.loads(cli("replay", file, "--json").out)["sent"] == 0
        assert client.nothing()
    shown = cli("tap", "dead", "-b", mock_kafka.bootstrap, "--from", "earliest", "--codec", "raw", "--json", "-n", "3")
    letters = [json.loads(line)["dead_letter"] for line in shown.out.splitlines()]
    assert [one["record"] for one in letters] == [{**RECORD, "correlation": "00 ff"}] * 3


def said(message: Any) -> tuple[str, str, bytes, list[tuple[str, str]]]:
    """Content type, response topic, correlation data and user properties of a message."""
    found = message.properties
    return found.ContentType, found.ResponseTopic, found.CorrelationData, found.UserProperty


FILES = """
name: edge
source:
  type: mqtt
  url: "{url}"
  topics: "press/{{device}}"
  codec: json
  key: device
  into: {{correlation: asked}}
pipeline: []
sink:
  type: mqtt
  topic: "{{record.response_topic}}"
  topics: ["^answers/"]
  correlation: asked
  drop: [asked]
  codec: json
dead_letter: {{type: file, path: "{dead}", format: jsonl}}
errors: {{stop_ratio: 1}}
"""


def test_a_request_whose_dead_letter_is_in_a_file_is_answered_after_it_was_replayed(
    cli: Any, broker: FaultyMqtt, tmp_path: Path
) -> None:
    """The service was mended in between; its answer reaches the client that asked, under its correlation data."""
    file, dead = tmp_path / "edge.yaml", tmp_path / "dead.jsonl"
    text = FILES.format(url=broker.url, dead=dead)
    strict = text.replace("codec: json\n  key", "codec: {type: json, fields: {x: /x/y}}\n  key")
    with MqttClient(broker.host, broker.port, version=MQTTv5) as client:
        client.subscribe("answers/#", 1)
        file.write_text(strict)
        asked: dict[str, Any] = {
            "ContentType": "application/json",
            "ResponseTopic": "answers/7",
            "CorrelationData": b"\x00\xff",
        }
        with streamer.load(file):
            assert until(lambda: "edge-mqtt" in broker.subscribers)
            client.publish("press/7", b"not JSON \xff\n", 1, **asked, UserProperty=[("trace", "abc")])
            client.publish("press/8", b'{"x": {"y": 1}}', 1, **asked)
            assert len(client.take(1)) == 1
            assert until(dead.exists)
            assert until(lambda: len(dead.read_bytes().splitlines()) == 1)
        file.write_text(text.replace("codec: json\n  key", "codec: raw\n  key"))
        shown = json.loads(cli("replay", file, "--dry-run", "--json").out)
        assert (shown["sent"], shown["letters"][0]["topic"]) == (1, "press/7")
        with streamer.load(file):
            ended = cli("replay", file, "--json")
            assert ended.code == 0, ended.err
            assert json.loads(ended.out)["sent"] == 1
            (answer,) = client.take(1)
        assert (answer.topic, answer.properties.CorrelationData) == ("answers/7", b"\x00\xff")  # type: ignore[union-attr]
        assert json.loads(cli("replay", file, "--json").out)["sent"] == 0
        assert json.loads(cli("replay", file, "--json", "--again", "--dry-run").out)["sent"] == 1
        assert client.nothing()
    tapped = cli("tap", file, "--sink", "dead_letter", "--from", "earliest", "--json", "--codec", "raw", "-n", "1")
    assert json.loads(tapped.out)["dead_letter"]["record"]["response_topic"] == "answers/7"


def test_a_file_of_letters_that_holds_other_lines_or_wrong_marks(cli: Any, broker: FaultyMqtt, tmp_path: Path) -> None:
    file, dead = tmp_path / "edge.yaml", tmp_path / "dead.jsonl"
    file.write_text(FILES.format(url=broker.url, dead=dead))
    ended = cli("replay", file, "--json")
    assert ended.code == 1
    assert "no dead letter has been written yet" in ended.err
    dead.write_text(
        '{"x": 1}\n[]\nnull\n{"headers": 7, "key": null, "payload": null}\n\n{"headers": [[1]]}\nnone\n'
        '{"headers": [["\\ud800", "x"]], "key": null, "payload": null}\n'
    )
    report = json.loads(cli("replay", file, "--json").out)
    assert (report["sent"], report["foreign"]) == (0, 7)
    (tmp_path / ".dead.jsonl.replayed").write_text("[]")
    ended = cli("replay", file, "--json")
    assert ended.code == 1
    assert "delete it to replay all letters again" in ended.err


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"response_topic": "answers/#"}, "no wildcards"),
        ({"content_type": "a\0"}, "null character"),
        ({"correlation": {"base64": "AAAA" * 30_000}}, "65,?535"),
    ],
)
def test_a_letter_that_asks_for_what_mqtt_cannot_carry_is_kept(
    cli: Any, broker: FaultyMqtt, tmp_path: Path, record: dict[str, Any], why: str
) -> None:
    file, dead = tmp_path / "edge.yaml", tmp_path / "dead.jsonl"
    file.write_text(FILES.format(url=broker.url, dead=dead))
    headers = [["streamer-record", json.dumps(record)], ["streamer-topic", "press/7"], ["streamer-step", "decode"]]
    good = [["streamer-record", '{"content_type": 7, "qos": []}'], *headers[1:]]
    dead.write_text(
        "".join(json.dumps({"headers": one, "key": None, "payload": "x"}) + "\n" for one in (headers, good))
    )
    ended = cli("replay", file, "--json")
    assert ended.code == 1
    report = json.loads(ended.out)
    assert report["sent"] == 1
    (reason,) = report["failed"]
    assert re.search(why, reason)


PER_DEVICE = """
source: {{type: mqtt, url: "{url}", topics: "site/{{device}}/telemetry", codec: json, into: {{levels.device: id}}}}
pipeline: []
sink: {{type: mqtt, url: "{url}", topic: "alerts/{{id}}", topics: ["^alerts/"], codec: json, name: alert}}
dead_letter: {{type: memory, topic: dead}}
"""


@pytest.mark.slow
def test_records_of_many_devices_are_sent_and_tapped_with_one_command(
    cli: Any, start: Any, broker: FaultyMqtt, tmp_path: Path
) -> None:
    """`send` makes each record's topic from its values, and `tap` reads all topics that a sink makes."""
    file, records = tmp_path / "dev.yaml", tmp_path / "r.jsonl"
    file.write_text(PER_DEVICE.format(url=broker.url))
    records.write_text('{"id": "a", "x": 1}\n{"id": "b", "x": 2}\n{"id": 7, "x": 3}\n')
    tap = start("tap", str(file), "--json", "--count", "3")
    assert until(lambda: any(name.startswith("streamer-tap") for name in broker.clients))
    with MqttClient(broker.host, broker.port) as client, streamer.load(file):
        client.subscribe("site/#", 1)
        sent = cli("send", file, records)
        assert sent.code == 0, sent.err
        assert [one.topic for one in client.take(3)] == [f"site/{device}/telemetry" for device in ("a", "b", "7")]
        shown, errors = tap.communicate(timeout=120)
    assert tap.returncode == 0, errors
    assert sorted(json.loads(line)["topic"] for line in shown.splitlines()) == ["alerts/7", "alerts/a", "alerts/b"]


def test_a_record_without_the_value_of_its_topic_is_named_with_its_line(
    cli: Any, broker: FaultyMqtt, tmp_path: Path
) -> None:
    records = tmp_path / "r.jsonl"
    records.write_text('{"device": "a"}\n{"x": 2}\n')
    ended = cli("send", "site/{device}", records, "-b", broker.url, "--codec", "json")
    assert ended.code == 2
    assert "r.jsonl:2" in ended.err
    assert '"device"' in ended.err


def test_a_case_needs_no_topic_where_its_record_has_the_values(cli: Any, tmp_path: Path) -> None:
    file, case = tmp_path / "dev.yaml", tmp_path / "case.yaml"
    file.write_text(
        PER_DEVICE.format(url="mqtt://127.0.0.1:1").replace("levels.device: id", "levels.device: id, topic: t")
    )
    case.write_text("input: {id: a, x: 1}\nexpect: {id: a, x: 1, t: site/a/telemetry}\n")
    ended = cli("test", file, case)
    assert ended.code == 0, ended.out + ended.err


def test_topics_of_kafka_are_made_from_values_too(cli: Any, mock_kafka: MockKafka, tmp_path: Path) -> None:
    records = tmp_path / "r.jsonl"
    records.write_text('{"device": "a"}\n{"device": "b"}\n')
    sent = cli("send", "made.{device}", records, "-b", mock_kafka.bootstrap, "--codec", "json")
    assert sent.code == 0, sent.err
    assert "there was no topic" not in sent.err
    for device in ("a", "b"):
        shown = cli(
            "tap",
            f"made.{device}",
            "-b",
            mock_kafka.bootstrap,
            "--codec",
            "json",
            "--from",
            "earliest",
            "--json",
            "-n1",
        )
        assert json.loads(shown.out)["topic"] == f"made.{device}"
