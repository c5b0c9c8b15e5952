"""Whole services on memory connectors: what happens to every record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import pytest

import pipelines
from connectors.memory import MemorySink, MemorySource
from connectors.message import Message
from pipelines import Data
from streamer import testing
from streamer.agent import Agent
from streamer.parts import build
from streamer.service import Service


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
    report = testing.run(service(picky, dead_letter=None), numbers(1, 2, -1, 4))
    assert report.summary.reason == "failed"
    assert "memory[0]@2" in str(report.summary.error)
    assert "dead_letter" in str(report.summary.error)
    assert report.acknowledged == 0


def test_on_error_drop_goes_on_without_the_record() -> None:
    report = testing.run(service(picky, dead_letter=None, on_error="drop"), numbers(1, -1, 2))
    assert values(report) == [1, 2]
    assert report.summary.dropped == 1
    assert report.acknowledged == 3


@pytest.mark.parametrize("batch", [1, 10, 512])
def test_a_model_that_fails_for_everyone_stops_the_service_with_its_records_unacknowledged(batch: int) -> None:
    report = testing.run(service(picky, batch={"max_records": batch}), numbers(*[-1] * 600))
    assert report.summary.reason == "failed"
    assert "records failed in 0:FUNCTION" in str(report.summary.error)
    assert report.dead == []
    assert report.acknowledged == 0


def test_a_few_failures_at_the_start_are_no_reason_to_stop() -> None:
    report = testing.run(service(picky, batch={"max_records": 1}), numbers(-1, -2, *range(300)))
    assert report.summary.reason == "ended"
    assert len(report.dead) == 2
    assert report.acknowledged == 302


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


class Running:
    """A service in the background whose memory connectors the test holds."""

    def __init__(self, definition: Service, source: MemorySource | None = None) -> None:
        self.source = MemorySource(name="memory") if source is None else source
        self.sink = MemorySink(name="memory", max_in_flight=4096)
        self.dead = MemorySink(name="dead_letter")
        parts = build(definition, sources={"memory": self.source}, sinks={"memory": self.sink}, dead=self.dead)
        self.agent = Agent(definition, parts=parts)
        self.agent.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *error: object) -> None:
        self.agent.stop()
        self.agent.join(30)

    def feed(self, *xs: int) -> None:
        self.source.feed(*[one.to_bytes() for one in numbers(*xs)])

    def results(self) -> list[int]:
        return [Data.from_bytes(message.value)["y"] for message in self.sink.messages]


def eventually(true: Callable[[], bool], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_stopping_finishes_and_acknowledges_what_was_taken_in() -> None:
    with Running(service()) as running:
        running.feed(*range(500))
        eventually(lambda: len(running.results()) > 0)
    assert running.agent.summary is not None
    assert running.agent.summary.reason == "stopped"
    assert running.source.acknowledged == [len(running.results())]


def test_positions_are_acknowledged_about_every_second_without_stopping() -> None:
    with Running(service()) as running:
        running.feed(*range(10))
        eventually(lambda: running.source.acknowledged == [10], 5)


def test_nothing_is_acknowledged_while_the_sink_is_away_and_nothing_is_lost() -> None:
    limits = {"in_flight": "64KiB", "confirm": "200ms"}
    with Running(service(limits=limits, batch={"max_records": 50, "max_bytes": "16KiB"})) as running:
        running.sink.topic.faults.cut()
        for start in range(0, 5000, 500):
            running.feed(*range(start, start + 500))
        eventually(lambda: running.agent.ready() is not None)
        time.sleep(1.5)
        assert running.source.acknowledged == [0]
        assert running.agent._in_flight() <= 2 * 64 * 1024
        running.sink.topic.faults.mend()
        eventually(lambda: len(running.results()) == 5000)
        eventually(lambda: running.source.acknowledged == [5000])
    assert running.results() == [2 * x for x in range(5000)]


def test_messages_that_are_lost_after_being_taken_are_sent_again() -> None:
    lost: list[bytes] = []

    def lose(message: Message) -> bool:
        if len(lost) < 3 and Data.from_bytes(message.value)["y"] in (20, 40, 60):
            lost.append(message.value)
            return True
        return False

    with Running(service()) as running:
        running.sink.topic.faults.lose = lose
        running.feed(*range(100))
        eventually(lambda: running.source.acknowledged == [100])
        assert set(running.results()) == {2 * x for x in range(100)}
        assert len(lost) == 3


def test_a_message_that_the_sink_refuses_for_good_becomes_a_dead_letter() -> None:
    with Running(service()) as running:
        running.sink.topic.faults.refuse = lambda message: (
            "too large" if Data.from_bytes(message.value)["y"] == 10 else None
        )
        running.feed(*range(10))
        eventually(lambda: running.source.acknowledged == [10])
        assert running.results() == [2 * x for x in range(10) if x != 5]
        (letter,) = running.dead.messages
        assert Data.from_bytes(letter.value)["x"] == 5
        assert dict(letter.headers)["streamer-step"] == b"sink memory"


def test_at_most_once_acknowledges_before_it_runs() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(data: Data) -> Data:
        begun.set()
        go_on.wait(10)
        return Data({"y": 1})

    with Running(service(wait, delivery="at_most_once")) as running:
        running.feed(1)
        assert begun.wait(10)
        assert running.source.acknowledged == [1]
        go_on.set()


def test_a_lane_that_was_taken_away_is_acknowledged_as_far_as_it_was_done_and_no_further() -> None:
    first = MemorySource(name="memory", partitions=2)
    with Running(service(), first) as running:
        running.feed(*range(200))
        eventually(lambda: len(running.results()) == 200)
        second = MemorySource(topic=first.topic, name="second")
        second.open()
        eventually(lambda: len(second.poll(1, 1, 0.05)) == 0 and len(second.group.owned(second)) == 1)
        assert sum(first.acknowledged) >= 100
        second.close()


class WindowStep(pipelines.Step):
    """Three records become their sum."""

    type_name: ClassVar[str] = "TEST_WINDOWS"


class Windows(pipelines.StatefulRunner):
    """Sums every three rows."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.values: list[int] = []

    def run_batch(self, batch: pipelines.Batch) -> pipelines.Result:
        sums: list[int] = []
        parents: list[list[int]] = []
        for row, x in zip(batch.rows.tolist(), batch["x"].values(), strict=True):
            self.rows.append(row)
            self.values.append(x)
            if len(self.rows) == 3:
                sums.append(sum(self.values))
                parents.append(self.rows)
                self.rows, self.values = [], []
        held = [row for row in self.rows if row in set(batch.rows.tolist())]
        return pipelines.Result(windows(sums, parents), held=np.array(held, np.int64))

    def tick(self, now: float) -> pipelines.Result:
        return pipelines.Result(windows([], []))

    def flush(self) -> pipelines.Result:
        rows, self.rows = self.rows, []
        return pipelines.Result(windows([sum(self.values)] if rows else [], [rows] if rows else []))

    def forget(self, lanes: Any) -> None:
        self.rows, self.values = [], []

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        pass


