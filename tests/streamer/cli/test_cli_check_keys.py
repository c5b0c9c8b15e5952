"""What `streamer check` says when the keys of results do not fit the schema that a sink writes them by."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from onnx import TensorProto, helper, save

from connectors.codecs.schemas.registry import mock_registry

ROOT = Path(__file__).parents[3]
DIGITS: list[dict[str, Any]] = [
    {"@type": "ONNX", "modelUri": "digits.onnx"},
    {"@type": "CLASSIFIER_OUTPUT"},
]
"""Leaves probabilities, prob, index and label."""


@pytest.fixture
def checked(cli: Any, tmp_path: Path) -> Any:
    """`checked(FIELD=...)`: the texts of what `streamer check` finds wrong with a service, by part."""
    shutil.copy(ROOT / "examples" / "digits" / "digits.onnx", tmp_path)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in ("a", "b", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "sum", ports[:2], ports[2:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "sum.onnx")

    def check(*options: str, **fields: Any) -> list[tuple[str, str]]:
        sink = {"type": "memory", "topic": "out", **fields.pop("sink", {})}
        service = {"source": {"type": "memory", "topic": "in", "codec": "json"}, "pipeline": DIGITS, "on_error": "drop"}
        file = tmp_path / "service.yaml"
        file.write_text(json.dumps({**service, **fields, "sink": sink}))
        ended = cli("check", file, "--json", *options)
        (found,) = json.loads(ended.out)["services"]
        wrong = [(one["part"], one["text"]) for one in found["findings"] if not one["ok"]]
        assert ended.code == (2 if [one for one in wrong if one[0].startswith(("sink", "step", "source"))] else 0), (
            ended.out
        )
        return wrong

    return check


def avro(*fields: str, **optional: Any) -> dict[str, Any]:
    listed: list[dict[str, Any]] = [{"name": name, "type": "double"} for name in fields]
    listed += [{"name": name, "type": ["null", "string"], "default": None} for name in optional]
    return {"type": "avro", "schema": {"type": "record", "name": "Risk", "fields": listed}}


def json_schema(*fields: str, **optional: Any) -> dict[str, Any]:
    schema = {"properties": {key: {} for key in [*fields, *optional]}, "required": list(fields)}
    return {"type": "json-schema", "schema": {**schema, "type": "object", "additionalProperties": False}}


def protobuf(folder: Path, *fields: str) -> dict[str, Any]:
    kinds = [
        FieldDescriptorProto(name=name, number=at, type=FieldDescriptorProto.TYPE_DOUBLE)
        for at, name in enumerate(fields, start=1)
    ]
    file = FileDescriptorProto(
        name="risk.proto", syntax="proto3", message_type=[DescriptorProto(name="Risk", field=kinds)]
    )
    (folder / "risk.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    return {"type": "protobuf", "descriptors": "risk.desc", "message": "Risk"}


@pytest.mark.parametrize("kind", ["avro", "json-schema", "protobuf", "csv", "compressed"])
def test_a_key_of_results_that_the_sinks_schema_lacks_is_wrong(checked: Any, tmp_path: Path, kind: str) -> None:
    codec = {
        "avro": avro("prob", "label"),
        "json-schema": json_schema("prob", "label"),
        "protobuf": protobuf(tmp_path, "prob", "label"),
        "csv": {"type": "csv", "names": ["prob", "label"]},
        "compressed": {"type": "compressed", "codec": avro("prob", "label")},
    }[kind]
    ((part, text),) = checked(sink={"codec": codec})
    assert part == "sink memory"
    assert 'has no field "index", "probabilities"' in text
    assert "drop: [index, probabilities]" in text
    assert checked(sink={"codec": codec, "drop": ["index", "probabilities"]}) == []
    assert checked(sink={"codec": codec, "keys": ["prob", "label"]}) == []


@pytest.mark.parametrize("made", [avro, json_schema])
def test_a_field_that_no_result_fills_is_wrong(checked: Any, made: Any) -> None:
    codec = made("prob", "lable", "index", "probabilities", label="text")
    ((part, text),) = checked(sink={"codec": codec})
    assert part == "sink memory"
    assert 'requires "lable", but results have index, label, prob, probabilities: ' in text
    assert text.endswith('did you mean "label"?')


def test_a_field_with_a_default_need_not_be_filled(checked: Any) -> None:
    codec = avro("prob", "index", "probabilities", label="text", place="text")
    assert checked(sink={"codec": codec}) == []


def test_values_that_are_kept_fill_fields_and_need_some(checked: Any) -> None:
    codec = avro("prob", "label", "index", "probabilities", "ts")
    ((_, text),) = checked(sink={"codec": codec})
    assert 'requires "ts"' in text
    assert checked(sink={"codec": codec}, keep=["ts"]) == []
    ((_, text),) = checked(sink={"codec": codec}, keep=["ts", "machine"])
    assert 'has no field "machine"' in text


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (
            {"type": "kafka", "bootstrap": "127.0.0.1:9", "topic": "out.{lable}", "topics": ["^out"]},
            'topic needs "lable"',
        ),
        ({"when": {"probs": {"gt": 0.5}}}, 'when needs "probs"'),
        ({"keys": ["label", "machine"]}, 'keys needs "machine"'),
    ],
)
def test_a_setting_of_a_sink_that_names_a_value_which_no_result_has_is_wrong(
    checked: Any, setting: dict[str, Any], text: str
) -> None:
    ((part, told),) = checked(sink={"codec": "json", **setting})
    assert part == f"sink {setting.get('type', 'memory')}"
    assert text in told
    assert checked(sink={"codec": "json", **setting}, keep="all") == []
    assert checked(sink={"codec": "json", "when": {"gone": {"exists": False}}}) == []


def test_what_a_function_gives_is_not_guessed(checked: Any) -> None:
    pipeline = [*DIGITS, {"@type": "FUNCTION", "function": "json:loads"}]
    assert checked(pipeline=pipeline, sink={"codec": avro("risk")}) == []


def test_the_steps_of_a_pipeline_inside_count_too(checked: Any) -> None:
    features = {"@type": "FEATURES", "fields": ["a", "y"], "output": "x"}
    inside: dict[str, Any] = {"@type": "PIPELINE", "pipeline": {"steps": DIGITS}}
    found = dict(checked(pipeline=[inside], sink={"codec": avro("prob", "label")}))
    assert 'has no field "index", "probabilities"' in found["sink memory"]
    source = {"type": "memory", "topic": "in", "codec": {"type": "csv", "names": ["a", "b"]}}
    score = {"@type": "FEATURES", "fields": ["b"], "output": "y"}
    deep = {
        "@type": "PIPELINE",
        "pipeline": {"steps": [{"@type": "PIPELINE", "pipeline": {"steps": [score]}}, features]},
    }
    assert checked(source=source, pipeline=[deep], sink={"codec": {"type": "csv", "names": ["a", "b", "x", "y"]}}) == []
    found = dict(checked(source=source, pipeline=[{"@type": "PIPELINE", "pipeline": {"steps": [features]}}]))
    assert found["step 0:PIPELINE"].startswith('it needs "y", but records have a, b here')


def test_branches_of_a_graph_add_up(checked: Any) -> None:
    pipeline = {
        "outputStep": "both",
        "steps": {
            "model": {**DIGITS[0], "@input": "input"},
            "label": {**DIGITS[1], "@input": "model", "returnProb": False, "returnIndex": False},
            "score": {"@type": "REGRESSION_OUTPUT", "names": {"first": 0}, "@input": "model", "inputName": "x"},
            "both": {"@type": "MERGE", "@input": ["label", "score"]},
        },
    }
    found = dict(checked(pipeline=pipeline, sink={"codec": avro("label", "first")}))
    assert 'has no field "probabilities"' in found["sink memory"]


def test_the_schema_of_a_registry_is_held_against_results_once_it_is_asked(checked: Any) -> None:
    url = f"mock://{uuid.uuid4()}"
    mock_registry(url).register_schema("out-value", Schema(json.dumps(avro("prob")["schema"]), "AVRO"))
    sink = {"codec": {"type": "avro", "registry": {"url": url}}}
    assert checked(sink=sink) == []
    ((part, text),) = checked("--connect", sink=sink)
    assert part == "sink memory"
    assert '"index", "label", "probabilities"' in text


@pytest.mark.parametrize(
    "step",
    [
        {"@type": "ONNX", "modelUri": "sum.onnx"},
        {"@type": "ONNX", "modelUri": "digits.onnx", "inputs": {"image": ["a", "b"]}},
        {"@type": "FEATURES", "fields": ["a", "b"], "output": "x"},
        {"@type": "CLASSIFIER_OUTPUT", "inputName": "b"},
    ],
)
@pytest.mark.parametrize("codec", [{"type": "csv", "names": ["a", "bb"]}, avro("a", "bb")])
def test_a_value_that_a_step_needs_and_no_source_has_is_wrong(
    checked: Any, step: dict[str, Any], codec: dict[str, Any]
) -> None:
    source = {"type": "memory", "topic": "in", "codec": codec}
    ((part, text),) = checked(source=source, pipeline=[step])
    assert part == f"step 0:{step['@type']}"
    assert text == 'it needs "b", but records have a, bb here; did you mean "bb"?'
    assert checked(source={**source, "into": {"key": "b"}}, pipeline=[step]) == []


def test_an_attribute_of_an_event_that_becomes_a_value_is_there_for_steps(checked: Any) -> None:
    codec = {"type": "cloudevents", "codec": {"type": "csv", "names": ["a"]}}
    source = {"type": "memory", "topic": "in", "codec": codec}
    step = {"@type": "FEATURES", "fields": ["a", "b"], "output": "x"}
    ((_, text),) = checked(source=source, pipeline=[step])
    assert text == 'it needs "b", but records have a here'
    codec["attributes"] = {"reading": "b"}
    assert checked(source=source, pipeline=[step]) == []


@pytest.mark.parametrize("wrapped", [False, True])
def test_the_latest_schema_of_a_sources_topic_tells_what_records_lack_once_the_registry_is_asked(
    checked: Any, wrapped: bool
) -> None:
    url = f"mock://{uuid.uuid4()}"
    mock_registry(url).register_schema("in-value", Schema(json.dumps(avro("a", "bb")["schema"]), "AVRO"))
    codec: dict[str, Any] = {"type": "avro", "registry": {"url": url}}
    source = {"type": "memory", "topic": "in", "codec": {"type": "compressed", "codec": codec} if wrapped else codec}
    step = {"@type": "FEATURES", "fields": ["a", "b"], "output": "x"}
    assert checked(source=source, pipeline=[step]) == []
    ((part, text),) = checked("--connect", source=source, pipeline=[step])
    assert (part, text) == ("step 0:FEATURES", 'it needs "b", but records have a, bb here; did you mean "bb"?')
    assert checked("--connect", source={**source, "into": {"key": "b"}}, pipeline=[step]) == []


def test_a_schema_that_the_service_may_not_read_is_not_read_for_the_check(
    cli: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "secret.avsc"
    elsewhere.write_text(json.dumps(avro("prob", "hush")["schema"]))
    file = tmp_path / "service.yaml"
    file.write_text(
        "source: {type: memory, topic: in}\npipeline: []\n"
        f"sink: {{type: memory, topic: out, codec: {{type: avro, schema: '{elsewhere}'}}}}\n"
    )
    ended = cli("check", file, "--no-code")
    assert ended.code == 2
    assert "hush" not in ended.out + ended.err


def test_a_value_with_a_default_is_not_needed(checked: Any) -> None:
    source = {"type": "memory", "topic": "in", "codec": {"type": "csv", "names": ["a"]}}
    step = {"@type": "FEATURES", "fields": ["a", {"field": "b", "default": 0}], "output": "x"}
    assert checked(source=source, pipeline=[step]) == []


MOTION = [{"@type": "MOTION", "outputName": "motion"}, {"@type": "TRACK", "bboxName": "motion"}]
ZONES = {"@type": "ZONES", "bboxName": "motion", "zones": {"door": {"points": [[0, 0], [1, 0], [1, 1]]}}}


@pytest.mark.parametrize(
    ("when", "text"),
    [
        ({"motion": {"gt": 2}}, 'the value "motion" is of type LIST and cannot be compared; write motion: true'),
        ({"ids": "car"}, 'the value "ids" is of type LIST and cannot be compared'),
        ({"counts": {"ge": 1}}, 'the value "counts" is of type DATA and cannot be compared; have a FUNCTION step make'),
        ({"image": "cat"}, 'the value "image" is of type IMAGE and cannot be compared'),
        ({"input": {"gt": 0.5}}, 'the value "input" is of type NDARRAY of shape [1, 3, 8, 8] and cannot be compared'),
    ],
)
def test_a_condition_on_values_that_it_cannot_be_compared_with_is_found(
    checked: Any, when: dict[str, Any], text: str
) -> None:
    config = {"height": 8, "width": 8}
    array = {"@type": "IMAGE_TO_NDARRAY", "keys": ["image"], "outputNames": ["input"], "config": config}
    pipeline = [*MOTION, ZONES] if "input" not in when else [{**array, "keepOtherValues": True}]
    source = {"type": "camera", "cameras": {"gate": "lavfi:testsrc2"}}
    ((part, found),) = checked(source=source, pipeline=pipeline, sink={"when": when})
    assert part == "sink memory"
    assert text in found


@pytest.mark.parametrize(
    "when",
    [
        {"motion": True, "ids": {"ne": False}, "counts": {"exists": True}},
        {"label": "cat"},
        {"prob": {"gt": 0.5}},
    ],
)
def test_conditions_that_may_hold_are_not(checked: Any, when: dict[str, Any]) -> None:
    source = {"type": "camera", "cameras": {"gate": "lavfi:testsrc2"}}
    fields = {"source": source, "pipeline": [*MOTION, ZONES]} if "motion" in when else {}
    assert checked(**fields, sink={"when": when}) == []


@pytest.mark.parametrize("where", ["tmep > 30", {"tmep": {"gt": 30}}, [{"device": "a"}, {"tmep": 1}]])
def test_a_source_whose_condition_names_a_value_that_no_record_has_is_an_error(checked: Any, where: Any) -> None:
    codec = {"type": "csv", "names": ["id", "temp"]}
    source = {"type": "memory", "topic": "in", "codec": codec, "into": {"key": "device"}, "where": where}
    ((part, text),) = checked(source=source, pipeline=[])
    assert part == "source memory"
    assert text.startswith('where needs "tmep", but records have device, id, temp (')
    assert text.endswith('did you mean "temp"?')


def test_a_source_whose_condition_may_hold_is_no_error(checked: Any) -> None:
    source = {"type": "memory", "topic": "in", "codec": {"type": "csv", "names": ["id", "temp"]}}
    assert checked(source={**source, "where": [{"tmep": {"exists": False}}, "temp > 30"]}, pipeline=[]) == []
    assert checked(source={**source, "codec": "json", "where": "tmep > 30"}, pipeline=[]) == []
