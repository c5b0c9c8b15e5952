"""Service files: what they may say, and the exact words about what is wrong in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pipelines
from connectors.codecs.registry import CODECS
from connectors.kafka.config import KafkaSourceConfig
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from pipelines.errors import DefinitionError
from streamer.definition.loading import load, load_all, loads
from streamer.definition.naming import default_name
from streamer.definition.service import Service

SHORT = """\
source: {type: memory, topic: in}
pipeline: [{"@type": LOGGING}]
sink: {type: memory, topic: out}
"""
KAFKA = SHORT.replace("type: memory, topic: in", "type: kafka, topics: t")


def written(folder: Path, text: str, name: str = "digits.yaml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def problem(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said about a file `digits.yaml` in the working directory."""
    written(folder, text)
    monkeypatch.chdir(folder)
    with pytest.raises(DefinitionError) as raised:
        load_all("digits.yaml")
    return str(raised.value)


def test_a_file_of_three_lines_is_a_service_named_after_it(tmp_path: Path) -> None:
    service = load(written(tmp_path, SHORT))
    assert service.name == "digits"
    assert service.sources == [MemorySourceConfig(topic="in", name="memory")]
    assert service.sinks == [MemorySinkConfig(topic="out", name="memory")]
    assert service.sequence() == pipelines.Sequence([pipelines.Logging()])


@pytest.mark.parametrize(
    "called",
    ["service.yaml", "service.yml", "Services.json", "streamer.yaml", "pipeline.yaml", "config.yaml", "main.yaml"],
)
def test_a_file_that_is_called_as_any_could_be_is_a_service_named_after_its_folder(called: str, tmp_path: Path) -> None:
    names = []
    for folder in ("cats", "dogs"):
        (tmp_path / folder).mkdir()
        service = load(written(tmp_path / folder, KAFKA, called))
        assert [source.group for source in service.sources if isinstance(source, KafkaSourceConfig)] == [service.name]
        names.append(service.name)
    assert names == ["cats", "dogs"]


@pytest.mark.parametrize("called", ["digits.yaml", "service-a.yaml", "service.prod.yaml", "my-service.yaml"])
def test_the_consumer_group_of_a_file_with_a_name_of_its_own_is_that_name(called: str, tmp_path: Path) -> None:
    (source,) = load(written(tmp_path, KAFKA, called)).sources
    assert isinstance(source, KafkaSourceConfig)
    assert source.group == Path(called).stem


def test_the_folder_is_found_from_wherever_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cats" / "inner").mkdir(parents=True)
    written(tmp_path / "cats", SHORT, "service.yaml")
    # As Kubernetes mounts it: the name of what a link leads to changes with each version.
    (tmp_path / "..2026_01").mkdir()
    (tmp_path / "cats" / "service.yaml").rename(tmp_path / "..2026_01" / "service.yaml")
    (tmp_path / "cats" / "service.yaml").symlink_to(tmp_path / "..2026_01" / "service.yaml")
    for here, named in (("cats", "service.yaml"), ("cats/inner", "../service.yaml"), (".", "cats/./service.yaml")):
        monkeypatch.chdir(tmp_path / here)
        assert load(named).name == "cats"


def test_a_file_in_no_folder_with_a_name_is_named_after_itself() -> None:
    assert default_name(Path("/service.yaml")) == "service"


def test_the_name_in_a_service_file_goes_before_the_name_of_its_folder(tmp_path: Path) -> None:
    (source,) = load(written(tmp_path, "name: mine\n" + KAFKA, "service.yaml")).sources
    assert isinstance(source, KafkaSourceConfig)
    assert source.group == "mine"


def test_services_of_one_file_are_told_apart_by_their_place_in_it(tmp_path: Path) -> None:
    (tmp_path / "cats").mkdir()
    file = written(tmp_path / "cats", f"{KAFKA}---\n{KAFKA}---\nname: third\n{KAFKA}", "service.yaml")
    assert [service.name for service in load_all(file)] == ["cats-0", "cats-1", "third"]


def test_json_is_read_too(tmp_path: Path) -> None:
    text = '{"name": "n", "source": {"type": "memory", "topic": "a"}, "pipeline": {"steps": []},'
    service = load(written(tmp_path, text + ' "sink": {"type": "memory", "topic": "b"}}', "digits.json"))
    assert service.name == "n"


