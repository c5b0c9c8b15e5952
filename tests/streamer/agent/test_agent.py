"""Whole services on memory connectors: what happens to every record."""

from __future__ import annotations

from typing import Any

import pytest

import pipelines
from connectors.message import Message
from pipelines import Data
from streamer import testing
from streamer.definition.service import Service


def double(data: Data) -> Data:
    return Data({"y": data.get_int64("x") * 2})


def picky(data: Data) -> Data | None | list[Data]:
    x = data.get_int64("x")
    if x < 0:
        raise ValueError("negative")
    if x == 100:
        return None
    return [Data({"y": x})] * 2 if x == 200 else Data({"y": x})


def service(step: Any = double, **settings: Any) -> Service:
    settings.setdefault("source", {"type": "memory", "topic": "in"})
    settings.setdefault("sink", {"type": "memory", "topic": "out"})
    settings.setdefault("dead_letter", {"type": "memory", "topic": "dead"})
    if settings["dead_letter"] is None:
        del settings["dead_letter"]
    return Service(name="test", pipeline=pipelines.Sequence([step]), **settings)


def numbers(*values: int) -> list[Data]:
    return [Data({"x": value, "id": f"n{value}"}) for value in values]


def values(report: testing.Report, key: str = "y") -> list[Any]:
    return [None if data is None else data[key] for data in report.results]


def test_every_record_has_its_result_in_order_and_is_acknowledged() -> None:
    report = testing.run(service(batch={"max_records": 7}), numbers(*range(100)))
    assert values(report) == [2 * x for x in range(100)]
    assert report.acknowledged == 100
    assert (report.summary.ok, report.summary.dead, report.summary.reason) == (100, 0, "ended")


def test_values_to_keep_come_back_into_the_result_of_their_record() -> None:
    report = testing.run(service(picky, keep=["id"]), numbers(1, 100, 200, 3))
    assert [(data["y"], data["id"]) for data in report.results if data] == [
        (1, "n1"),
        (200, "n200"),
        (200, "n200"),
        (3, "n3"),
    ]
    assert report.acknowledged == 4
    assert report.summary.dropped == 1


def test_key_and_headers_of_a_record_go_to_its_result() -> None:
    sent = Message(numbers(4)[0].to_bytes(), b"key\xff", (("trace", b"\x00\x01"), ("empty", None)))
    report = testing.run(service(), [sent, numbers(5)[0]])
    first, second = report.sinks["memory"]
    assert (first.key, first.headers) == (sent.key, sent.headers)
    assert (second.key, second.headers) == (None, ())


def test_a_poisoned_record_goes_to_the_dead_letter_and_its_batch_goes_on() -> None:
    poison = Message(b"\xff\xff\xff", b"k", (("h", b"v"),))
    good = [one.to_bytes() for one in numbers(1, 2, 3)]
    report = testing.run(service(), [good[0], poison, good[1], good[2]])
    assert values(report) == [2, 4, 6]
    (letter,) = report.dead
    assert (letter.message.value, letter.message.key) == (poison.value, poison.key)
    assert letter.step == "decode"
    assert (letter.origin.topic, letter.origin.partition, letter.origin.offset) == ("memory", 0, 1)
    assert letter.origin.headers == [("h", b"v")]
    assert report.acknowledged == 4


def test_a_record_that_a_step_refuses_harms_no_other() -> None:
    report = testing.run(service(picky), numbers(1, -1, 2, 3, -2, 4))
    assert values(report) == [1, 2, 3, 4]
    assert [letter.error for letter in report.dead] == ["ValueError: negative"] * 2
    assert {letter.step for letter in report.dead} == {"0:FUNCTION"}
    assert report.acknowledged == 6


def test_without_a_dead_letter_a_failing_record_stops_the_service_and_says_where() -> None:
    report = testing.run(service(picky, dead_letter=None), numbers(1, 2, -1, 4), check=False)
    assert report.summary.reason == "failed"
    assert "memory[0]@2" in str(report.summary.error)
    assert "dead_letter" in str(report.summary.error)
    # The first record of all is run by itself.
    assert report.acknowledged <= 1


def test_on_error_drop_goes_on_without_the_record() -> None:
    report = testing.run(service(picky, dead_letter=None, on_error="drop"), numbers(1, -1, 2))
    assert values(report) == [1, 2]
    assert (report.summary.failed, report.summary.dropped) == (1, 0)
    assert report.acknowledged == 3


