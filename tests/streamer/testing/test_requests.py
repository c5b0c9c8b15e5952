"""Services that answer requests, tested without a port."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pageblocks import ROOT

import streamer

SERVICE = """
source:
  - {type: http, codec: json, listen: "127.0.0.1:1"}
  - {type: kafka, topics: in, codec: json}
pipeline: []
sink:
  - {type: http}
  - {type: kafka, topic: out, codec: json, sources: kafka}
dead_letter: {type: kafka, topic: dead}
"""


def test_requests_and_records_of_a_topic_have_answers_results_and_failures_in_memory() -> None:
    service = streamer.loads(SERVICE)
    records: dict[str, list[Any]] = {"http": [{"a": 1}, b"{", {"a": 2}], "kafka": [b"{", {"a": 3}]}
    report = streamer.testing.run(service, records)
    assert [json.loads(message.value) for message in report.sinks["http"]] == [{"a": 1}, {"a": 2}]
    assert [json.loads(message.value) for message in report.sinks["kafka"]] == [{"a": 3}]
    assert [letter.step for letter in report.dead] == ["decode", "decode"]
    assert sorted(letter.message.value or b"" for letter in report.dead) == [b"{", b"{"]
    assert report.acknowledged == 5


def test_records_of_a_test_have_the_element_types_that_the_model_takes() -> None:
    service = streamer.loads(
        """
source: {type: http}
pipeline: examples/digits/digits.pipeline.yaml
sink: {type: http, keys: [label]}
""",
        base=ROOT,
    )
    report = streamer.testing.run(service, [{"image": [[0] * 8] * 8}, {"image": [[0, 16], [16, 0]]}])
    assert 'input "image"' in report.dead[0].error.replace("output", "input")
    (answer,) = [json.loads(message.value or b"") for message in report.sinks["http"]]
    assert [output["name"] for output in answer["outputs"]] == ["label"]


def test_a_malformed_request_is_no_reason_to_advise_another_codec(caplog: pytest.LogCaptureFixture) -> None:
    service = streamer.loads("{source: {type: http}, pipeline: [], sink: {type: http}}")
    report = streamer.testing.run(service, [b'{"a": 1}'])
    assert len(report.dead) == 1
    assert "another codec" not in caplog.text
