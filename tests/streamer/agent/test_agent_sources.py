"""Sources that fail, lose lanes, wait, or share a service with others."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import streamer
from connectors.file import FileSink, FileSource
from connectors.memory import MemorySink, MemorySource
from connectors.message import Message, block_of
from connectors.records import Lane
from pipelines import Data, hotpath
from pipelines.errors import ConnectorError

TWO = [{"type": "memory", "topic": name, "name": name} for name in ("a", "b")]


class Failing(MemorySource):
    """Raises `error` instead of polling once `fail` is set."""

    def __init__(self, error: BaseException, **settings: Any) -> None:
        super().__init__(**settings)
        self.error = error
        self.fail = threading.Event()

    def poll(self, *arguments: Any) -> Any:
        if self.fail.is_set():
            raise self.error
        return super().poll(*arguments)


def test_a_source_that_fails_ends_the_service_and_what_was_done_is_acknowledged(
    define: Any, serve: Any, eventually: Any
) -> None:
    failing = Failing(ConnectorError("b is gone"), name="b")
    sources = {"a": MemorySource(name="a"), "b": failing}
    serving = serve(define(source=TWO), sources)
    serving.feed(1, 2, source="a")
    eventually(lambda: len(serving.results()) == 2)
    failing.fail.set()
    summary = serving.agent.join(60)
    assert (summary.reason, summary.error) == ("failed", "b is gone")
    assert sources["a"].acknowledged == [2]


class GivesThenFails(MemorySource):
    """Raises at the poll after that which gave the last of its records."""

    def __init__(self, error: BaseException, **settings: Any) -> None:
        super().__init__(**settings)
        self.error = error

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Any:
        records = super().poll(max_records, max_bytes, 0.0)
        if not len(records) and self.topic.ended:
            raise self.error
        return records


@pytest.mark.parametrize("type", ["soft", "hard"])
@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_records_gathered_before_a_source_failed_are_done_first(
    define: Any, serve: Any, type: str, delivery: str
) -> None:
    batch = {"type": type, "max_records": 50} | ({"max_wait": "1m"} if type == "soft" else {})
    source = GivesThenFails(ConnectorError("the line is cut"), name="memory", partitions=2)
    source.feed(*[Data({"x": number}) for number in range(99)])
    source.end()
    serving = serve(define(batch=batch, delivery=delivery), {"memory": source})
    summary = serving.agent.join(60)
    assert (summary.reason, summary.error) == ("failed", "the line is cut")
    assert sorted(serving.results()) == [2 * number for number in range(99)]
    assert sum(source.acknowledged) == 99


def test_waiting_records_of_all_sources_are_done_when_one_source_fails(define: Any, serve: Any) -> None:
    def slow(data: Data) -> Data:
        time.sleep(0.02)
        return Data({"y": data["x"]})

    failing = GivesThenFails(ConnectorError("a is gone"), name="a")
    sources = {"a": failing, "b": MemorySource(name="b")}
    for source in sources.values():
        source.feed(*[Data({"x": number}) for number in range(30)])
    failing.end()
    serving = serve(define(slow, source=TWO, batch={"max_records": 10, "max_wait": "1m"}), sources)
    summary = serving.agent.join(60)
    assert (summary.reason, summary.error) == ("failed", "a is gone")
    results = serving.results()
    assert failing.acknowledged == [30]
    assert sorted(results) == sorted([*range(30), *range(*sources["b"].acknowledged)])


def test_a_service_whose_source_failed_takes_no_longer_than_it_may_to_finish(define: Any, serve: Any) -> None:
    def slow(data: Data) -> Data:
        time.sleep(0.3)
        return Data({"y": data["x"]})

    source = GivesThenFails(ConnectorError("it is gone"), name="memory")
    source.feed(*[Data({"x": number}) for number in range(100)])
    source.end()
    began = time.monotonic()
    definition = define(slow, batch={"max_records": 1}, limits={"drain": "1s", "batches": 200})
    summary = serve(definition, {"memory": source}).agent.join(60)
    assert time.monotonic() - began < 15
    assert (summary.reason, summary.error) == ("failed", "it is gone")
    assert 0 < source.acknowledged[0] < 50


def test_a_failed_source_that_also_cannot_acknowledge_is_reported_with_its_first_error(define: Any, serve: Any) -> None:
    class Broken(GivesThenFails):
        def acknowledge(self, positions: Any, *, wait: bool = False) -> None:
            if positions:
                raise ConnectorError("it takes no positions")

    source = Broken(ConnectorError("it is gone"), name="memory")
    source.feed(Data({"x": 1}))
    source.end()
    serving = serve(define(batch={"max_wait": "1m"}), {"memory": source})
    summary = serving.agent.join(60)
    assert (summary.reason, summary.error) == ("failed", "it is gone")
    assert serving.results() == [2]
    assert source.acknowledged == [0]


def test_a_message_that_is_lost_after_its_source_failed_does_not_hold_up_the_end(define: Any, serve: Any) -> None:
    source = GivesThenFails(ConnectorError("it is gone"), name="memory")
    source.feed(*[Data({"x": number}) for number in range(5)])
    source.end()
    sink = MemorySink(name="memory")
    sink.topic.faults.lose = lambda message: Data.from_bytes(message.value)["y"] == 4
    began = time.monotonic()
    serving = serve(define(batch={"max_wait": "1m"}), {"memory": source}, {"memory": sink})
    summary = serving.agent.join(60)
    assert (summary.reason, summary.error) == ("failed", "it is gone")
    assert time.monotonic() - began < 10
    assert source.acknowledged == [2]


@pytest.mark.parametrize("error", [SystemExit("enough"), KeyboardInterrupt()])
def test_a_source_that_leaves_its_thread_ends_the_service(define: Any, serve: Any, error: BaseException) -> None:
    source = Failing(error, name="memory")
    serving = serve(define(), {"memory": source})
    source.fail.set()
    assert serving.agent.join(60).reason == "failed"


class Leaves(BaseException):
    """No error of a record, as `KeyboardInterrupt` is none."""


def test_a_step_that_leaves_the_thread_fails_the_service(define: Any, serve: Any) -> None:
    def leave(data: Data) -> Data:
        raise Leaves

    serving = serve(define(leave))
    serving.feed(1)
    summary = serving.agent.join(60)
    assert summary.reason == "failed"
    assert "Leaves" in str(summary.error)
    assert serving.source.acknowledged == [0]


class NotThere(MemorySource):
    """Cannot be opened, as it turns out after a while."""

    def open(self, settle: Any = None, *, commits: bool = True) -> None:
        time.sleep(0.2)
        raise ConnectorError(f"there is no topic {self.name}")


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
def test_a_source_that_cannot_be_opened_is_told_by_starting(define: Any, serve: Any, delivery: str) -> None:
    sources = {"a": MemorySource(name="a"), "b": NotThere(name="b")}
    sources["a"].feed(Data({"x": 1}))
    with pytest.raises(ConnectorError, match="there is no topic b"):
        serve(define(source=TWO, delivery=delivery), sources)
    assert sources["a"].group.members == [], "the other source has left its group"
    assert sources["a"].acknowledged == [0], "and read nothing"


def test_a_control_port_that_is_taken_is_told_by_starting(define: Any, serve: Any) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Exception, match=r"control\.listen"):
            serve(define(control={"listen": f"127.0.0.1:{taken.getsockname()[1]}"}))


def test_batches_of_several_sources_that_do_not_fit_together_pass_one_after_the_other(
    define: Any, serve: Any, eventually: Any
) -> None:
    names = [f"s{number}" for number in range(4)]
    sources = [{"type": "memory", "topic": name, "name": name} for name in names]
    batch = {"max_records": 10, "max_bytes": "1KiB"}
    serving = serve(define(source=sources, batch=batch, limits={"in_flight": "1KiB"}))
    for name in names:
        # Each more than half of what may be under way.
        serving.sources[name].feed(*[Data({"x": n, "filler": b"." * 700}).to_bytes() for n in range(10)])
    eventually(lambda: all(source.acknowledged == [10] for source in serving.sources.values()))
    assert sorted(serving.results()) == sorted([2 * n for n in range(10)] * 4)


def test_a_source_that_has_ended_waits_for_the_others(define: Any, serve: Any, eventually: Any) -> None:
    sources = {"a": MemorySource([Data({"x": 1})], name="a"), "b": MemorySource(name="b")}
    serving = serve(define(source=TWO), sources)
    eventually(lambda: sources["a"].acknowledged == [1])
    serving.feed(2, source="b")
    eventually(lambda: sources["b"].acknowledged == [1])
    assert serving.agent.summary is None
    sources["b"].end()
    assert serving.agent.join(60).reason == "ended"


class Sighing(MemorySource):
    """Notes when it is told that nobody polls."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.still: list[bool] = []
        self.threads: set[str] = set()

    def standing_still(self, still: bool) -> None:
        self.still.append(still)
        super().standing_still(still)

    def lag(self) -> Mapping[tuple[str, int], int]:
        self.threads.add(threading.current_thread().name)
        return super().lag()