def test_a_file_may_have_every_field(tmp_path: Path) -> None:
    text = """\
name: many
source:
  - {type: memory, topic: a, into: {key: device_id, headers.trace: trace}, tombstones: skip, name: first}
  - {type: memory, topic: b}
pipeline: {steps: [{"@type": LOGGING}]}
keep: [device_id, ts]
batch: {type: hard, max_records: 8, max_age: 2s, max_bytes: 1MiB}
sink:
  - {type: memory, topic: cats, when: {label: [cat, lynx], prob: {gt: 0.8}}, keys: [label]}
  - {type: memory, topic: all, drop: [image], name: all}
dead_letter: {type: memory, topic: dead}
delivery: at_most_once
limits: {in_flight: 2MiB, batches: 1, drain: 1m, confirm: 5s, stuck: 1h}
errors: {stop_ratio: 0.9, over: 50}
control: {listen: "127.0.0.1:0"}
"""
    service = load(written(tmp_path, text))
    assert [source.label for source in service.sources] == ["first", "memory-1"]
    assert [sink.label for sink in service.sinks] == ["memory-0", "all"]
    assert service.sinks[0].when == {"label": ["cat", "lynx"], "prob": {"gt": 0.8}}
    assert service.keep == ["device_id", "ts"]
    assert (service.limits.drain, service.limits.stuck, service.errors.over) == (60.0, 3600.0, 50)
    assert load(written(tmp_path, SHORT + "keep: all\n")).keep == "all"


def test_a_section_that_is_commented_out_is_as_good_as_none(tmp_path: Path) -> None:
    service = load(written(tmp_path, SHORT + "batch:\n  # max_records: 3\ndead_letter:\nname:\n"))
    assert service.batch.max_records == 512
    assert service.name == "digits"


def test_paths_are_relative_to_the_file_that_holds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    written(tmp_path / "a" / "b", "steps: [{'@type': LOGGING}]", "p.yaml")
    file = written(tmp_path / "a", SHORT.replace('[{"@type": LOGGING}]', "b/p.yaml"))
    monkeypatch.chdir(tmp_path)
    assert load(file).sequence().base == tmp_path / "a" / "b"
    assert load("a/digits.yaml").sequence().base == tmp_path / "a" / "b"
    assert load(written(tmp_path / "a", SHORT)).sequence().base == tmp_path / "a"
    assert loads(SHORT, base="a").sequence().base == tmp_path / "a"


def test_references_are_replaced_everywhere_but_in_pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPIC", "readings")
    monkeypatch.setenv("COUNT", "7")
    written(tmp_path, "secret\n", "secret.txt")
    text = """\
source: {type: memory, topic: "${TOPIC}", partitions: "${COUNT}", group: "${file:secret.txt}"}
pipeline: {steps: [{"@type": LOGGING}], id: "${TOPIC}"}
sink: {type: memory, topic: "${TOPIC}.$$out", when: {prob: {ge: "${LIMIT:-0.5}"}}}
batch: {max_wait: "${WAIT:-20ms}"}
"""
    service = load(written(tmp_path, text))
    source = service.sources[0]
    assert isinstance(source, MemorySourceConfig)
    assert (source.topic, source.partitions, source.group) == ("readings", 7, "secret")
    sink = service.sinks[0]
    assert isinstance(sink, MemorySinkConfig)
    assert sink.topic == "readings.$out"
    assert service.sequence().id == "${TOPIC}"
    assert service.batch.wait == pytest.approx(0.02)


def test_a_field_of_a_step_is_set_from_the_environment_and_the_pipeline_file_stays(tmp_path: Path) -> None:
    written(tmp_path, "steps: [{'@type': ONNX, name: model, modelUri: a.onnx}]\n", "p.yaml")
    text = SHORT.replace(SHORT[SHORT.index("pipeline:") :].splitlines()[0], "pipeline: p.yaml")
    file = written(tmp_path, text + 'set: {model.modelUri: "${MODEL:-a.onnx}"}\n')
    for environment, model in (({}, "a.onnx"), ({"MODEL": "b.onnx"}, "b.onnx")):
        (found,) = load(file, environment=environment).sequence().steps
        assert found.model_uri == model
    wrong = written(tmp_path, text + "set: {modle.modelUri: b.onnx}\n", "wrong.yaml")
    line = len(wrong.read_text().splitlines())
    with pytest.raises(
        DefinitionError, match=rf'wrong.yaml:{line}: set: "modle.modelUri" names no step; .*; did you mean'
    ):
        load(wrong)


