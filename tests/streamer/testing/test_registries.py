"""Services whose codecs have a schema registry, tested without any registry."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

import streamer
from connectors.codecs.schemas import registry
from connectors.codecs.schemas.registry import mock_registry
from pipelines.errors import DefinitionError
from streamer.definition.loading import loads
from streamer.definition.service import Service
from streamer.testing.cases import Case
from streamer.testing.trial import tried

NOBODY = {"url": "http://127.0.0.1:9", "auth": {"user": "streamer", "password": "secret"}}
READING = {
    "type": "record",
    "name": "Reading",
    "fields": [{"name": "temp", "type": "float"}, {"name": "machine", "type": ["null", "string"], "default": None}],
}


def service(source: Any, sink: Any = "json", folder: Path = Path(), **fields: Any) -> Service:
    text = {
        "source": {"type": "kafka", "bootstrap": "127.0.0.1:9", "topics": "readings", "codec": source},
        "pipeline": [],
        "sink": {"type": "kafka", "bootstrap": "127.0.0.1:9", "topic": "scores", "codec": sink},
        **fields,
    }
    return loads(json.dumps(text), folder)


def descriptors(folder: Path) -> dict[str, str]:
    kinds = FieldDescriptorProto
    temp = kinds(name="temp", number=1, type=kinds.TYPE_DOUBLE)
    machine = kinds(name="machine", number=2, type=kinds.TYPE_STRING)
    message = DescriptorProto(name="Reading", field=[temp, machine])
    file = FileDescriptorProto(name="reading.proto", syntax="proto3", message_type=[message])
    (folder / "reading.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    return {"descriptors": "reading.desc", "message": "Reading"}


@pytest.mark.parametrize("kind", ["avro", "json-schema"])
@pytest.mark.parametrize(
    ("framing", "wrapper"),
    [("payload", None), ("header", None), ("payload", "compressed"), ("payload", "cloudevents")],
)
def test_records_and_results_of_a_registry_need_none(kind: str, framing: str, wrapper: str | None) -> None:
    codec: dict[str, Any] = {"type": kind, "registry": {**NOBODY, "framing": framing}}
    if wrapper is not None:
        codec = {"type": wrapper, "codec": codec}
    # The schema of the results is in the registry only: they may have any keys.
    report = streamer.testing.run(service(codec, codec), [{"temp": 21.5}, {"temp": 22.0, "machine": "m1"}])
    assert [dict(one or {}) for one in report.results] == [{"temp": 21.5}, {"temp": 22.0, "machine": "m1"}]
    assert report.acknowledged == 2


def test_no_schema_is_left_behind() -> None:
    before = set(registry._mocks)
    streamer.testing.run(service({"type": "avro", "registry": NOBODY}), [{"temp": 21.5}])
    assert set(registry._mocks) == before


@pytest.mark.parametrize("field", ["schema", "reader_schema"])
def test_records_are_written_by_the_schema_that_the_codec_names(field: str) -> None:
    made = service({"type": "avro", "registry": NOBODY, field: READING})
    report = streamer.testing.run(made, [{"temp": 0.1}])
    # As a float that went through Avro.
    assert dict(report.results[0] or {}) == {"temp": 0.10000000149011612}


def test_a_case_may_hold_the_schema_of_its_records(tmp_path: Path) -> None:
    (tmp_path / "reading.avsc").write_text(json.dumps(READING))
    made = service({"type": "avro", "registry": NOBODY})
    for schema in ("reading.avsc", READING):
        case = Case(name="one", input={"temp": 0.1}, schema=schema, expect={"temp": 0.10000000149011612}, tolerance=0)
        assert tried(made, case.model_copy(update={"folder": tmp_path})).problems == []


def test_a_value_that_the_schema_does_not_take_is_a_problem_of_the_case() -> None:
    made = service({"type": "avro", "registry": NOBODY})
    (problem,) = tried(made, Case(name="one", input={"temp": "hot"}, schema=READING)).problems
    assert problem.startswith("the input cannot be written by the codec of the source kafka: ")
    assert "temp" in problem


def test_results_that_do_not_fit_the_sinks_schema_fail_as_they_would() -> None:
    made = service("json", {"type": "avro", "registry": NOBODY, "schema": READING})
    (problem,) = tried(made, Case(name="one", input={"temp": 1.0, "vib": 2.0})).problems
    assert 'the schema of the results has no field "vib"' in problem
    assert tried(service("json", {"type": "avro", "registry": NOBODY}), Case(name="one", input={"vib": 2.0})).ok
    case = Case(name="one", input={"vib": 2.0}, sink_schema=READING)
    assert not tried(service("json", {"type": "avro", "registry": NOBODY}), case).ok
    derived = service("json", {"type": "avro", "registry": {**NOBODY, "auto_register": True}})
    assert not tried(derived, Case(name="one", input={"vi-b": 2.0})).ok


def test_protobuf_of_a_registry_needs_a_schema_in_the_case(tmp_path: Path) -> None:
    schema = descriptors(tmp_path)
    codec = {"type": "protobuf", "registry": NOBODY}
    case = Case(
        name="one", input={"temp": 0.5}, schema=schema, sink_schema=schema, expect={"temp": 0.5}, folder=tmp_path
    )
    assert tried(service(codec, codec), case).problems == []
    with pytest.raises(DefinitionError, match=r"the case \(schema: \{descriptors: FILE, message: NAME\}\)"):
        tried(service(codec), Case(name="one", input={"temp": 0.5}))
    assert tried(service("json", codec), Case(name="one", input={"temp": 0.5}, expect={"temp": 0.5})).ok


def test_a_registry_in_memory_is_the_one_that_the_service_names() -> None:
    url = f"mock://{uuid.uuid4()}"
    mock_registry(url).register_schema("readings-value", Schema(json.dumps(READING), "AVRO"))
    report = streamer.testing.run(service({"type": "avro", "registry": {"url": url}}), [{"temp": 0.1}])
    assert dict(report.results[0] or {}) == {"temp": 0.10000000149011612}


def test_a_topic_made_from_values_names_no_subject_of_records() -> None:
    made = service({"type": "avro", "registry": NOBODY})
    source = {"type": "mqtt", "topics": "site/{device}/t", "codec": {"type": "avro", "registry": NOBODY}}
    report = streamer.testing.run(
        loads(json.dumps({"source": source, "pipeline": [], "sink": made.sinks[0].model_dump(mode="json")}), Path()),
        [{"temp": 21.5}],
    )
    assert dict(report.results[0] or {}) == {"temp": 21.5}


@pytest.mark.parametrize(
    ("codec", "record"),
    [("cloudevents", '{"n": 1e400}'), ("konduit-json", '{"inner": {"@type": "x"}}')],
)
def test_what_cannot_be_read_back_is_in_the_report(codec: str, record: str) -> None:
    report = streamer.testing.run(service("json", codec), [{"id": 1}, record.encode()])
    assert [None if one is None else dict(one) for one in report.results] == [{"id": 1}, None]
    assert list(report.unreadable["kafka"]) == [1]
    assert len(report.sinks["kafka"]) == 2
    (problem,) = tried(service("json", codec), Case(name="one", input=record)).problems
    assert problem == f"result 0 cannot be read back: {report.unreadable['kafka'][1]}"
