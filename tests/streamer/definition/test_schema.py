"""The JSON schema of service files accepts right files, and rejects wrong ones at the place of the mistake."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from pipelines.definitions.documents import parse_document
from streamer.definition.schema import SCHEMA_ID, service_schema


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return service_schema()


def problems(schema: dict[str, Any], text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema)
    return [error.json_path for error in validator.iter_errors(parse_document(text).data)]


MEMORY = """\
source: {type: memory, topic: in, into: {key: device_id}}
pipeline: digits.pipeline.yaml
sink: {type: memory, topic: out}
"""

DIGITS = """\
# digits.yaml: topic in, model, topic out
name: digits
source:
  type: kafka
  bootstrap: ${KAFKA_BOOTSTRAP_SERVERS:-localhost:9092}
  topics: [digits.images]            # or one string, or a regular expression that begins with ^
  group: digits
  start: earliest                    # earliest | latest | a time; only where the group has committed nothing
  codec: protodata                   # a name, or {type: konduit-json, byte_order: little}
  into: {key: device_id}             # optional: record key, timestamp, headers.NAME, topic, ... become values
  client: {}                         # any librdkafka property, passed through
pipeline: digits.pipeline.yaml       # a path relative to this file, or the definition inline
keep: [device_id, ts]                # optional: input values that the pipeline dropped are put back
batch:
  max_records: 512
  max_wait: 5ms                      # counted from the arrival of the oldest record
  max_bytes: 16MiB
sink:
  type: kafka
  topic: digits.predictions          # may use {record.key}, {record.topic}, {record.partition} and {label}
  codec: protodata
dead_letter: {type: kafka, topic: digits.dead}
delivery: at_least_once              # at_most_once | at_least_once | exactly_once
limits: {in_flight: 64MiB, batches: 2}
errors: {stop_ratio: 0.5, over: 200}
control: {listen: "127.0.0.1:9464"}  # metrics and health; absent: none
"""


@pytest.mark.slow
def test_the_schema_has_an_id_and_descriptions(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == SCHEMA_ID
    for key in ("source", "pipeline", "sink", "keep", "delivery", "limits"):
        assert schema["properties"][key]["description"], key
    assert schema["$defs"]["BatchSettings"]["properties"]["max_wait"]["description"]
    assert schema["$defs"]["source-memory"]["properties"]["topic"]["description"]


def test_the_documented_service_file_is_valid(schema: dict[str, Any]) -> None:
    assert problems(schema, DIGITS) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        MEMORY,
        MEMORY.replace("digits.pipeline.yaml", '{steps: [{"@type": LOGGING}], id: x}'),
        MEMORY.replace("digits.pipeline.yaml", '[{"@type": ONNX, "modelUri": m.onnx}]'),
        MEMORY.replace("sink: {type: memory, topic: out}", "sink: [{type: memory, topic: out, when: {a: 1}}]"),
        DIGITS.replace("[digits.images] ", "digits.images "),
        MEMORY.replace("topic: in", "topic: in, codec: {type: konduit-json, byte_order: little}"),
        MEMORY.replace("topic: in", "topic: in, codec: '${CODEC}'"),
        MEMORY + "batch: {max_records: '${N}', max_wait: 0.5, max_bytes: '${S:-1MiB}', type: '${T}'}",
        MEMORY + "limits:\n#  in_flight: 1MiB\nname:",
        MEMORY.replace("digits.pipeline.yaml", "[{'@type': ONNX, model_uri: m.onnx, inputs: {x: [a, {field: b}]}}]"),
        MEMORY.replace("digits.pipeline.yaml", "[{'@type': FEATURES, fields: [a], output: x}]"),
        MEMORY.replace(
            "digits.pipeline.yaml", "[{'@type': IMAGE_TO_NDARRAY, config: {data_type: UINT8, dataType: UINT8}}]"
        ).replace(", dataType: UINT8", ""),
        MEMORY.replace("{type: memory, topic: in, into: {key: device_id}}", "{type: camera, cameras: {a: b.mp4}}"),
        MEMORY.replace(
            "{type: memory, topic: in, into: {key: device_id}}",
            "{type: camera, cameras: {a: {url: 'http://h/', options: {timeout: 5}}}}",
        ),
        MEMORY.replace("{type: memory, topic: in, into: {key: device_id}}", "{type: mqtt, topics: a, version: 5}"),
        "protocol: KAFKA\nkafka_configuration: {consumerTopicName: in}\npipeline: {steps: [{'@type': LOGGING}]}",
        MEMORY + "keep: all\ndead_letter: {type: memory, topic: d}\non_error: stop",
    ],
)
def test_a_right_service_file_is_valid(schema: dict[str, Any], text: str) -> None:
    assert problems(schema, text) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (MEMORY + "kepe: all", "$"),
        (MEMORY + "batch: {max_record: 3}", "$.batch"),
        (MEMORY + "batch: {max_records: many}", "$.batch.max_records"),
        (MEMORY + "batch: {max_wait: 5 minutes}", "$.batch.max_wait"),
        (MEMORY + "limits: {in_flight: 64K}", "$.limits.in_flight"),
        (MEMORY + "delivery: often", "$.delivery"),
        (MEMORY.replace("topic: in", "topcis: in"), "$.source"),
        (MEMORY.replace("type: memory, topic: out", "topic: out"), "$.sink"),
        (MEMORY.replace("digits.pipeline.yaml", "{}"), "$.pipeline"),
        (MEMORY.replace("topic: in", "topic: in, codec: jsn"), "$.source"),
        (MEMORY.replace("topic: in", "topic: in, codec: {type: konduit-json, byte_oder: little}"), "$.source"),
        ("pipeline: a", "$"),
        ("protocol: KAFKA\nprot: 9092\npipeline: {steps: []}", "$"),
        (MEMORY.replace("digits.pipeline.yaml", "[{'@type': FEATURES, fields: [1], output: x}]"), "$.pipeline"),
    ],
)
def test_a_wrong_service_file_is_not_valid_at_the_place_of_its_mistake(
    schema: dict[str, Any], text: str, place: str
) -> None:
    assert place in problems(schema, text)