def test_a_text_can_be_a_service_with_an_environment_of_its_own() -> None:
    service = loads(SHORT.replace("topic: in", "topic: '${T}'"), environment={"T": "x"})
    assert service.name == "service"
    assert service.sources[0] == MemorySourceConfig(topic="x", name="memory")


def test_an_environment_variable_opens_the_control_port_of_every_service(tmp_path: Path) -> None:
    environment = {"STREAMER_CONTROL": "0.0.0.0:9464"}
    guarded = SHORT + 'control: {listen: "127.0.0.1:8000", token: secret}\n'
    file = written(tmp_path, f"{SHORT}---\n{guarded}---\n{SHORT}control:\n")
    controls = [service.control for service in load_all(file, environment=environment)]
    assert [control.listen for control in controls if control is not None] == ["0.0.0.0:9464"] * 3
    assert [control.token is not None for control in controls if control is not None] == [False, True, False]
    konduit = load(
        written(tmp_path, "protocol: KAFKA\nkafkaConfiguration: {}\npipeline: {steps: []}"), environment=environment
    )
    assert konduit.control is not None
    assert konduit.control.listen == "0.0.0.0:9464"
    assert load(written(tmp_path, SHORT), environment={"STREAMER_CONTROL": ""}).control is None


def test_an_address_in_the_environment_that_is_none_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r'variable STREAMER_CONTROL: host:port is needed, .*, not "9464"'):
        load(written(tmp_path, SHORT), environment={"STREAMER_CONTROL": "9464"})


def test_a_file_may_hold_several_services(tmp_path: Path) -> None:
    file = written(tmp_path, f"{SHORT}---\n{SHORT}name: other\n")
    assert [service.name for service in load_all(file)] == ["digits-0", "other"]
    assert [service.name for service in load_all(written(tmp_path, SHORT))] == ["digits"]


def test_a_file_and_python_make_the_same_service(tmp_path: Path) -> None:
    built = Service(
        name="digits",
        source=MemorySourceConfig(topic="in"),
        pipeline=pipelines.Sequence([pipelines.Logging()]),
        sink=MemorySinkConfig(topic="out"),
    )
    assert load(written(tmp_path, SHORT)) == built