def test_a_source_gives_signs_of_life_while_the_pipeline_takes_its_time(
    define: Any, serve: Any, eventually: Any
) -> None:
    go_on = threading.Event()

    def slow(data: Data) -> Data:
        go_on.wait(60)
        return Data({"y": 1})

    source = Sighing(name="memory")
    serving = serve(define(slow, batch={"max_records": 1}), {"memory": source})
    # One that runs, two that wait in the queue, one in hand.
    serving.feed(*range(4))
    began = time.monotonic()
    eventually(lambda: source.still.count(True) >= 3)
    assert source.still.count(True) <= (time.monotonic() - began) * 10 + 1, "about ten times a second"
    go_on.set()
    eventually(lambda: source.still[-1] is False)
    eventually(lambda: len(serving.results()) == 4)


def test_the_lag_is_asked_of_a_source_by_its_own_thread_only(define: Any, serve: Any, eventually: Any) -> None:
    source = Sighing(name="memory")
    serving = serve(define(), {"memory": source})
    serving.feed(1)
    eventually(lambda: serving.agent.meters.lag() == {("memory", 0): 1} or source.acknowledged == [1])
    eventually(lambda: serving.agent.meters.lag() == {("memory", 0): 0})
    list(serving.agent.meters.collect())
    assert source.threads == {"intake memory"}


