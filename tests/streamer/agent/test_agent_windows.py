"""Pipelines with steps that hold records: what is acknowledged, and what becomes of each record of a window."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from countwindows import WindowStep, WithWindows

from connectors.memory import MemorySession, MemorySessionSource, MemorySink
from connectors.message import Message
from pipelines import Data
from pipelines.errors import DefinitionError
from streamer import testing
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.service import Service


def same(data: Data) -> Data:
    return data


@pytest.fixture
def windowed(define: Callable[..., Service]) -> Callable[..., Service]:
    """`windowed(stride=, after=, **settings)` sums windows of three and hands the sums to the step `after`."""

    def windows(stride: int = 3, after: Any = same, **settings: Any) -> Service:
        steps = [WindowStep(stride=stride), after]
        return define(**settings).model_copy(update={"pipeline": WithWindows(steps)})

    return windows


def numbers(*values: int) -> list[Data]:
    return [Data({"x": value}) for value in values]


def values(report: testing.Report) -> list[Any]:
    return [None if data is None else data["y"] for data in report.results]


def test_rows_that_a_step_holds_are_acknowledged_only_with_the_result_they_end_up_in(
    windowed: Any, serve: Any, eventually: Any
) -> None:
    serving = serve(windowed(batch={"max_records": 2}))
    serving.feed(1, 2, 3, 4)
    eventually(lambda: serving.results() == [6])
    eventually(lambda: serving.source.acknowledged == [3])
    time.sleep(0.4)
    assert serving.source.acknowledged == [3], "the fourth record waits in an open window"
    serving.feed(5, 6)
    eventually(lambda: serving.results() == [6, 15])
    eventually(lambda: serving.source.acknowledged == [6])


def test_a_row_of_several_windows_is_held_until_the_last_of_them(windowed: Any, serve: Any, eventually: Any) -> None:
    serving = serve(windowed(stride=1, batch={"max_records": 1}))
    serving.feed(1, 2, 3)
    eventually(lambda: serving.source.acknowledged == [1])
    serving.feed(4)
    eventually(lambda: serving.results() == [6, 9])
    eventually(lambda: serving.source.acknowledged == [2])
    time.sleep(0.4)
    assert serving.source.acknowledged == [2], "the third and fourth record belong to the next window too"
    serving.feed(5, 6)
    eventually(lambda: serving.source.acknowledged == [4])
    assert serving.results() == [6, 9, 12, 15]


def test_records_that_a_step_still_holds_at_the_end_are_flushed_and_acknowledged(windowed: Any) -> None:
    report = testing.run(windowed(), numbers(1, 2, 3, 4, 5))
    assert values(report) == [6, 9]
    assert report.acknowledged == 5


@pytest.mark.parametrize("batch", [1, 2, 512])
def test_every_record_counts_once_whatever_window_it_ended_up_in(windowed: Any, batch: int) -> None:
    report = testing.run(windowed(stride=2, batch={"max_records": batch}), numbers(*range(10)))
    assert report.acknowledged == 10
    assert (report.summary.ok, report.summary.dead, report.summary.dropped) == (10, 0, 0)


SINKS = [{"type": "memory", "topic": name, "name": name} for name in ("a", "b")]


def test_held_rows_wait_for_every_sink(windowed: Any) -> None:
    report = testing.run(windowed(sink=SINKS, batch={"max_records": 2}), numbers(1, 2, 3, 4, 5, 6))
    assert [message.value for message in report.sinks["a"]] == [message.value for message in report.sinks["b"]]
    assert values(report) == [6, 15]
    assert report.acknowledged == 6


def refuse_six(data: Data) -> Data:
    if data["y"] == 6:
        raise ValueError("not this window")
    return data


def test_a_window_that_fails_sends_all_its_records_to_the_dead_letter(windowed: Any) -> None:
    definition = windowed(after=refuse_six, batch={"max_records": 2}, errors={"stop_ratio": 1.0})
    report = testing.run(definition, numbers(1, 2, 3, 4, 5, 6, 7))
    assert values(report) == [15, 7]
    assert [letter.origin.offset for letter in report.dead] == [0, 1, 2]
    assert report.acknowledged == 7
    assert (report.summary.ok, report.summary.dead) == (4, 3)


@pytest.mark.parametrize("count", [3, 5])
def test_a_window_that_every_sink_refuses_becomes_one_dead_letter_a_record(
    windowed: Any, serve: Any, eventually: Any, count: int
) -> None:
    serving = serve(windowed(sink=SINKS, batch={"max_records": 2}, errors={"stop_ratio": 1.0}))
    for sink in serving.sinks.values():
        sink.topic.faults.refuse = lambda message: "no"
    serving.feed(*range(count))
    eventually(lambda: serving.source.acknowledged == [3])
    assert serving.buried() == [0, 1, 2]
    if count == 5:
        # The rest of the window that is open comes out at the end, and meets the same fate.
        serving.stop()
        assert serving.buried() == [0, 1, 2, 3, 4]
        assert serving.source.acknowledged == [5]


def test_a_record_that_shares_all_its_windows_with_one_that_fails_at_the_sink_fails_with_it(windowed: Any) -> None:
    # Windows 0-1-2, 1-2-3, 2-3-4 and so on. The second cannot be compared, so records 1 to 3 fail, and no sink gets
    # a window that they are in. Record 0 is in no other; 4 and 5 are.
    def spelled(data: Data) -> Data:
        return Data({"y": "six"}) if data["y"] == 6 else data

    sink = {"type": "memory", "topic": "out", "when": {"y": {"gt": 0}}}
    report = testing.run(windowed(1, spelled, sink=sink, errors={"stop_ratio": 1.0}), numbers(*range(8)))
    assert [letter.origin.offset for letter in report.dead] == [0, 1, 2, 3]
    assert values(report) == [15, 18, 13]
    assert report.acknowledged == 8


def test_tombstones_go_between_windows_where_they_came(windowed: Any) -> None:
    one, two, three, four = (data.to_bytes() for data in numbers(1, 2, 3, 4))
    records = [Message(value) for value in (one, two, None, three, None, four)]
    report = testing.run(windowed(), records)
    assert values(report) == [None, 6, None, 4]
    assert report.acknowledged == 6


def test_a_window_that_is_lost_comes_again_whole(windowed: Any, serve: Any, eventually: Any) -> None:
    lost: list[Message] = []

    def lose(message: Message) -> bool:
        lost.append(message)
        return len(lost) == 1

    serving = serve(windowed(batch={"max_records": 2}))
    serving.sink.topic.faults.lose = lose
    serving.feed(1, 2, 3, 4)
    eventually(lambda: serving.results() == [6])
    eventually(lambda: serving.source.acknowledged == [3])


def test_windows_that_leave_no_room_for_the_records_that_would_complete_them_are_told(
    windowed: Any, serve: Any, eventually: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.agent.runloop.STANDSTILL", 0.3)
    limits = {"in_flight": "1KiB", "drain": "500ms"}
    serving = serve(windowed(batch={"max_records": 1, "max_bytes": "1KiB"}, limits=limits))
    serving.source.feed(*[Data({"x": n, "filler": b"." * 600}).to_bytes() for n in range(3)])
    eventually(lambda: "limits.in_flight" in caplog.text)
    assert serving.results() == []
    time.sleep(0.5)
    assert caplog.text.count("limits.in_flight") == 1


def test_windows_that_hold_all_that_a_bus_gives_are_told(
    windowed: Any, eventually: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.agent.runloop.STANDSTILL", 0.3)
    session = MemorySession(window=2)
    session.feed(Message(data.to_bytes()) for data in numbers(1, 2, 3))
    service = windowed(batch={"max_records": 2}, limits={"drain": "500ms"})
    (source,), (sink,) = service.sources, service.sinks
    parts = build(
        service,
        sources={source.label: MemorySessionSource(session, name=source.label)},
        sinks={sink.label: MemorySink()},
        dead=MemorySink(),
    )
    agent = Agent(service, assembly=parts)
    agent.start()
    eventually(lambda: "make its window larger" in caplog.text)
    time.sleep(0.5)
    assert caplog.text.count("make its window larger") == 1
    agent.stop()
    agent.join(30)


def test_a_service_with_windows_cannot_deliver_exactly_once(windowed: Any) -> None:
    with pytest.raises(DefinitionError, match=r"remembers earlier records, and nothing saves .* use at_least_once"):
        testing.run(windowed(delivery="exactly_once"), numbers(1, 2, 3))
