"""`streamer check`, `steps` and `schema`: what is known without running anything."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamer.devbroker import Broker

ROOT = Path(__file__).parents[3]


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A copy of the example to change."""
    return Path(shutil.copytree(ROOT / "examples" / "digits", tmp_path / "digits")) / "digits.yaml"


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def findings(ended: Any) -> dict[str, dict[str, Any]]:
    (report,) = json.loads(ended.out)["services"]
    return {one["part"]: one for one in report["findings"]}


def test_a_good_service_is_reported_part_by_part_with_the_models_inputs_and_outputs(cli: Any, digits: Path) -> None:
    ended = cli("check", digits)
    assert ended.code == 0, ended.err
    assert "wrong" not in ended.out
    for text in (
        "service digits",
        "kafka digits.images, codec protodata",
        "digits.onnx: image uint8 [N, 8, 8] -> probabilities float32 [N, 10]",
        "kafka digits.predictions",
        "dead letters to kafka digits.dead",
        "at_least_once",
    ):
        assert text in ended.out
    (letters,) = [line for line in ended.out.splitlines() if "dead letters" in line]
    assert "codec" not in letters  # records go there as they came


def test_the_group_is_told_whether_the_file_says_it_or_not(cli: Any, digits: Path) -> None:
    change(digits, "  group: digits\n", "")
    change(digits, "name: digits\n", "")
    for name, group in (("sevens.yaml", "sevens"), ("service.yaml", "digits")):
        file = digits.rename(digits.with_name(name))
        ended = cli("check", file, "--json")
        assert ended.code == 0, ended
        assert findings(ended)["source kafka"]["text"] == f"kafka digits.images, codec protodata, group {group}"
        digits = file


def test_check_shows_notes_on_sinks_too(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "source: {type: memory, topic: in}\nsink: {type: file, path: out.jsonl}\npipeline: []\non_error: drop\n"
    )
    (service,) = json.loads(cli("check", tmp_path / "s.yaml", "--json").out)["services"]
    (text,) = [one["text"] for one in service["findings"] if one["part"] == "sink file"]
    assert text.endswith(
        "codec protodata; note: out.jsonl holds messages with their length before each; for lines write format: jsonl"
    )