def test_a_lane_that_was_taken_away_is_acknowledged_as_far_as_it_was_done_and_no_further(
    define: Any, serve: Any, eventually: Any
) -> None:
    first = MemorySource(name="memory", partitions=2)
    serving = serve(define(), {"memory": first})
    serving.feed(*range(200))
    eventually(lambda: len(serving.results()) == 200)
    second = MemorySource(topic=first.topic, name="second")
    second.open()
    eventually(lambda: len(second.poll(1, 1, 0.05)) == 0 and len(second.group.owned(second)) == 1)
    assert sum(first.acknowledged) >= 100
    second.close()


def test_a_busy_source_does_not_hold_up_the_hand_over_of_another(define: Any, serve: Any, eventually: Any) -> None:
    busy = threading.Event()

    def some_time(data: Data) -> Data:
        time.sleep(0.05)
        return Data({"y": data["x"]})

    shared = MemorySource(name="a", partitions=2)
    serving = serve(define(some_time, source=TWO, batch={"max_records": 1}), {"a": shared, "b": MemorySource(name="b")})

    def keep_busy() -> None:
        for number in range(1000):
            if busy.wait(0.02):
                return
            serving.feed(number, source="b")

    feeder = threading.Thread(target=keep_busy)
    feeder.start()
    try:
        serving.feed(*range(4), source="a")
        eventually(lambda: len(serving.agent.meters.sources) == 2 and sum(shared.acknowledged) > 0)
        other = MemorySource(topic=shared.topic, name="other")
        other.open()
        began = time.monotonic()
        eventually(lambda: other.poll(1, 1, 0.05) is not None and len(other.group.owned(other)) == 1)
        assert time.monotonic() - began < 10, "a hand-over has thirty seconds, and needs none of them"
        other.close()
    finally:
        busy.set()
        feeder.join()


