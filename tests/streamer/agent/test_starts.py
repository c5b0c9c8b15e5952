"""Services whose records fail from the start, and services that lose records that fail: both say so."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from connectors.memory.session import MemorySession
from connectors.memory.sessionsource import MemorySessionSource
from connectors.message import Message
from pipelines import Data
from streamer import testing


def picky(data: Data) -> Data:
    if data["x"] < 0:
        raise ValueError("negative")
    return Data({"y": data["x"]})


def records(*numbers: int) -> list[Data]:
    return [Data({"x": number}) for number in numbers]


def logged(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if event in record.getMessage()]


@pytest.mark.parametrize("size", [1, 7, 512])
def test_a_service_whose_first_twenty_records_all_fail_stops_and_acknowledges_and_buries_none(
    define: Any, size: int
) -> None:
    report = testing.run(define(picky, batch={"max_records": size}), records(*[-1] * 30), check=False)
    assert report.summary.reason == "failed"
    assert "records failed in 0:FUNCTION" in str(report.summary.error)
    assert "all of the first" in str(report.summary.error)
    assert "errors: {first: 0}" in str(report.summary.error)
    assert (report.dead, report.acknowledged) == ([], 0)


def test_records_that_come_slowly_are_not_acknowledged_though_their_letters_are_written(
    define: Any, serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.letters.HOLD", 0.05)
    serving = serve(define(picky, errors={"first": 5}))
    for number in range(-1, -5, -1):
        serving.feed(number)
        eventually(lambda number=number: len(serving.buried()) == -number)
    serving.feed(-5)
    eventually(lambda: serving.agent.summary is not None)
    assert "all of the first 5 records failed" in serving.agent.summary.error
    assert serving.source.acknowledged == [0]
    assert serving.buried() == [-1, -2, -3, -4]


def test_one_record_that_succeeds_lets_all_before_it_be_acknowledged(define: Any, serve: Any, eventually: Any) -> None:
    serving = serve(define(picky))
    serving.feed(*[-1] * 19)
    serving.feed(1)
    eventually(lambda: serving.source.acknowledged == [20])
    assert len(serving.buried()) == 19
    serving.feed(*[-1] * 19)
    eventually(lambda: serving.source.acknowledged == [39])


def test_first_0_does_not_look_at_the_start(define: Any) -> None:
    report = testing.run(define(picky, errors={"first": 0}), records(*[-1] * 30))
    assert (len(report.dead), report.acknowledged) == (30, 30)


def test_a_sink_that_refuses_all_of_the_first_records_stops_the_service_too(
    define: Any, serve: Any, eventually: Any
) -> None:
    serving = serve(define())
    serving.sink.topic.faults.refuse = lambda message: "no such topic"
    serving.feed(*range(30))
    eventually(lambda: serving.agent.summary is not None)
    assert "all of the first 30 records failed in sink memory" in serving.agent.summary.error
    assert (serving.source.acknowledged, serving.buried()) == ([0], [])


def test_records_that_fail_in_different_steps_are_the_records_fault(define: Any) -> None:
    broken = [Message(b"\xff"), *(Message(one.to_bytes()) for one in records(-1))] * 15
    report = testing.run(define(picky), broken)
    assert (len(report.dead), report.acknowledged) == (30, 30)


def test_a_bus_that_waits_for_acknowledgements_gets_them_though_all_records_failed(
    define: Any, serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.letters.HOLD", 0.05)
    session = MemorySession(window=3)
    serving = serve(define(picky), sources={"memory": MemorySessionSource(session)})
    session.feed(Message(one.to_bytes()) for one in records(*[-1] * 30))
    eventually(lambda: serving.agent.summary is not None)
    assert "all of the first 2" in serving.agent.summary.error


def test_records_that_fail_with_on_error_drop_are_counted_as_failed_and_logged_once(
    define: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    service = define(picky, dead_letter=None, on_error="drop", batch={"max_records": 5})
    report = testing.run(service, records(1, *[-1, 2] * 40))
    assert (report.summary.ok, report.summary.failed, report.summary.dropped) == (41, 40, 0)
    (first,) = logged(caplog, "a record failed and is lost")
    assert "memory[0]@1" in first
    assert "negative" in first
    (others,) = logged(caplog, "more records failed and are lost")
    assert "records=39" in others


def test_a_service_that_loses_all_its_records_stops_at_its_start(define: Any) -> None:
    report = testing.run(define(picky, dead_letter=None, on_error="drop"), records(*[-1] * 150), check=False)
    assert report.summary.reason == "failed"
    # How many these are, the size of the first batch, is a matter of time.
    assert str(report.summary.error).startswith("all of the first ")
    assert "records failed in 0:FUNCTION" in str(report.summary.error)
    assert report.acknowledged == 0
