"""Requests over topics: a record that failed is answered at the address that its headers name."""

from __future__ import annotations

import json
from typing import Any

import pytest

import pipelines
import streamer
from connectors.message import Message
from pipelines import Data
from pipelines.errors import DefinitionError
from streamer import testing

SINK = {
    "type": "kafka",
    "bootstrap": "nowhere:9092",
    "topic": "{record.headers.reply-to}",
    "topics": ["^answers-"],
    "codec": "json",
    "errors": True,
}


def halved(data: Data) -> Data:
    if data["x"] < 0:
        raise ValueError("x is negative")
    return Data({"y": data["x"] / 2})


def asked(sink: dict[str, Any], *records: tuple[bytes, str | None], **fields: Any) -> testing.Report:
    service = streamer.Service(
        name="asked",
        source={"type": "kafka", "bootstrap": "nowhere:9092", "topics": "requests", "codec": "json"},
        pipeline=pipelines.Sequence([halved]),
        sink=sink,
        dead_letter={"type": "memory", "topic": "dead"},
        errors={"stop_ratio": 1, "first": 0},
        **fields,
    )
    messages = [
        Message(body, b"k%d" % at, headers=() if to is None else (("reply-to", to.encode()), ("id", b"%d" % at)))
        for at, (body, to) in enumerate(records)
    ]
    return testing.run(service, messages)


def answers(report: testing.Report) -> list[tuple[str | None, Any, bytes | None, dict[str, bytes | None]]]:
    return [(one.topic, json.loads(one.value), one.key, dict(one.headers)) for one in report.sinks["kafka"]]


def test_failed_requests_are_answered_at_their_address_even_if_they_cannot_be_decoded() -> None:
    report = asked(SINK, (b'{"x": 2}', "answers-a"), (b'{"x": -2}', "answers-b"), (b"bad", "answers-c"))
    by_topic = {topic: (value, key, headers) for topic, value, key, headers in answers(report)}
    assert by_topic["answers-a"][0] == {"y": 1.0}
    assert "streamer-error" not in by_topic["answers-a"][2]
    assert by_topic["answers-b"] == (
        {"error": "x is negative", "step": "0:FUNCTION"},
        b"k1",
        {"reply-to": b"answers-b", "id": b"1", "streamer-error": b"ValueError"},
    )
    assert by_topic["answers-c"][0]["step"] == "decode"
    assert by_topic["answers-c"][2]["streamer-error"] == b"WireError"
    assert len(report.dead) == 2
    assert report.acknowledged == 3


def test_a_failed_record_without_an_address_is_a_dead_letter_alone() -> None:
    report = asked(SINK, (b'{"x": -2}', None), (b'{"x": -3}', "elsewhere"), (b'{"x": 4}', "answers-a"))
    assert [topic for topic, *_ in answers(report)] == ["answers-a"]
    assert len(report.dead) == 2


def test_requests_without_an_address_are_answered_at_the_default_topic() -> None:
    sink = {**SINK, "default_topic": "answers"}
    report = asked(sink, (b'{"x": 2}', None), (b'{"x": -2}', None), (b'{"x": 6}', ""), (b'{"x": 8}', "elsewhere"))
    assert [(topic, value.get("y", value.get("error"))) for topic, value, *_ in answers(report)] == [
        ("answers", 1.0),
        ("answers", 3.0),
        ("answers", "x is negative"),
    ]
    # An address that the sink does not allow is refused.
    assert [letter.origin.offset for letter in report.dead] == [1, 3]


def test_an_error_goes_out_as_json_where_the_codec_has_no_place_for_it() -> None:
    sink = {**SINK, "codec": {"type": "avro", "schema": {"type": "record", "name": "a", "fields": [Y]}}}
    (answer,) = asked(sink, (b'{"x": -2}', "answers-a")).sinks["kafka"]
    assert json.loads(answer.value) == {"error": "x is negative", "step": "0:FUNCTION"}


Y = {"name": "y", "type": "double"}


def test_the_key_of_an_answer_may_be_metadata_of_its_record() -> None:
    sink = {**SINK, "key": "record.headers.id"}
    report = asked(sink, (b'{"x": 2}', "answers-a"), (b'{"x": -2}', "answers-a"))
    assert [key for _, _, key, _ in answers(report)] == [b"0", b"1"]


def test_answers_have_fixed_headers_and_metadata_of_their_records_in_them() -> None:
    added = {"server": "halves", "Answers": "{record.topic}/{record.key}", "who": "{record.headers.who}", "ID": "new"}
    report = asked({**SINK, "add_headers": added}, (b'{"x": 2}', "answers-a"), (b'{"x": -2}', "answers-a"))
    for at, (_, _, _, headers) in enumerate(answers(report)):
        headers.pop("streamer-error", None)
        assert headers == {"reply-to": b"answers-a", "server": b"halves", "Answers": b"kafka/k%d" % at, "ID": b"new"}


def test_a_header_that_names_no_metadata_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r'add_headers\.a: "{y}" names the value y, .* such as {record.key}'):
        asked({**SINK, "add_headers": {"a": "{y}"}}, (b"{}", None))
    with pytest.raises(DefinitionError, match=r"add_headers\.a: .*record\.keys"):
        asked({**SINK, "add_headers": {"a": "{record.keys}"}}, (b"{}", None))


def test_without_errors_a_failed_record_is_a_dead_letter_only() -> None:
    report = asked({**SINK, "errors": False}, (b'{"x": -2}', "answers-a"), (b'{"x": 2}', "answers-a"))
    assert [value for _, value, *_ in answers(report)] == [{"y": 1.0}]