def test_lanes_that_have_ended_are_not_told_as_acknowledged(define: Any, serve: Any, eventually: Any) -> None:
    lost: list[object] = []
    source = MemorySource(name="memory")
    serving = serve(define(), {"memory": source})
    serving.feed(*range(5))
    eventually(lambda: source.acknowledged == [5])

    def lose(message: object) -> bool:
        lost.append(message)
        return len(lost) == 1

    serving.sink.topic.faults.lose = lose
    serving.feed(*range(5))
    eventually(lambda: source.acknowledged == [10])
    eventually(lambda: list(serving.agent.acknowledged.values()) == [10])


class Remembering(MemorySource):
    """Writes down what it is asked, in order."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.asked: list[tuple[str, Any]] = []
        self.waited: list[bool] = []

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        self.asked.append(("acknowledge", sorted(positions.values())))
        self.waited.append(wait)
        super().acknowledge(positions, wait=wait)

    def rewind(self, lanes: Iterable[Lane]) -> None:
        self.asked.append(("rewind", None))
        super().rewind(lanes)


def test_the_end_waits_until_the_bus_has_all_positions_even_if_none_is_new(
    define: Any, serve: Any, eventually: Any
) -> None:
    source = Remembering(name="memory")
    serving = serve(define(), {"memory": source})
    serving.feed(1)
    eventually(lambda: source.acknowledged == [1])
    assert source.waited == [False]
    serving.stop()
    assert source.waited == [False, True]


def test_only_a_record_whose_result_was_lost_and_those_after_it_come_again(
    define: Any, serve: Any, eventually: Any
) -> None:
    taken: list[object] = []
    source = Remembering(name="memory")
    serving = serve(define(), {"memory": source})

    def lose(message: object) -> bool:
        taken.append(message)
        return len(taken) == 8

    serving.sink.topic.faults.lose = lose
    serving.feed(*range(10))
    eventually(lambda: source.acknowledged == [10])
    assert serving.results() == [2 * x for x in (0, 1, 2, 3, 4, 5, 6, 8, 9, 7, 8, 9)]
    assert source.asked == [("acknowledge", [7]), ("rewind", None), ("acknowledge", [10])]


class Unsure(MemorySource):
    """Cannot reach its bus for the first acknowledgements."""

    refused = 0

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        if wait and positions and self.refused < 2:
            self.refused += 1
            raise ConnectorError("no answer", retriable=True)
        super().acknowledge(positions, wait=wait)


def test_at_most_once_waits_for_a_bus_that_is_away_before_it_runs_anything(
    define: Any, serve: Any, eventually: Any
) -> None:
    source = Unsure(name="memory")
    serving = serve(define(delivery="at_most_once"), {"memory": source})
    serving.feed(1, 2, 3)
    eventually(lambda: len(serving.results()) == 3)
    assert source.refused == 2
    assert source.acknowledged == [3]


def _cut_file(path: Path) -> None:
    """Records 0 to 998, and half of one more."""
    sink = FileSink(path)
    sink.open()
    sink.send(block_of([Message(Data({"x": number}).to_bytes()) for number in range(999)]), time.monotonic() + 60)
    sink.close()
    with path.open("ab") as file:
        file.write(b"\x7fhalf of a record")


def _ys(path: Path) -> list[Any]:
    reading = FileSource(path)
    reading.open()
    values = [Data.from_bytes(value)["y"] for value in reading.poll(5000, 2**20, 1.0).values]
    reading.close()
    return values


@pytest.mark.parametrize("checkpoint", [True, False])
def test_every_good_record_before_a_cut_one_is_published_once(define: Any, tmp_path: Path, checkpoint: bool) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    _cut_file(path)
    source: dict[str, Any] = {"type": "file", "path": str(path), "unfinished": "fail"}
    if checkpoint:
        source["checkpoint"] = str(tmp_path / "checkpoint")
    for _ in range(2):
        definition = define(source=source, sink={"type": "file", "path": str(out)}, dead_letter=None)
        summary = definition.run()
        assert summary.reason == "failed"
        assert "record 999 at byte" in str(summary.error)
    assert _ys(out) == [2 * number for number in range(999)] * (1 if checkpoint else 2)


def test_a_record_whose_writer_has_not_finished_it_is_left_to_the_next_run_which_the_summary_says(
    define: Any, tmp_path: Path
) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    _cut_file(path)
    size = path.stat().st_size
    source = {"type": "file", "path": str(path), "checkpoint": str(tmp_path / "checkpoint")}
    definition = define(source=source, sink={"type": "file", "path": str(out)}, dead_letter=None)
    summary = definition.run()
    assert (summary.reason, summary.ok, summary.error) == ("ended", 999, None)
    assert f"in: its last 17 bytes, from byte {size - 17} on, are a record without its end" in str(summary.waits)
    with path.open("r+b") as file:
        file.truncate(size - 17)
        file.seek(0, 2)
        payload = Data({"x": 999}).to_bytes()
        file.write(bytes([len(payload)]) + payload)
    summary = definition.run()
    assert (summary.reason, summary.ok, summary.waits) == ("ended", 1, None)
    assert _ys(out) == [2 * number for number in range(1000)]


def test_a_service_that_reads_what_it_writes_says_so_when_it_starts(caplog: pytest.LogCaptureFixture) -> None:
    name = uuid.uuid4().hex
    service = streamer.loads(
        f"source: {{type: memory, topic: {name}}}\npipeline: []\nsink: {{type: memory, topic: {name}-out}}\n"
        f"dead_letter: {{type: memory, name: dead, topic: {name}}}\n"
    )
    with caplog.at_level("WARNING"), service:
        pass
    assert "the service reads what it writes" in caplog.text
    assert f"the source memory reads {name}, too: a record that fails comes back without end" in caplog.text


@pytest.mark.parametrize("hot_path", ["python", "native"])
def test_a_service_whose_file_was_rotated_since_its_last_run_runs_each_record_of_both_files_once(
    tmp_path: Path, hot_path: str
) -> None:
    if hot_path == "native" and hotpath.why_not() is not None:
        pytest.skip(f"the compiled hot path: {hotpath.why_not()}")
    path = tmp_path / "in.jsonl"

    def write(numbers: range) -> None:
        with path.open("a") as file:
            file.writelines(f'{{"n": {number}}}\n' for number in numbers)

    def run() -> Any:
        return streamer.loads(
            "source: {type: file, path: in.jsonl, format: jsonl, checkpoint: at}\npipeline: []\n"
            "sink: {type: file, path: out.jsonl, format: jsonl}\n"
            f"dead_letter: {{type: file, name: dead, path: dead.jsonl, format: jsonl}}\nhot_path: {hot_path}\n",
            base=tmp_path,
        ).run()

    write(range(100))
    assert run().ok == 100
    write(range(100, 110))
    path.rename(tmp_path / "in.jsonl.1")
    write(range(110, 360))
    summary = run()
    assert (summary.reason, summary.ok, summary.dead) == ("ended", 260, 0)
    results = [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert results == list(range(360))
