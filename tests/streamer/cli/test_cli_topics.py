"""`streamer send` and `streamer tap` on a real Kafka."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient

from pipelines import Data
from streamer.devbroker import Broker, MockKafka, create_topics


@pytest.fixture
def on(kafka: Broker) -> tuple[str, str]:
    """The options that name the broker."""
    return ("--bootstrap", kafka.bootstrap)


def jsonl(path: Path, datas: list[Data]) -> Path:
    path.write_text("".join(data.to_json() + "\n" for data in datas))
    return path


def tapped(cli: Any, topic: str | Path, *arguments: str) -> list[dict[str, Any]]:
    ended = cli("tap", topic, "--from", "earliest", "--end", "--json", *arguments)
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_json_lines_are_sent_with_keys_and_headers_and_come_back_summarised(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    topic = topics()
    datas = [Data({"id": number, "x": np.arange(4, dtype="f4") * number, "name": "a"}) for number in range(3)]
    ended = cli(
        "send",
        topic,
        jsonl(tmp_path / "a.jsonl", datas),
        "--format",
        "konduit-jsonl",
        "--key",
        "dev-{id}",
        "-H",
        "from=test",
        *on,
    )
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"3 records sent to {topic}")
    records = tapped(cli, topic, *on)
    assert [record["key"] for record in records] == ["dev-0", "dev-1", "dev-2"]
    assert records[0]["headers"] == [["from", "test"]]
    assert (records[2]["topic"], records[2]["partition"], records[2]["offset"]) == (topic, 0, 2)
    assert records[2]["value"] == {
        "id": 2,
        "name": "a",
        "x": {"dtype": "float32", "shape": [4], "min": 0.0, "mean": 3.0, "max": 6.0, "first": [0.0, 2.0, 4.0, 6.0]},
    }
    full = tapped(cli, topic, "--full", *on)
    assert Data.from_json(json.dumps(full[2]["value"])) == datas[2]


def test_people_see_position_key_headers_and_one_line_a_value(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    topic = topics()
    file = jsonl(tmp_path / "a.jsonl", [Data({"text": "hi \x1b[31m", "x": np.zeros((2, 8), np.uint8)})])
    cli("send", topic, file, "--format", "konduit-jsonl", "--key", "k", "-H", "trace=\x1b]0;owned", *on)
    out = cli("tap", topic, "--from", "earliest", "--count", "1", *on).out
    assert f"{topic}[0]@0" in out
    assert "key k" in out
    assert "uint8 2x8  0 to 0, mean 0  [0 0 0 0 0 0 ...]" in out
    assert "\x1b" not in out, "a record must not steer the terminal"


def test_people_see_metadata_and_a_trace_line_by_line(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    topic = topics()
    trace = {"text": "0:ONNX (OnnxRunner) 1 ms\n    in   x float32[4]", "seconds": 0.5}
    file = jsonl(tmp_path / "a.jsonl", [Data({"x": 1}, metadata={"camera": "a", "trace": trace})])
    cli("send", topic, file, "--format", "konduit-jsonl", *on)
    lines = cli("tap", topic, "--from", "earliest", "--count", "1", *on).out.splitlines()
    assert lines[-4:] == ['  @camera  "a"', "  @trace", "    0:ONNX (OnnxRunner) 1 ms", "        in   x float32[4]"]


def test_images_are_sent_as_images_with_their_name_as_key(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    from PIL import Image

    topic = topics()
    Image.new("RGB", (6, 4)).save(tmp_path / "one.png")
    assert cli("send", topic, tmp_path / "one.png", *on).code == 0
    (record,) = tapped(cli, topic, *on)
    assert record["key"] == "one.png"
    assert record["value"]["image"].startswith("image 6x4, PNG")


def test_raw_bytes_arrive_as_they_are_and_what_cannot_be_decoded_is_shown_as_such(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    topic = topics()
    (tmp_path / "any.dat").write_bytes(b"\xff\xff no protobuf")
    assert cli("send", topic, tmp_path / "any.dat", "--format", "raw", *on).code == 0
    (record,) = tapped(cli, topic, *on)
    assert record["payload"] == {"bytes": 14, "first": b"\xff\xff no protobuf".hex(" ")}
    assert "error" in record
    assert "14 bytes, not decoded" in cli("tap", topic, "--from", "earliest", "--end", *on).out


def test_delimited_messages_and_other_codecs_are_understood(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    topic = topics()
    payload = Data({"x": 1}).to_bytes()
    (tmp_path / "a.pb").write_bytes((bytes([len(payload)]) + payload) * 3)
    assert cli("send", topic, tmp_path / "a.pb", "--codec", "json", "--repeat", "2", *on).code == 0
    assert [record["value"] for record in tapped(cli, topic, "--codec", "json", *on)] == [{"x": 1}] * 6


def test_send_keeps_the_rate(cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path) -> None:
    file = jsonl(tmp_path / "a.jsonl", [Data({"id": number}) for number in range(10)])
    ended = cli("send", topics(), file, "--rate", "10", "--json", *on)
    assert json.loads(ended.out)["sent"] == 10
    assert json.loads(ended.out)["seconds"] >= 0.9


def test_a_line_that_is_no_record_is_named_by_file_and_line(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"x": 1}\n\n{"x": \n')
    ended = cli("send", topics(), file, *on)
    assert ended.code == 2
    assert f"{file}:3: the payload is no JSON: Expecting value at column " in ended.err
    assert "; correct that line and send this file again; nothing was sent\n" in ended.err
    assert "--codec" not in ended.err
    assert len(ended.err.splitlines()) <= 3


def test_how_many_records_were_sent_before_a_line_that_is_no_record_is_told(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    topic = topics()
    good = [f'{{"x": {number}}}' for number in range(1500)]
    (tmp_path / "a.jsonl").write_text("\n".join([*good, '{"x": ']))
    ended = cli("send", topic, tmp_path / "a.jsonl", "--codec", "json", *on)
    assert ended.code == 2
    assert "a.jsonl:1501: " in ended.err
    assert "; correct that line and send this file from line 1001 on; 1,000 records sent before that" in ended.err
    assert len(tapped(cli, topic, "--codec", "json", *on)) == 1000


@pytest.mark.parametrize("text", ['{\n "x": 1\n}\n', '\ufeff[\n {"x": 1}\n]'], ids=["object", "list"])
def test_a_json_document_over_several_lines_is_told_how_to_be_sent(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.json").write_text(text)
    ended = cli("send", topics(), tmp_path / "a.json", "--codec", "json", *on)
    assert ended.code == 2
    assert "each line has to be a whole record" in ended.err
    assert "--format raw" in ended.err
    assert "; nothing was sent\n" in ended.err


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("missing.jsonl", [], "no such file"),
        ("what.xyz", [], "--format"),
        ("a.jsonl", ["--key", "{nothing}"], "nothing"),
        ("a.jsonl", ["--header", "x"], "NAME=VALUE"),
        ("a.jsonl", ["--client", "x"], "NAME=VALUE"),
        ("a.png", [], "is not a PNG"),
    ],
)
def test_a_file_or_option_that_send_cannot_use_is_wrong_use(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path, name: str, arguments: list[str], reason: str
) -> None:
    for there in ("what.xyz", "a.jsonl", "a.png"):
        (tmp_path / there).write_text('{"x": 1}\n')
    ended = cli("send", topics(), tmp_path / name, *arguments, *on)
    assert ended.code == 2
    assert reason in ended.err


def test_an_unknown_topic_is_named_with_the_nearest_one(cli: Any, topics: Any, on: tuple[str, str]) -> None:
    topic = topics()
    ended = cli("tap", f"{topic}x", *on)
    assert ended.code == 1
    assert f'did you mean "{topic}"?' in ended.err


def test_an_unknown_topic_that_resembles_none_is_answered_with_those_there_are(
    cli: Any, topics: Any, on: tuple[str, str]
) -> None:
    topics()
    ended = cli("tap", "?", *on)
    assert ended.code == 1
    assert 'there is no topic "?" on ' in ended.err
    assert "; there are " in ended.err
    assert "__consumer_offsets" not in ended.err


def test_sending_to_a_topic_that_was_not_there_says_so_and_names_the_nearest_one(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    topic = topics()
    file = jsonl(tmp_path / "a.jsonl", [Data({"a": 1})])
    ended = cli("send", f"{topic}x", file, *on)
    assert ended.code == 0
    assert f'there was no topic "{topic}x"; did you mean "{topic}"?' in ended.err
    assert cli("send", topic, file, *on).err == ""


@pytest.mark.parametrize("arguments", [["tap", "x"], ["replay", "x"], ["send", "x", "a.jsonl"]])
@pytest.mark.slow
def test_a_broker_that_does_not_answer_is_told_in_a_line(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("connectors.kafka.client.answers.SOON", 1.0)
    # Whoever waits for all of that would notice.
    monkeypatch.setattr("connectors.kafka.client.answers.PATIENCE", 120.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    began = time.monotonic()
    ended = cli(*arguments, "-b", "localhost:1")
    assert time.monotonic() - began < 60
    assert ended.code == 1
    assert "no Kafka answers on localhost:1 (Connect to" in ended.err
    assert "Connection refused)" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_brokers_that_are_slow_but_there_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from connectors.kafka.client.answers import topics_of
    from connectors.kafka.config import KafkaSinkConfig
    from pipelines.errors import ConnectorError

    monkeypatch.setattr("connectors.kafka.client.answers.SOON", 0.2)
    monkeypatch.setattr("connectors.kafka.client.answers.PATIENCE", 1.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(ConnectorError, match=r"no Kafka answers on 127\.0\.0\.1"):
            topics_of(KafkaSinkConfig(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}", topic="x"))
    assert time.monotonic() - began > 1.1


@pytest.mark.timeout(300)
def test_a_partition_without_a_leader_is_waited_for_and_named(
    cli: Any, start_kafka: Any, topic_name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start_kafka(nodes=3)
    topic = topic_name()
    create_topics(cluster.bootstrap, {topic: 3})
    cluster.kill(3)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    while not (
        lost := [one.id for one in client.list_topics(topic).topics[topic].partitions.values() if one.leader < 0]
    ):
        time.sleep(0.1)
    commands = ("tap", topic, "--end", "-b", cluster.bootstrap), ("replay", topic, "--dry-run", "-b", cluster.bootstrap)
    with monkeypatch.context() as patch:
        patch.setattr("connectors.kafka.client.queries.PATIENCE", 0.5)
        for command in commands:
            ended = cli(*command)
            assert ended.code == 1
            assert f"no broker leads {topic}[{lost[0]}]" in ended.err
            assert "see that all brokers of the cluster run" in ended.err
    starting = threading.Thread(target=cluster.restart, args=(3,))
    starting.start()
    try:
        for command in commands:
            ended = cli(*command)
            assert ended.code == 0, ended.err
    finally:
        starting.join()


def test_tap_begins_at_a_time(cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path) -> None:
    topic = topics(partitions=2)
    file = jsonl(tmp_path / "a.jsonl", [Data({"id": 1})])
    cli("send", topic, file, *on)
    time.sleep(0.05)
    middle = str(round(time.time() * 1000))
    time.sleep(0.05)
    file = jsonl(tmp_path / "b.jsonl", [Data({"id": 2})])
    cli("send", topic, file, *on)
    ended = cli("tap", topic, "--from", middle, "--end", "--json", *on)
    assert [json.loads(line)["value"] for line in ended.out.splitlines()] == [{"id": 2}]
    wrong = cli("tap", topic, "--from", "yesterday", *on)
    assert wrong.code == 2
    assert "yesterday" in wrong.err


def test_tap_waits_for_what_comes_and_ctrl_c_ends_it_with_0(
    cli: Any, start: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    topic = topics()
    process = start("tap", topic, "--json", *on, stderr=subprocess.STDOUT)
    file = jsonl(tmp_path / "a.jsonl", [Data({"id": 1})])
    seen = threading.Event()

    def sending() -> None:
        # Again and again: when it has found the end of the topic, where it begins, cannot be seen from outside.
        while not seen.wait(0.5):
            cli("send", topic, file, *on)

    sender = threading.Thread(target=sending)
    sender.start()
    try:
        line = process.stdout.readline()
    finally:
        seen.set()
        sender.join()
    assert json.loads(line)["value"] == {"id": 1}
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_run_puts_the_group_back_where_from_says(
    cli: Any, start: Any, topics: Any, kafka: Broker, on: tuple[str, str], tmp_path: Path
) -> None:
    source, sink = topics(), topics()
    cli("send", source, jsonl(tmp_path / "a.jsonl", [Data({"id": number}) for number in range(3)]), *on)
    file = tmp_path / "copy.yaml"
    file.write_text(
        f"source: {{type: kafka, bootstrap: '{kafka.bootstrap}', topics: [{source}], group: {source}}}\n"
        f"pipeline: []\nsink: {{type: kafka, topic: {sink}}}\n"
    )
    for expected, arguments in ((3, []), (6, ["--from", "earliest"])):
        process = start("run", file, "--no-log-json", *arguments)
        deadline = time.monotonic() + 120
        while len(tapped(cli, sink, *on)) < expected:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert f"kafka {source} -> kafka {sink}, group {source}" in err
        assert "3 ok" in err


def service_file(folder: Path, bootstrap: str, source: str, sink: str) -> Path:
    file = folder / "service.yaml"
    file.write_text(
        f"""source: {{type: kafka, bootstrap: "{bootstrap}", topics: [{source}], group: g-{source}, codec: json}}
