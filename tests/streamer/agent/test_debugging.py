"""Traces that records or whole services ask for."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import pipelines
from connectors.message import Message
from pipelines import Data
from streamer import testing
from streamer.definition.service import Service


def picky(data: Data) -> Data | None | list[Data]:
    x = data.get_int64("x")
    if x < 0:
        raise ValueError("negative")
    if x == 100:
        return None
    return [Data({"y": x})] * 2 if x == 200 else Data({"y": x})


def service(**settings: Any) -> Service:
    settings.setdefault("source", {"type": "memory", "topic": "in"})
    settings.setdefault("sink", {"type": "memory", "topic": "out"})
    settings.setdefault("dead_letter", {"type": "memory", "topic": "dead"})
    pipeline = pipelines.Sequence([lambda data: data, pipelines.Sequence([picky])])
    return Service(name="test", pipeline=pipeline, **settings)


def asking(x: int, flag: bytes | None = b"1") -> Message:
    return Message(Data({"x": x}).to_bytes(), None, (("streamer-debug", flag), ("other", b"")))


def plain(x: int, **metadata: Any) -> Data:
    return Data({"x": x}, metadata=metadata or None)


def traces(report: testing.Report) -> list[list[str] | None]:
    """The steps in the trace of each result, `None` for a result without one."""
    found: list[list[str] | None] = []
    for data in report.results:
        assert data is not None
        trace = None if data.metadata is None else data.metadata.get("trace")
        found.append(None if trace is None else [step["step"] for step in trace["steps"]])
    return found


STEPS = ["0:FUNCTION", "1:PIPELINE/0:FUNCTION", "1:PIPELINE"]


def test_only_the_record_that_asks_for_a_trace_gets_one_and_results_are_the_same() -> None:
    records: list[Data | Message] = [plain(1), asking(2), plain(3), asking(200)]
    debugged = testing.run(service(debug="records"), records)
    assert traces(debugged) == [None, STEPS, None, STEPS, STEPS]
    assert debugged.results == testing.run(service(), records).results
    trace = debugged.results[1].metadata["trace"]  # type: ignore[index,union-attr]
    assert trace["steps"][0]["in"] == trace["steps"][0]["out"] == "x INT64 2"
    assert trace["steps"][2]["out"] == "y INT64 2"
    # The first record of all is run by itself.
    assert trace["steps"][0]["rows"] == 3
    assert "1:PIPELINE/0:FUNCTION (FunctionRunner)" in trace["text"]
    assert trace["seconds"] > 0


@pytest.mark.parametrize(
    ("record", "gets"),
    [
        (asking(1, b"true"), True),
        (asking(1, b"0"), False),
        (asking(1, b"False"), False),
        (asking(1, b""), False),
        (asking(1, None), False),
        (asking(1, b"\xff"), True),
        (plain(1, **{"streamer-debug": 1}), True),
        (plain(1, **{"streamer-debug": True}), True),
        (plain(1, **{"streamer-debug": "0"}), False),
        (plain(1, other=1), False),
    ],
)
def test_a_record_asks_by_header_or_metadata(record: Any, gets: bool) -> None:
    report = testing.run(service(debug="records"), [record])
    assert traces(report) == [STEPS if gets else None]


def test_metadata_that_a_step_passes_on_stays_beside_the_trace() -> None:
    report = testing.run(service(debug="records"), [plain(1, **{"streamer-debug": 1, "camera": "a"})])
    metadata = report.results[0].metadata  # type: ignore[union-attr]
    assert metadata is not None
    # The step made a new record without metadata, so that only the trace is there.
    assert list(metadata) == ["trace"]
    same = service(debug="records").model_copy(update={"pipeline": pipelines.Sequence([lambda data: data])})
    metadata = testing.run(same, [plain(1, **{"streamer-debug": 1, "camera": "a"})]).results[0].metadata  # type: ignore[union-attr]
    assert metadata is not None
    assert sorted(metadata) == ["camera", "streamer-debug", "trace"]


def test_nobody_gets_a_trace_where_the_service_does_not_look() -> None:
    report = testing.run(service(), [asking(1), plain(2, **{"streamer-debug": 1})])
    assert traces(report) == [None, None]


def test_a_service_with_debug_traces_all_and_logs_the_first_record_of_each_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        report = testing.run(service(debug=True, batch={"max_records": 5}), [plain(x) for x in range(5)])
    assert traces(report) == [STEPS] * 5
    lines = [one.message for one in caplog.records if one.message.startswith("trace ")]
    # The first record of all is run by itself.
    assert len(lines) == 6
    assert "step='1:PIPELINE/0:FUNCTION'" in lines[1]
    assert "@0'" in lines[0]
    assert "@1'" in lines[3]
    assert "given='x INT64 0'" in lines[0]


def test_the_trace_of_a_record_that_fails_or_is_dropped_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        report = testing.run(service(debug="records"), [asking(-1), asking(100), plain(7)])
    assert traces(report) == [None]
    assert len(report.dead) == 1
    lines = [one.message for one in caplog.records if one.message.startswith("trace ")]
    assert len(lines) == 6
    assert sum("made='no row'" in line for line in lines) == 4


def test_a_trace_reaches_a_sink_of_json_lines_too() -> None:
    report = testing.run(
        service(debug=True, sink={"type": "memory", "topic": "out", "codec": "konduit-json"}), [plain(1)]
    )
    (message,) = report.sinks["memory"]
    text = json.loads(message.value)
    assert text["@Metadata"]["trace"]["steps"][0]["step"] == "0:FUNCTION"


@pytest.mark.parametrize("wrong", ["record", "yes please", 3])
def test_another_debug_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="debug"):
        service(debug=wrong)


def test_on_kafka_the_record_sent_with_the_header_comes_back_with_its_trace(
    cli: Any, topics: Any, kafka: Any, tmp_path: Path
) -> None:
    source, sink = topics(), topics()
    for name, header in (("a", ()), ("b", ("-H", "streamer-debug=1"))):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"name": "{name}"}}\n')
        sent = cli("send", source, tmp_path / f"{name}.jsonl", "-b", kafka.bootstrap, *header)
        assert sent.code == 0, sent.err
    settings: dict[str, Any] = {
        "source": {"type": "kafka", "bootstrap": kafka.bootstrap, "topics": [source], "group": source},
        "sink": {"type": "kafka", "bootstrap": kafka.bootstrap, "topic": sink},
        "debug": "records",
    }
    with Service(name="test", pipeline=pipelines.Sequence([lambda data: data]), **settings):
        ended = cli("tap", sink, "--from", "earliest", "--count", "2", "--json", "--full", "-b", kafka.bootstrap)
    first, second = (json.loads(line) for line in ended.out.splitlines())
    assert first["value"] == {"name": "a"}
    assert second["headers"] == [["streamer-debug", "1"]]
    assert second["value"]["@Metadata"]["trace"]["steps"][0]["in"] == "name STRING of 1 characters"