@pytest.mark.parametrize(
    ("source", "dead", "noted"),
    [
        ("{type: kafka, topics: [in, other]}", "{type: kafka, topic: in}", True),
        ("{type: kafka, topics: ^i}", "{type: kafka, topic: in}", True),
        ("{type: kafka, topics: in}", "{type: kafka, topic: in, bootstrap: elsewhere}", False),
        ("{type: mqtt, topics: +/in}", "{type: mqtt, topic: a/in}", True),
        ("{type: mqtt, topics: in}", "{type: kafka, topic: in}", False),
    ],
)
def test_a_dead_letter_topic_that_the_source_reads_is_noted(
    cli: Any, tmp_path: Path, source: str, dead: str, noted: bool
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(f"source: {source}\npipeline: []\nsink: {{type: memory, topic: out}}\ndead_letter: {dead}\n")
    ended = cli("check", file, "--json")
    (service,) = json.loads(ended.out)["services"]
    (failures,) = [one["text"] for one in service["findings"] if one["part"] == "failures"]
    assert ("too: a record that fails comes back without end" in failures) == noted


def test_a_zone_of_a_camera_that_is_not_there_is_noted(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "source: {type: camera, cameras: {gate: 'rtsp://h/x', dock: 'rtsp://h/y'}}\nsink: {type: memory, topic: out}\n"
        "pipeline:\n  - {'@type': ZONES, zones: {yard: {cameras: [gaet, dock], points: [[0, 0], [1, 0], [1, 1]]}}}\n"
    )
    (service,) = json.loads(cli("check", tmp_path / "s.yaml", "--json").out)["services"]
    text, lacks = [one["text"] for one in service["findings"] if one["part"].startswith("step 0")]
    assert lacks == 'it needs "ids", but records have image here'
    assert text == 'numpy; note: "yard" is of the camera "gaet", which no source has; did you mean "gate"?'


def test_nothing_is_connected_to_unless_asked(cli: Any, digits: Path) -> None:
    change(digits, "${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}", "localhost:1")
    assert cli("check", digits).code == 0


def test_a_missing_model_is_a_wrong_file(cli: Any, digits: Path) -> None:
    (digits.parent / "digits.onnx").unlink()
    ended = cli("check", digits, "--json")
    assert ended.code == 2
    found = findings(ended)
    assert not found["step 0:ONNX"]["ok"]
    assert "digits.onnx is not there" in found["step 0:ONNX"]["text"]
    assert found["sink kafka"]["ok"]
    assert json.loads(ended.out)["ok"] is False


def test_a_broken_model_is_a_wrong_file(cli: Any, digits: Path) -> None:
    (digits.parent / "digits.onnx").write_bytes(b"no model")
    ended = cli("check", digits)
    assert ended.code == 2
    assert "cannot be loaded" in ended.out
    assert ended.err.splitlines() == [f"error: {digits}: service digits: 1 thing is wrong"]


def test_a_function_that_cannot_be_imported_is_named(cli: Any, digits: Path) -> None:
    change(digits, "digits.pipeline.yaml", "[{'@type': FUNCTION, function: 'no_such_module:f'}]")
    ended = cli("check", digits, "--json")
    assert ended.code == 2
    assert "no_such_module" in findings(ended)["step 0:FUNCTION"]["text"]


def test_a_codec_that_is_not_there_is_told_by_line(cli: Any, digits: Path) -> None:
    change(digits, "topics: [digits.images]", "topics: [digits.images]\n  codec: protodatta")
    ended = cli("check", digits)
    assert ended.code == 2
    assert f"{digits}:7" in ended.err
    assert 'did you mean "protodata"?' in ended.err


def test_the_error_of_a_wrong_file_is_in_the_json_too(cli: Any, digits: Path) -> None:
    change(digits, "topics:", "topcis:")
    ended = cli("check", digits, "--json")
    assert ended.code == 2
    (report,) = json.loads(ended.out)["services"]
    assert 'did you mean "topics"?' in report["error"]
    assert report["error"] in ended.err


def test_all_files_are_checked_when_one_is_wrong(cli: Any, digits: Path, tmp_path: Path) -> None:
    ended = cli("check", tmp_path / "none.yaml", digits)
    assert ended.code == 2
    assert "none.yaml" in ended.err
    assert "service digits" in ended.out


def test_a_file_with_many_mistakes_has_them_all_listed(cli: Any, digits: Path) -> None:
    change(digits, "name: digits\n", "a: 1\nb: 2\nc: 3\nd: 4\n")
    ended = cli("check", digits)
    assert ended.code == 2
    assert [line.split(": ")[1] for line in ended.out.splitlines()] == ["a", "b", "c", "d"]
    assert ended.err == f"error: {digits}: 4 things are wrong\n"
    ended = cli("check", digits, "--json")
    (report,) = json.loads(ended.out)["services"]
    assert len(report["errors"]) == 4
    assert ended.err.endswith("(and 1 more)\n")


def test_brokers_that_do_not_answer_are_a_failure_and_not_a_wrong_file(
    cli: Any, digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.kafka.client.answers.PATIENCE", 0.2)
    change(digits, "${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}", "localhost:1")
    ended = cli("check", digits, "--connect")
    assert ended.code == 1
    assert "no Kafka answers on localhost:1" in ended.out
    # `check` has no -b, and the file says where brokers are.
    assert "is bootstrap right? streamer broker starts one here" in ended.out
    change(digits, "localhost:1", "10.255.255.1:1")
    assert "streamer broker" not in cli("check", digits, "--connect").out


def test_connecting_tells_which_topics_are_there(cli: Any, digits: Path, kafka: Broker, topics: Any) -> None:
    there = topics(partitions=3)
    change(digits, "${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}", kafka.bootstrap)
    change(digits, "topics: [digits.images]", f"topics: [{there}]")
    change(digits, "topic: digits.predictions", f"topic: {there}x")
    ended = cli("check", digits, "--connect")
    assert ended.code == 1
    assert f"{there} has 3 partitions" in ended.out
    assert f'has no topic "{there}x"; did you mean "{there}"?' in ended.out
    assert "opens" in ended.out


def test_connecting_looks_for_the_topics_that_values_may_lead_to(
    cli: Any, digits: Path, kafka: Broker, topics: Any
) -> None:
    there = topics(partitions=3)
    change(digits, "${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}", kafka.bootstrap)
    change(digits, "topics: [digits.images]", f"topics: [{there}]")
    change(digits, "topic: digits.predictions", f'topic: "{{label}}"\n  topics: [{there}, "^{there}"]')
    text = digits.read_text()
    ended = cli("check", digits, "--connect")
    assert f"{{label}} is made from values, {there} has 3 partitions, 1 topics match ^{there}" in ended.out
    digits.write_text(text.replace(f'[{there}, "^', f'[{there}, {there}x, "^'))
    ended = cli("check", digits, "--connect")
    assert ended.code == 1
    assert f'has no topic "{there}x"; did you mean "{there}"?' in ended.out


def test_steps_tells_what_runs_each_step(cli: Any) -> None:
    ended = cli("steps", "--json")
    assert ended.code == 0
    lines = {(line["step_type"], line["runner"]): line for line in json.loads(ended.out)["steps"]}
    assert lines["ONNX", "onnxruntime"]["available"] is True
    assert ("FUNCTION", "python") in lines
    table = cli("steps").out
    assert "CLASSIFIER_OUTPUT" in table
    assert "onnxruntime" in table


@pytest.mark.slow
def test_steps_imports_no_heavy_library() -> None:
    """K-35: the pairs of steps and runners are listed without what runs them."""
    heavy = ["onnxruntime", "cv2", "av", "confluent_kafka", "torch", "tensorflow", "PIL", "pyarrow"]
    code = (
        "import sys; from streamer.cli.app import invoke; invoke(['steps', '--json']); "
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    pairs = {(line["step_type"], line["runner"]) for line in json.loads(done.stdout)["steps"]}
    assert {("ONNX", "onnxruntime"), ("IMAGE_RESIZE", "opencv"), ("FRAME_CAPTURE", "pyav")} <= pairs


INSIDE = """
'@AsyncTrigger': {'@type': CACHING_TRIGGER, frequencyMs: 0}
steps:
  sw: {'@type': SWITCH, '@input': input, switchFn: {'@type': FUNCTION_SWITCH, numOutputs: 2, function: 'gone_a:f'}}
  a: {'@type': SWITCH_OUTPUT, '@input': sw, outputNum: 0}
  b: {'@type': SWITCH_OUTPUT, '@input': sw, outputNum: 1}
  inner: {'@type': PIPELINE, '@input': a, pipeline: {steps: [{'@type': FUNCTION, function: 'gone_b:f'}]}}
  any: {'@type': ANY, '@input': [inner, b]}
  end: {'@type': COMBINE, '@input': [any, input], combineFn: {'@type': FUNCTION, function: 'gone_c:f'}}
"""


def test_everything_inside_a_pipeline_is_looked_at(cli: Any, digits: Path) -> None:
    """K-34: in pipelines in pipelines, under triggers, in switches and combines; each is a finding of its own."""
    (digits.parent / "graph.yaml").write_text(INSIDE)
    change(digits, "digits.pipeline.yaml", "[{'@type': PIPELINE, pipeline: graph.yaml}]")
    ended = cli("check", digits, "--json")
    assert ended.code == 2
    found = findings(ended)
    for part, text in {
        "step 0:PIPELINE/sw": "there is no module gone_a",
        "step 0:PIPELINE/inner/0:FUNCTION": "there is no module gone_b",
        "step 0:PIPELINE/end": "there is no module gone_c",
    }.items():
        assert not found[part]["ok"]
        assert text in found[part]["text"]
    assert all(
        found[part]["ok"] for part in ("step 0:PIPELINE", "step 0:PIPELINE/any", "step 0:PIPELINE/@AsyncTrigger")
    )


ONCE = """\
source: {{type: kafka, topics: in, group: g{source}}}
pipeline: {pipeline}
sink: {sink}
delivery: exactly_once
"""


@pytest.mark.parametrize(
    ("source", "pipeline", "sink", "part", "text"),
    [
        ("", "[{'@type': LOGGING}]", "{type: kafka, topic: out}", "delivery", "exactly_once, committed every 100 ms"),
        ("", "[{'@type': TRACK}]", "{type: kafka, topic: out}", "step 0:TRACK", "use at_least_once"),
        (
            "",
            "[{'@type': WINDOW, by: d, size: 3, values: x, outputName: y}]",
            "{type: kafka, topic: out}\nstate: {topic: kept}\ntransaction: {interval: 250ms}",
            "state",
            "topic kept, saved every 250 ms: 0:WINDOW",
        ),
        (
            "",
            "[{'@type': WINDOW, by: d, size: 3, values: x, outputName: y}]",
            "{type: kafka, topic: out}\nstate: memory",
            "step 0:WINDOW",
            "Write state: {topic: NAME}, or use at_least_once",
        ),
    ],
)
def test_check_tells_how_exactly_once_commits_and_which_step_is_at_odds_with_it(
    cli: Any, tmp_path: Path, source: str, pipeline: str, sink: str, part: str, text: str
) -> None:
    file = tmp_path / "once.yaml"
    file.write_text(ONCE.format(source=source, pipeline=pipeline, sink=sink))
    assert text in findings(cli("check", file, "--json"))[part]["text"]


@pytest.mark.parametrize(
    ("source", "sink", "text"),
    [
        (", client: {isolation.level: read_uncommitted}", "{type: kafka, topic: out}", "leave it out, or use at_least"),
        (", assignor: cooperative-sticky", "{type: kafka, topic: out}", "use range or consumer, or at_least_once"),
        ("", "{type: file, path: out}", "sends in no transactions; use at_least_once"),
        (
            "",
            "[{type: kafka, topic: out}, {type: kafka, topic: b, name: b, linger: 1s}]",
            'sink "b": linger must be the same as of the sink "kafka-0"',
        ),
        (
            "",
            "[{type: kafka, topic: out}, {type: kafka, topic: b, bootstrap: 'other:9092'}]",
            'bootstrap must be the same as of the sink "kafka-0"',
        ),
    ],
)
def test_a_service_that_cannot_deliver_exactly_once_is_refused_with_its_line(
    cli: Any, tmp_path: Path, source: str, sink: str, text: str
) -> None:
    file = tmp_path / "once.yaml"
    file.write_text(ONCE.format(source=source, pipeline="[{'@type': LOGGING}]", sink=sink))
    ended = cli("check", file)
    assert ended.code == 2
    assert "once.yaml:4: delivery: " in ended.err
    assert text in ended.err


def test_a_runner_is_chosen_by_file_and_by_option(cli: Any, digits: Path) -> None:
    """K-21."""
    assert cli("check", digits, "--runner", "ONNX=onnxruntime").code == 0
    ended = cli("check", digits, "--runner", "ONNX=onnxrt")
    assert ended.code == 2
    assert 'ONNX has no runner "onnxrt"; did you mean "onnxruntime"?' in ended.err
    assert "TYPE=NAME" in cli("run", digits, "--runner", "ONNX").err
    change(digits, "name: digits", "name: digits\nrunners: {ONX: onnxruntime}")
    ended = cli("check", digits)
    assert ended.code == 2
    assert 'runners: there is no step ONX; did you mean "ONNX"?' in ended.err
    assert "digits.yaml:" in ended.err


def test_schema_goes_to_stdout_or_to_a_file(cli: Any, tmp_path: Path) -> None:
    ended = cli("schema")
    schema = json.loads(ended.out)
    assert {"source", "pipeline", "sink"} <= set(schema["properties"])
    file = tmp_path / "service.schema.json"
    assert cli("schema", "--out", file).code == 0
    assert json.loads(file.read_text()) == schema


def test_a_schema_that_cannot_be_written_is_a_failure(cli: Any, tmp_path: Path) -> None:
    ended = cli("schema", "--out", tmp_path / "none" / "schema.json")
    assert ended.code == 1
    assert "cannot be written" in ended.err


MQTT = """
name: edge
source: {{type: mqtt, topics: "in/{{device}}", codec: json, {source}}}
pipeline: []
batch: {{{batch}}}
sink: {sink}
"""


@pytest.mark.parametrize(
    ("source", "batch", "sink", "part", "ok", "text"),
    [
        ("window: 20", "type: hard, max_records: 64", "", "batch", False, "are never there: the window of source mqtt"),
        ("window: 64", "type: hard, max_records: 64", "", "batch", True, "exactly 64 records"),
        ("window: 20", "max_records: 64", "", "batch", True, "note: those of source mqtt have at most 20, its window"),
        ("window: 100", "max_records: 64", "", "batch", True, "less than the three batches"),
        ("qos: 0, window: 20", "type: hard, max_records: 64", "", "batch", True, "exactly 64"),
        ("qos: 0", "", "", "source mqtt", True, "note: at QoS 0 no message comes again"),
        ("expiry: 10s", "", "", "source mqtt", True, "note: its session is kept for 10 s"),
        ("expiry: 0s", "", "", "source mqtt", True, "each cut of the connection loses"),
        ("share: all", "", "", "source mqtt", True, "a member of share that dies"),
        ("", "", "{type: mqtt, topic: in/7, codec: json}", "source mqtt", False, "would be read again, for ever"),
        ("", "", "{type: mqtt, url: mqtt://b, topic: in/7, codec: json}", "source mqtt", True, "in/"),
        (
            "client_id: me",
            "",
            "{type: mqtt, topic: out, codec: json, client_id: me}",
            "source mqtt",
            False,
            'client_id "me" is that of mqtt, too',
        ),
    ],
)
def test_settings_that_cannot_work_together_are_told(
    cli: Any, tmp_path: Path, source: str, batch: str, sink: str, part: str, ok: bool, text: str
) -> None:
    file = tmp_path / "edge.yaml"
    sink = sink or "{type: mqtt, topic: out, codec: json}"
    file.write_text(MQTT.format(source=source, batch=batch, sink=sink))
    ended = cli("check", file, "--json")
    assert ended.code == (0 if ok else 2)
    (report,) = json.loads(ended.out)["services"]
    told = [one for one in report["findings"] if one["part"] == part and text in one["text"]]
    assert [one["ok"] for one in told] == [ok], report["findings"]


@pytest.mark.parametrize("part", ["source", "sink"])
@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ("socket.timeout.msx: 1000", 'No such configuration property: "socket.timeout.msx"'),
        ("socket.timeout.ms: often", 'Invalid value for configuration property "socket.timeout.ms"'),
        (
            "security_protocol: ssl",
            'No such configuration property: "security_protocol"; did you mean "security.protocol"?',
        ),
        (
            "fetch.max.wait.ms: 1",
            'No such configuration property: "fetch.max.wait.ms"; did you mean "fetch.wait.max.ms"?',
        ),
        ("key.deserializer: x", "leave it out: codec says how payloads are read and written"),
        ("a.b: 1, socket.timeout.ms: often, c.d: 2", 'No such configuration property: "c.d"'),
        ("a.b: 1, socket.timeout.ms: often, c.d: 2", 'Invalid value for configuration property "socket.timeout.ms"'),
    ],
)
def test_a_property_that_the_client_does_not_know_is_found_without_brokers(
    cli: Any, tmp_path: Path, part: str, properties: str, said: str
) -> None:
    client = {part: f", client: {{{properties}}}"}
    file = tmp_path / "s.yaml"
    file.write_text(
        f"source: {{type: kafka, bootstrap: 'localhost:1', topics: [a], group: g{client.get('source', '')}}}\n"
        "pipeline: [{'@type': LOGGING}]\n"
        f"sink: {{type: kafka, bootstrap: 'localhost:1', topic: b{client.get('sink', '')}}}\n"
    )
    ended = cli("check", file)
    assert ended.code == 2
    (wrong,) = [line for line in ended.out.splitlines() if line.startswith("wrong")]
    assert f"{part} kafka" in wrong
    assert said in wrong


def test_a_package_of_the_users_own_that_hides_ours_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").touch()
    ran = subprocess.run([sys.executable, "-m", "streamer", "steps"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1
    theirs = (tmp_path / "pipelines").resolve()
    told = f"error: {theirs} hides the package pipelines of streamer: rename it, or start elsewhere\n"
    assert ran.stderr == told


def test_a_package_of_the_users_own_that_hides_ours_is_told_in_python(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    theirs = (tmp_path / "pipelines").resolve()
    for code in ("streamer.load('x.yaml')", "streamer.testing", "streamer.Service"):
        (theirs / "__init__.py").touch()
        ran = subprocess.run(
            [sys.executable, "-c", f"import streamer; {code}"], cwd=tmp_path, capture_output=True, text=True
        )
        told = f"ImportError: {theirs} hides the package pipelines of streamer: rename it, or start elsewhere"
        assert ran.stderr.splitlines()[-1] == told


def test_a_module_in_a_folder_that_has_the_name_of_our_package_is_told_from_a_missing_one(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "mine.py").write_text("def f(data): return data\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(
        "source: {type: memory, topic: t}\nsink: {type: memory, topic: o}\n"
        "pipeline: [{'@type': FUNCTION, function: 'pipelines.mine:f'}]\n"
    )
    ended = cli("check", "s.yaml", "--json")
    assert ended.code == 2
    (text,) = [
        one["text"] for one in json.loads(ended.out)["services"][0]["findings"] if one["part"] == "step 0:FUNCTION"
    ]
    assert text == (
        f"pipelines.mine:f: {tmp_path / 'pipelines' / 'mine.py'} is not looked at, as the name pipelines belongs to "
        f"streamer; rename the folder {tmp_path / 'pipelines'}"
    )


def test_a_package_that_the_registry_needs_is_named_when_it_is_asked(
    tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "source: {type: memory, topic: t, codec: {type: avro, registry: {url: 'mock://lacking'}}}\n"
        "pipeline: [{'@type': LOGGING}]\nsink: {type: memory, topic: o, codec: json}\n"
    )
    monkeypatch.setitem(sys.modules, "certifi", None)
    monkeypatch.delitem(sys.modules, "confluent_kafka.schema_registry", raising=False)
    ended = cli("check", "--connect", str(file))
    assert ended.code == 2
    told = [line for line in ended.out.splitlines() if "codec of source memory" in line]
    assert "streamer-inference[schemas]" in " ".join(told), ended.out