ERRORS = [
    (
        "a misspelt field of a connector",
        "source:\n  type: memory\n  topcis: [a]\npipeline: []\nsink: {type: memory, topic: b}",
        'digits.yaml:3: source.topcis: no such field; did you mean "topic"?',
    ),
    (
        "another system's word for a field of Kafka",
        SHORT.replace("{type: memory, topic: out}", "{type: kafka, topic: out, broker: localhost}"),
        'digits.yaml:3: sink.broker: no such field; did you mean "bootstrap"?',
    ),
    (
        "another system's word for a field of MQTT",
        SHORT.replace("{type: memory, topic: out}", "{type: mqtt, topic: out, host: localhost}"),
        'digits.yaml:3: sink.host: no such field; did you mean "url"?',
    ),
    (
        "a field that is like no other: all are named, those that are required and its own first",
        SHORT + "batch: {qqq: 1}",
        "digits.yaml:4: batch.qqq: no such field; delete it: known are type, max_wait, max_age, "
        "target_latency, max_records, max_bytes",
    ),
    (
        "a misspelt field of the service",
        SHORT + "dead_leter: {type: memory, topic: d}",
        'digits.yaml:4: dead_leter: no such field; did you mean "dead_letter"?',
    ),
    (
        "a misspelt field of a section",
        SHORT + "batch:\n  max_wait: 5ms\n  max_record: 3",
        'digits.yaml:6: batch.max_record: no such field; did you mean "max_records"?',
    ),
    (
        "an unknown connector",
        SHORT.replace("type: memory, topic: out", "type: memroy, topic: out"),
        'digits.yaml:3: sink.type: there is no sink of type "memroy"; did you mean "memory"?; '
        "known are clip, file, http, kafka, memory, mqtt, mqtt_endpoint, video, view",
    ),
    (
        "a connector without a type",
        SHORT.replace("type: memory, topic: out", "topic: out"),
        "digits.yaml:3: sink: type is required; known are clip, file, http, kafka, memory, mqtt, mqtt_endpoint, video, "
        "view",
    ),
    (
        "the second of several",
        SHORT.replace("sink: {", "sink:\n- {type: memory, topic: b}\n- {partitions: many, "),
        "digits.yaml:5: sink[1].partitions: must be an integer, not 'many'",
    ),
    ("no source", "pipeline: []\nsink: {type: memory, topic: b}", "digits.yaml:1: source: is required"),
    (
        "a bad duration",
        SHORT + "batch: {max_wait: 5 minutes}",
        'digits.yaml:4: batch.max_wait: "5 minutes" is not a duration like 5ms, 2s or 1m',
    ),
    (
        "a target for batches of one size",
        SHORT + "batch:\n  type: hard\n  target_latency: 20ms",
        "digits.yaml:6: batch.target_latency: is for batches of type soft; a hard one is run only when it is full; "
        "remove it, or write type: soft",
    ),
    (
        "two waits",
        SHORT + "batch:\n  max_wait: 5ms\n  target_latency: 20ms",
        "digits.yaml:4: batch: target_latency says how long records wait, and so does max_wait; remove one of them",
    ),
    (
        "a guarantee that its sink cannot give",
        SHORT.replace("sink: {type: memory, topic: out}", "sink: {type: file, path: b}") + "delivery: exactly_once",
        'digits.yaml:4: delivery: sink "file": a sink of type "file" sends in no transactions; use at_least_once',
    ),
    (
        "a missing pipeline file",
        SHORT.replace('[{"@type": LOGGING}]', "digit.yaml"),
        'digits.yaml:2: pipeline: digit.yaml: no such file; did you mean "digits.yaml"?',
    ),
    (
        "a mistake in an inline pipeline",
        SHORT.replace('[{"@type": LOGGING}]', '\n  steps:\n  - "@type": LOGGING\n    log: LOUD'),
        "digits.yaml:5: pipeline.steps[0].log: must be 'KEYS' or 'KEYS_AND_VALUES', not 'LOUD'",
    ),
    (
        "an undefined variable",
        SHORT.replace("topic: in", "topic: '${STREAMER_TEST_UNDEFINED}'"),
        "digits.yaml:1: source.topic: the environment variable STREAMER_TEST_UNDEFINED is not defined; set it, or "
        "write ${STREAMER_TEST_UNDEFINED:-default}",
    ),
    (
        "a condition that is none",
        SHORT.replace("topic: out", "topic: out, when: {p: {gte: 1}}"),
        "digits.yaml:3: sink.when: p: gte: no such comparison; there are gt, ge, lt, le, ne, exists",
    ),
    (
        "an option that the codec inside another has not",
        SHORT.replace("topic: out", "topic: out, codec: {type: compressed, codec: {type: json, prety: true}}"),
        'digits.yaml:3: sink.codec.codec: codec.prety: no such field; did you mean "pretty"?',
    ),
    (
        "a codec that is none",
        SHORT.replace("topic: out", "topic: out, codec: jsn"),
        'digits.yaml:3: sink.codec: there is no codec of type "jsn"; did you mean "json"?; known are '
        + ", ".join(sorted(CODECS.known)),
    ),
    (
        "a misspelt option of a codec",
        SHORT.replace("topic: in", "topic: in, codec: {type: konduit-json, byte_oder: little}"),
        'digits.yaml:1: source.codec.byte_oder: no such field; did you mean "byte_order"?',
    ),
    (
        "a metadata name that is none",
        SHORT.replace("topic: in", "topic: in, into: {keys: id}"),
        'digits.yaml:1: source.into: "keys" is not metadata of a record; did you mean "key"?; there are key, '
        "timestamp, topic, partition, offset, source, key.NAME and headers.NAME",
    ),
    (
        "a limit below one batch",
        SHORT + "limits:\n  in_flight: 1MiB",
        "digits.yaml:4: limits: in_flight (1048576 bytes) is less than one batch may hold (batch.max_bytes, "
        "16777216 bytes); raise the one or lower the other",
    ),
    (
        "several mistakes",
        SHORT + "delivery: often\nkepe: all\nbatch: {max_records: 0}\ncontrol: {}",
        "digits.yaml:6: batch.max_records: must be greater than or equal to 1, not 0\n"
        "digits.yaml:4: delivery: must be 'at_most_once', 'at_least_once' or 'exactly_once', not 'often'\n"
        'digits.yaml:5: kepe: no such field; did you mean "keep"? (and 1 more)',
    ),
    (
        "a pipeline instead of a service",
        "steps: []",
        "digits.yaml:1: this is a pipeline, not a service: use pipelines.load, or name it in a service file",
    ),
    ("a list", "- a", "digits.yaml:1: a service is a mapping with source, pipeline and sink"),
    ("nothing", "# later", "digits.yaml: is empty"),
    (
        "two services of one name",
        f"name: a\n{SHORT}---\nname: a\n{SHORT}",
        'digits.yaml:6: name: two services of the file have the name "a"',
    ),
]


