"""`time` of a source: a value of the record is its time, for sinks, `into` and functions; not for dead letters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.core import CollectorRegistry

import streamer
from connectors.memory import MemorySink, MemorySource
from connectors.message import Message
from pipelines import Data
from pipelines.errors import DefinitionError
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.service import Service


def seen(data: Data) -> Data:
    if data.get("fail", False):
        raise ValueError("no")
    assert data.record is not None
    data["seen"] = data.record.timestamp
    return data


def service(
    time: str = "{field: ts, unit: s}", *, codec: str = "json", into: str = "{timestamp: at}", **more: Any
) -> Service:
    made = streamer.loads(
        f"""
source: {{type: kafka, topics: in, codec: {codec}, time: {time}, into: {into}}}
pipeline: [{{"@type": FUNCTION, function: "test_record_time:seen"}}]
sink: {{type: kafka, topic: out, codec: json, timestamp: source}}
dead_letter: {{type: kafka, topic: dead}}
"""
    )
    return made.model_copy(update=more)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(__file__.rpartition("/")[0])


@pytest.mark.parametrize("hot_path", ["auto", "python"])
def test_the_time_of_a_record_is_that_of_its_value(hot_path: str) -> None:
    stamps = [1_700_000_000, 1_700_000_001.25, None, "yesterday", 1_700_000_004_000, {"at": 5}]
    records = [
        Message(json.dumps({"n": n, **({} if ts is None else {"ts": ts})}).encode(), timestamp=n)
        for n, ts in enumerate(stamps)
    ]
    report = streamer.testing.run(service(hot_path=hot_path), records)
    expected = [1_700_000_000_000, 1_700_000_001_250, 2, 3, 4, 5]
    messages = report.sinks["kafka"]
    assert [message.timestamp for message in messages] == expected
    results = [json.loads(message.value) for message in messages]
    assert [(one["at"], one["seen"]) for one in results] == [(time, time) for time in expected]
    # What the value was is still there.
    assert [one.get("ts") for one in results] == stamps


def test_batches_without_any_such_value_keep_the_time_of_the_bus() -> None:
    report = streamer.testing.run(service(), [Message(b"{}", timestamp=7), Message(b'{"ts":null}', timestamp=8)])
    assert [message.timestamp for message in report.sinks["kafka"]] == [7, 8]
    assert [json.loads(message.value) for message in report.sinks["kafka"]] == [
        {"at": 7, "seen": 7},
        {"at": 8, "seen": 8},
    ]


def test_dead_letters_and_tombstones_have_the_time_of_the_bus() -> None:
    payloads = [b'{"ts":1700000000,"fail":true}', None, b"no json"]
    records = [Message(payload, timestamp=7 + n) for n, payload in enumerate(payloads)]
    report = streamer.testing.run(service(), records)
    assert [letter.origin.timestamp for letter in report.dead] == [7, 9]
    assert [(message.value, message.timestamp) for message in report.sinks["kafka"]] == [(None, 8)]


def test_the_records_of_one_payload_have_the_first_time_that_there_is() -> None:
    payload = json.dumps([{"n": 0}, {"n": 1, "ts": 5}, {"n": 2, "ts": 6}]).encode()
    report = streamer.testing.run(service(codec="{type: json, each: true}"), [payload, b'[{"ts":7}]'])
    assert [message.timestamp for message in report.sinks["kafka"]] == [5000, 5000, 5000, 7000]


def test_the_time_may_be_in_a_header() -> None:
    made = service("{field: sent, unit: rfc3339}", into="{headers.sent: sent, timestamp: at}")
    headers = (("sent", b"2026-01-01T00:00:00Z"),)
    report = streamer.testing.run(made, [Message(b"{}", headers=headers, timestamp=7)])
    assert json.loads(report.sinks["kafka"][0].value)["at"] == 1_767_225_600_000


def test_records_without_a_time_are_counted_and_the_first_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    made = service()
    records = [b'{"ts":1}', b'{"ts":"soon"}', b"{}", b"broken"]
    out = MemorySink(name="kafka")
    source = MemorySource(records, name="kafka")
    agent = Agent(made, assembly=build(made, sources={"kafka": source}, sinks={"kafka": out}, dead=MemorySink()))
    registry = CollectorRegistry()
    registry.register(agent.meters)
    agent.start()
    agent.join(30)
    labels = {"service": "service", "source": "kafka"}
    assert registry.get_sample_value("streamer_untimed_records_total", labels) == 2
    (warning,) = [record for record in caplog.records if "does not say its time" in record.getMessage()]
    text = warning.getMessage()
    assert "ts: it is STRING of 4 characters, and no number" in text
    assert "@1" in text


def test_a_source_without_time_has_no_such_count() -> None:
    made = streamer.loads(
        "source: {type: memory, topic: in}\npipeline: []\nsink: {type: memory, topic: out}\non_error: drop"
    )
    agent = Agent(made)
    assert not agent.meters.sources["memory"].untimed


@pytest.mark.parametrize(
    ("time", "error"),
    [
        ("{field: ts}", r"source\.time\.unit.*required|source\.time.*unit"),
        ("{field: ts, unit: min}", r"source\.time\.unit: .*'s', 'ms', 'us', 'ns' or 'rfc3339'"),
        ("{feild: ts, unit: s}", 'did you mean "field"'),
        ("{field: at, unit: ms}", '"at" is what into makes of timestamp'),
    ],
)
def test_mistakes_are_named_with_what_to_do(time: str, error: str) -> None:
    with pytest.raises(DefinitionError, match=error):
        service(time)