pipeline: [{{"@type": LOGGING}}]
sink:
  - {{type: kafka, name: out, bootstrap: "{bootstrap}", topic: {sink}, codec: json}}
  - {{type: kafka, name: made, bootstrap: "{bootstrap}", topic: "x.{{id}}", topics: [x.1]}}
  - {{type: memory, name: here, topic: here}}
dead_letter: {{type: kafka, bootstrap: "{bootstrap}", topic: {source}-dead}}
"""
    )
    return file


@pytest.mark.parametrize("codec", ["{type: csv, names: [id, temp]}", '{"type": "csv", "names": ["id", "temp"]}'])
def test_a_codec_is_said_with_its_fields_as_in_a_service_file(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path, codec: str
) -> None:
    topic = topics()
    file = jsonl(tmp_path / "a.jsonl", [Data({"id": "a", "temp": 1.5})])
    assert cli("send", topic, file, "--codec", codec, *on).code == 0
    (record,) = tapped(cli, topic, "--codec", "text", *on)
    assert record["value"]["text"].strip() == "a,1.5"


def test_rows_of_a_table_are_shown_without_its_header_and_without_a_hint_at_the_codec_in_use(
    cli: Any, mock_kafka: MockKafka, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("id,temp\na,21.5\nb,hot\n")
    on = ("-b", mock_kafka.bootstrap)
    sent = cli("send", "table", tmp_path / "a.csv", "--format", "lines", "--codec", "text", *on)
    assert sent.code == 0, sent.err
    codec = "{type: csv, names: [id, temp], types: {temp: number}, header: true}"
    shown = cli("tap", "table", "--codec", codec, "--from", "earliest", "-n", "3", *on)
    assert shown.code == 0, shown.err
    assert shown.out.count("no record: a header row") == 1
    assert shown.out.count("is no number") == 1
    assert "such payloads are read with" not in shown.err
    # The topic has several partitions, and the lines may be in any of them.
    notes = [record["note"] for record in tapped(cli, "table", "--codec", codec, *on) if "note" in record]
    assert notes == ["no record: a header row, or an empty list"]


def test_a_codec_that_is_no_mapping_is_refused(cli: Any, tmp_path: Path) -> None:
    ended = cli("send", "t", jsonl(tmp_path / "a.jsonl", []), "--codec", "{type: csv")
    assert ended.code == 2
    assert "is not a mapping as service files have it" in " ".join(ended.err.split())


def test_a_service_file_says_brokers_topic_and_codec(
    cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path
) -> None:
    source, sink = topics(), topics()
    file = service_file(tmp_path, on[1], source, sink)
    assert cli("send", file, jsonl(tmp_path / "a.jsonl", [Data({"id": 1})])).code == 0
    for arguments in ((file, "--source", "kafka"), (source, "--codec", "json", *on)):
        (record,) = tapped(cli, *arguments)
        assert (record["topic"], record["value"]) == (source, {"id": 1})
    cli("send", sink, jsonl(tmp_path / "b.jsonl", [Data({"id": 2})]), "--codec", "json", *on)
    for more in ((), ("--sink", "out"), ("--sink", "made", "--topic", sink, "--codec", "json")):
        (record,) = tapped(cli, file, *more)
        assert (record["topic"], record["value"]) == (sink, {"id": 2})


def test_commands_and_services_that_name_no_broker_take_the_one_of_the_environment(
    cli: Any, topics: Any, kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", kafka.bootstrap)
    source, sink = topics(), topics()
    file = tmp_path / "service.yaml"
    file.write_text(
        f"source: {{type: kafka, topics: {source}, codec: json}}\n"
        "pipeline: [{'@type': LOGGING}]\n"
        f"sink: {{type: kafka, topic: {sink}, codec: json}}\n"
    )
    assert cli("send", file, jsonl(tmp_path / "a.jsonl", [Data({"id": 1})])).code == 0
    for place in ((file, "--source", "kafka"), (source, "--codec", "json")):
        (record,) = tapped(cli, *place)
        assert (record["topic"], record["value"]) == (source, {"id": 1})
    checked = cli("check", file, "--connect")
    assert checked.code == 0, checked
    told = f"the brokers are {kafka.bootstrap} (of the environment variable KAFKA_BOOTSTRAP_SERVERS)"
    assert " ".join(checked.out.split()).count(told) == 1


def test_brokers_that_nobody_named_and_that_are_not_there_are_told_with_the_ways_to_name_them(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.client.answers.PATIENCE", 0.2)
    monkeypatch.setattr("connectors.kafka.client.brokers.LOCAL", "localhost:1")
    file = tmp_path / "service.yaml"
    file.write_text(
        "source: {type: kafka, topics: a}\npipeline: [{'@type': LOGGING}]\nsink: {type: memory, topic: out}\n"
    )
    for value, told in (
        (None, "as neither bootstrap nor the environment variable KAFKA_BOOTSTRAP_SERVERS is set; is it running"),
        ("localhost:1", "of the environment variable KAFKA_BOOTSTRAP_SERVERS; is it running, and is KAFKA_BOOTSTRAP_"),
    ):
        if value is None:
            monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
        else:
            monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", value)
        for arguments in (("tap", "a"), ("tap", file, "--source", "kafka"), ("check", file, "--connect")):
            ended = cli(*arguments)
            assert ended.code == 1
            assert told in " ".join((ended.out + ended.err).split())


def test_a_wrong_codec_names_the_one_that_fits(cli: Any, topics: Any, on: tuple[str, str], tmp_path: Path) -> None:
    topic = topics()
    datas = [Data({"id": number}) for number in range(3)]
    cli("send", topic, jsonl(tmp_path / "a.jsonl", datas), "--codec", "json", *on)
    ended = cli("tap", topic, "--from", "earliest", "--end", *on)
    assert ended.out.count("not decoded") == 3
    assert ended.err.count("such payloads are read with --codec json") == 1
    file = service_file(tmp_path, on[1], topic, topic)
    ended = cli("tap", file, "--sink", "made", "--topic", topic, "--from", "earliest", "--end")
    assert "such payloads are read with --codec json (in the file: codec: json)" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tap", "FILE", "--sink", "our"], 'no sink "our"; it has out, made, here, dead_letter; did you mean "out"?'),
        (["tap", "FILE", "--sink", "here"], 'the sink "here" of the service s is on no bus with topics'),
        (["tap", "FILE", "--sink", "made"], 'the sink "made" writes to x.{id}; --topic says which to read'),
        (["tap", "FILE", "--sink", "out", "--source", "kafka"], "one of them"),
        (["tap", "topic", "--sink", "out"], "--sink needs a service file, and 'topic' is a topic"),
        (["send", "topic", "FILE", "--topic", "x"], "--topic needs a service file"),
        (["send", "FILE", "FILE", "--source", "kafk"], 'no source "kafk"; it has kafka; did you mean "kafka"?'),
        (["tap", "./none.yaml"], "none.yaml: no such file"),
    ],
)
def test_a_sink_source_or_topic_that_the_service_file_lacks_is_told(
    cli: Any, tmp_path: Path, arguments: list[str], said: str
) -> None:
    file = service_file(tmp_path, "localhost:1", "in", "out")
    file.write_text(f"name: s\n{file.read_text()}")
    ended = cli(*[file if one == "FILE" else one for one in arguments])
    assert ended.code == 2
    assert said in " ".join(ended.err.split())