@pytest.mark.parametrize(("text", "expected"), [one[1:] for one in ERRORS], ids=[one[0] for one in ERRORS])
def test_an_error_says_where_what_and_what_to_do(
    text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problem(tmp_path, text, monkeypatch) == expected


def test_a_mistake_in_a_pipeline_file_names_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "steps:\n- {'@type': LOGING}", "p.yaml")
    text = problem(tmp_path, SHORT.replace('[{"@type": LOGGING}]', "p.yaml"), monkeypatch)
    assert text.startswith('p.yaml:2: steps[0].@type: no such step type: "LOGING"; did you mean "LOGGING"?')


def test_a_missing_file_and_one_of_several_services_are_errors(tmp_path: Path) -> None:
    written(tmp_path, SHORT)
    with pytest.raises(DefinitionError, match=r'digit\.yaml: no such file; did you mean "digits\.yaml"\?'):
        load(tmp_path / "digit.yaml")
    with pytest.raises(DefinitionError, match="a second YAML document"):
        load(written(tmp_path, f"{SHORT}---\n{SHORT}", "two.yaml"))


EVERYWHERE = """\
nmae: fans
source: {type: kafka, topcis: [a], topics: 5, codec: {type: jsn}, into: {key: 3}}
pipeline:
  steps:
  - {'@type': ONX}
  - {'@type': LOGGING, logLevl: INFO}
  - {'@type': FEATURES, fields: 3, output: x}
  idd: fans
sink: [{type: memory, topik: out}, {type: memory, topic: out, codec: {type: json, nan: maybe, colour: red}}]
batch: {max_records: many, max_wait: 5 parsecs}
limits: {in_flight: lots}
"""


def test_every_mistake_of_a_file_is_told_or_how_many_more_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, EVERYWHERE)
    with pytest.raises(DefinitionError) as caught:
        load("digits.yaml")
    wrong = {re.match(r"digits\.yaml:(\d+): ([^:]*):", one).groups() for one in caught.value.problems}  # type: ignore[union-attr]
    assert wrong == {
        ("1", "nmae"),
        ("2", "source.topcis"),
        ("2", "source.topics"),
        ("2", "source.codec.type"),
        ("2", "source.into.key"),
        ("5", "pipeline.steps[0].@type"),
        ("6", "pipeline.steps[1].logLevl"),
        ("7", "pipeline.steps[2].fields"),
        ("8", "pipeline.idd"),
        ("9", "sink[0].topik"),
        ("9", "sink[1].codec.nan"),
        ("9", "sink[1].codec.colour"),
        ("10", "batch.max_records"),
        ("10", "batch.max_wait"),
        ("11", "limits.in_flight"),
    }
    assert len(caught.value.problems) == len(wrong)
    assert len(str(caught.value).splitlines()) == 3
    assert str(caught.value).endswith(f"(and {len(wrong) - 3} more)")


def test_every_variable_that_is_not_defined_is_told_in_every_service_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = "source: {type: memory, topic: $IN}\npipeline: []\nsink: {type: memory, topic: $OUT}\n"
    text = service.replace("$IN", "'${A}'").replace("$OUT", "'${B}'")
    found = problem(tmp_path, f"{text}---\n{service}batch: {{max_records: 0}}", monkeypatch)
    assert [line.split(": ")[:2] for line in found.splitlines()] == [
        ["digits.yaml:1", "source.topic"],
        ["digits.yaml:3", "sink.topic"],
        ["digits.yaml:8", "batch.max_records"],
    ]


def test_a_mistake_in_a_secret_is_told_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SHORT.replace("topic: out", "topic: out, codec: {type: json, nan: '${PASSWORD}', pretty: '${PASSWORD}'}")
    monkeypatch.setenv("PASSWORD", "hunter2hunter2")
    monkeypatch.chdir(tmp_path)
    written(tmp_path, text)
    with pytest.raises(DefinitionError) as caught:
        load("digits.yaml")
    assert len(caught.value.problems) == 2
    assert "hunter2" not in f"{caught.value} {caught.value.problems}"