@pytest.mark.parametrize("batch", [1, 10, 512])
def test_a_model_that_fails_for_everyone_stops_the_service_with_its_records_unacknowledged(batch: int) -> None:
    report = testing.run(service(picky, batch={"max_records": batch}), numbers(*[-1] * 600), check=False)
    assert report.summary.reason == "failed"
    assert "records failed in 0:FUNCTION" in str(report.summary.error)
    assert report.dead == []
    assert report.acknowledged == 0


def test_a_few_failures_at_the_start_are_no_reason_to_stop() -> None:
    report = testing.run(service(picky, batch={"max_records": 1}), numbers(-1, -2, *range(300)))
    assert report.summary.reason == "ended"
    assert len(report.dead) == 2
    assert report.acknowledged == 302


def test_failures_of_which_nobody_knows_yet_what_they_mean_are_dead_letters_at_the_end() -> None:
    report = testing.run(service(picky), numbers(-1, -2, 3))
    assert (report.summary.reason, report.summary.dead) == ("ended", 2)
    assert len(report.dead) == 2
    assert report.acknowledged == 3


@pytest.mark.parametrize(
    ("policy", "forwarded", "dead"), [("forward", True, 0), ("skip", False, 0), ("dead_letter", False, 1)]
)
def test_tombstones_are_forwarded_in_order_skipped_or_put_aside(policy: str, forwarded: bool, dead: int) -> None:
    one, two = (data.to_bytes() for data in numbers(1, 2))
    source = {"type": "memory", "topic": "in", "tombstones": policy}
    report = testing.run(
        service(source=source), [Message(one, b"a"), Message(None, b"a", (("h", b"1"),)), Message(two, b"a")]
    )
    assert values(report) == ([2, None, 4] if forwarded else [2, 4])
    assert all(message.key == b"a" for message in report.sinks["memory"])
    assert len(report.dead) == dead
    assert report.acknowledged == 3


def test_every_sink_gets_what_it_asks_for() -> None:
    sinks = [
        {"type": "memory", "topic": "a", "name": "all"},
        {"type": "memory", "topic": "b", "name": "big", "when": {"y": {"gt": 4}}, "keys": ["y"]},
    ]
    report = testing.run(service(sink=sinks, keep="all"), numbers(1, 2, 3, 4))
    assert [data["y"] for data in report.decoded["all"] if data] == [2, 4, 6, 8]
    assert [dict(data) for data in report.decoded["big"] if data] == [{"y": 6}, {"y": 8}]
    assert report.acknowledged == 4


def test_record_metadata_becomes_values() -> None:
    source = {"type": "memory", "topic": "in", "into": {"key": "device", "offset": "at", "headers.h": "h"}}

    def echo(data: Data) -> Data:
        return Data({name: data[name] for name in ("device", "at", "h") if name in data})

    records = [Message(one.to_bytes(), f"d{i}".encode(), (("h", b"x"),)) for i, one in enumerate(numbers(1, 2))]
    report = testing.run(service(echo, source=source), records)
    assert [dict(data) for data in report.results if data] == [
        {"device": "d0", "at": 0, "h": "x"},
        {"device": "d1", "at": 1, "h": "x"},
    ]


def test_two_sources_feed_one_pipeline() -> None:
    sources = [{"type": "memory", "topic": "a", "name": "a"}, {"type": "memory", "topic": "b", "name": "b"}]
    report = testing.run(service(source=sources), {"a": numbers(*range(50)), "b": numbers(*range(100, 150))})
    found = values(report)
    assert sorted(found) == [2 * x for x in [*range(50), *range(100, 150)]]
    assert [y for y in found if y < 200] == [2 * x for x in range(50)]
    assert report.acknowledged == 100


def test_a_hard_batcher_runs_full_batches_and_the_rest_at_the_end() -> None:
    sizes: list[int] = []

    @pipelines.batched
    def measure(batch: pipelines.Batch) -> pipelines.Batch:
        sizes.append(len(batch))
        return batch

    report = testing.run(service(measure, batch={"type": "hard", "max_records": 8}), numbers(*range(20)))
    assert sizes == [8, 8, 4]
    assert report.acknowledged == 20


def test_a_service_that_fails_raises_what_stopped_it_with_the_report() -> None:
    with pytest.raises(testing.ServiceFailed, match=r"the service stopped: .*memory\[0\]@1") as raised:
        testing.run(service(picky, dead_letter=None), numbers(1, -1))
    assert raised.value.report.summary.reason == "failed"


def test_records_may_be_dicts() -> None:
    assert values(testing.run(service(picky), [{"x": 1}, Data({"x": 2})])) == [1, 2]