def windows(sums: list[int], parents: list[list[int]]) -> pipelines.Batch:
    made = pipelines.Batch.of([Data({"y": one}) for one in sums])
    rows = np.array([row for many in parents for row in many], np.int64)
    splits = np.array([0, *accumulate(len(many) for many in parents)], np.int64)
    return pipelines.Batch(made.columns, made.size, rows=rows, splits=splits)


class WindowFactory:
    step_type, name, priority, requires = "TEST_WINDOWS", "test", 0, ()

    def create(self, step: pipelines.Step, context: pipelines.OpenContext) -> pipelines.Runner:
        return Windows()


class WithWindows(pipelines.Sequence):
    """A pipeline that opens with a registry of its own."""

    def open(self, *args: Any, **settings: Any) -> Any:
        registry = pipelines.Registry(plugins=False)
        registry.add_step(WindowStep)
        registry.add_runner(WindowFactory())
        return super().open(*args, **{**settings, "registry": registry})


def windowed(**settings: Any) -> Service:
    return service(double, **settings).model_copy(update={"pipeline": WithWindows([WindowStep(), double_y])})


def double_y(data: Data) -> Data:
    return Data({"y": data["y"] * 2})


def test_rows_that_a_step_holds_are_acknowledged_only_with_the_result_they_end_up_in() -> None:
    with Running(windowed(batch={"max_records": 2})) as running:
        running.feed(1, 2, 3, 4)
        eventually(lambda: running.results() == [12])
        eventually(lambda: running.source.acknowledged == [3])
        time.sleep(1.2)
        assert running.source.acknowledged == [3], "the fourth record waits in an open window"
        running.feed(5, 6)
        eventually(lambda: running.results() == [12, 30])
        eventually(lambda: running.source.acknowledged == [6])


def test_what_a_step_still_holds_at_the_end_is_flushed_and_acknowledged() -> None:
    report = testing.run(windowed(), numbers(1, 2, 3, 4, 5))
    assert values(report) == [12, 18]
    assert report.acknowledged == 5


def test_held_rows_wait_for_every_sink() -> None:
    sinks = [{"type": "memory", "topic": name, "name": name} for name in ("a", "b")]
    report = testing.run(windowed(sink=sinks, batch={"max_records": 2}), numbers(1, 2, 3, 4, 5, 6))
    assert [message.value for message in report.sinks["a"]] == [message.value for message in report.sinks["b"]]
    assert values(report) == [12, 30]
    assert report.acknowledged == 6


def test_a_window_that_fails_sends_all_its_records_to_the_dead_letter() -> None:
    def refuse(data: Data) -> Data:
        if data["y"] == 6:
            raise ValueError("not this window")
        return data

    definition = service(double, batch={"max_records": 2}, errors={"stop_ratio": 1.0})
    definition = definition.model_copy(update={"pipeline": WithWindows([WindowStep(), refuse])})
    report = testing.run(definition, numbers(1, 2, 3, 4, 5, 6, 7))
    assert values(report) == [15, 7]
    assert [letter.origin.offset for letter in report.dead] == [0, 1, 2]
    assert report.acknowledged == 7
