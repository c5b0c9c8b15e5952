"""When a service takes keys for silent: by when all records had come that were run, whatever their source is."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

import pipelines
from connectors.memory import MemorySession, MemorySessionSource, MemorySource, MemoryTopic
from connectors.message import Message
from connectors.records import Lane, Records
from connectors.source import SourceDown
from pipelines import Data, PipelineStep, Window

IDLE = 0.4
KEYS = Window(by="d", size=1000, values="x", output_name="y", short="emit", idle=IDLE)


def of(key: str) -> Message:
    return Message(Data({"d": key, "x": 1}).to_bytes())


def windows(serving: Any) -> list[tuple[str, int]]:
    results = [Data.from_bytes(message.value) for message in serving.sink.messages]
    return [(result["d"], result["count"]) for result in results]


class Slow(MemorySource):
    """Delivers one record in 50 ms at most."""

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        time.sleep(0.05)
        return super().poll(1, max_bytes, timeout)


@pytest.fixture
def silent(define: Callable[..., Any], serve: Callable[..., Any]) -> Callable[..., Any]:
    """`silent(source, ...)` is a service with these sources, which gathers windows of each key."""

    def started(*sources: Any, sinks: Any = None, **settings: Any) -> Any:
        step = settings.pop("step", KEYS)
        names = [{"type": "memory", "topic": source.name, "name": source.name} for source in sources]
        settings = {"batch": {"max_records": 1}, "state": "memory", **settings}
        by_name = {source.name: source for source in sources}
        return serve(define(step, source=names, **settings), sources=by_name, sinks=sinks)

    return started


def backlog() -> list[Message]:
    """A key that is silent between its records for longer than `idle`, if they are read one by one."""
    return [of("a"), *(of("b") for _ in range(20)), of("a")]


def test_no_window_ends_while_its_records_wait(silent: Any, eventually: Any) -> None:
    source = Slow(name="a")
    source.feed(*backlog())
    serving = silent(source)
    eventually(lambda: len(windows(serving)) >= 2)
    assert sorted(windows(serving)) == [("a", 2), ("b", 20)]


@pytest.mark.parametrize("ends", [False, True])
def test_another_source_that_is_silent_or_has_ended_changes_nothing(silent: Any, eventually: Any, ends: bool) -> None:
    source, other = Slow(name="a"), MemorySource(name="b")
    source.feed(*backlog())
    if ends:
        other.end()
    serving = silent(source, other)
    eventually(lambda: len(windows(serving)) >= 2)
    assert sorted(windows(serving)) == [("a", 2), ("b", 20)]


def test_windows_of_one_source_wait_while_another_has_a_backlog(silent: Any, eventually: Any) -> None:
    source, other = Slow(name="a"), MemorySource(name="b")
    source.feed(*(of("b") for _ in range(20)))
    other.feed(of("c"))
    serving = silent(source, other)
    began = time.monotonic()
    eventually(lambda: ("c", 1) in windows(serving))
    assert source.lag() == {("a", 0): 0}
    assert time.monotonic() - began > 20 * 0.05


def test_no_window_ends_while_its_records_wait_to_be_run(silent: Any, eventually: Any) -> None:
    """Though the source has no more."""

    def slow(data: Data) -> Data:
        time.sleep(0.05)
        return data

    source = MemorySource(name="a")
    source.feed(*backlog())
    steps = PipelineStep(pipeline=pipelines.Sequence([slow, KEYS]))
    serving = silent(source, step=steps, limits={"batches": 30})
    eventually(lambda: len(windows(serving)) >= 2)
    assert sorted(windows(serving)) == [("a", 2), ("b", 20)]


def test_no_window_ends_while_its_records_wait_for_others_of_their_batch(silent: Any, eventually: Any) -> None:
    source = MemorySource(name="a")
    serving = silent(source, batch={"max_records": 10, "max_wait": 3 * IDLE})
    source.feed(of("a"))
    eventually(lambda: source.acknowledged == [1])
    source.feed(of("a"))
    eventually(lambda: bool(windows(serving)))
    assert windows(serving) == [("a", 2)]


class Broken(MemorySource):
    """Loses its connection, and notices that, and its return, at the end of polls that give nothing."""

    is_cut = is_down = False

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        if not (self.is_cut or self.is_down):
            return super().poll(max_records, max_bytes, timeout)
        time.sleep(0.3)
        if self.is_cut != self.is_down:
            self.is_down = self.is_cut
            self._events.append(SourceDown(self.name, self.is_down, "cut"))
        return Records.empty(self.name)


def test_no_window_ends_while_its_source_is_away(silent: Any, eventually: Any) -> None:
    source = Broken(name="a")
    serving = silent(source)
    source.feed(of("a"))
    eventually(lambda: source.acknowledged == [1])
    (intake,) = serving.agent._loop.intakes
    source.is_cut = True
    cut = time.monotonic()
    source.feed(*(of("a") for _ in range(5)))
    eventually(lambda: source.is_down)
    time.sleep(3 * IDLE)
    assert intake.caught_up() < cut
    assert windows(serving) == []
    # What it says next is by a poll that began with a connection.
    told: list[float] = []
    asked = source.caught_up

    def tell(emptied_at: float) -> float:
        told.append(emptied_at)
        return asked(emptied_at)

    source.caught_up = tell  # type: ignore[method-assign]
    mended = time.monotonic()
    source.is_cut = False
    eventually(lambda: bool(windows(serving)))
    assert windows(serving) == [("a", 6)]
    assert source.is_down is False
    assert all(moment < cut or moment > mended for moment in told)


def test_no_window_ends_while_its_source_is_paused(silent: Any, eventually: Any) -> None:
    source = MemorySource(name="a")
    serving = silent(source)
    source.feed(of("a"))
    eventually(lambda: source.acknowledged == [1])
    serving.agent.pause("a")
    time.sleep(0.2)
    source.feed(of("a"))
    time.sleep(3 * IDLE)
    assert windows(serving) == []
    serving.agent.resume("a")
    eventually(lambda: bool(windows(serving)))
    assert windows(serving) == [("a", 2)]


def test_no_window_ends_while_the_bus_waits_for_acknowledgements(silent: Any, eventually: Any) -> None:
    """It delivers no more then, however many records it has."""

    class SlowSession(MemorySessionSource):
        def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
            time.sleep(0.05)
            return super().poll(max_records, max_bytes, timeout)

    session = MemorySession(window=1)
    session.feed(backlog())
    serving = silent(SlowSession(session, name="a"), batch={"max_records": 10})
    eventually(lambda: len(windows(serving)) >= 2)
    assert sorted(windows(serving)) == [("a", 2), ("b", 20)]


def test_windows_of_silent_keys_end_in_a_service_that_is_never_without_batches(silent: Any, eventually: Any) -> None:
    """As the source says by when all had come that it has delivered."""
    counted = itertools.count()

    def records() -> Iterator[Message]:
        yield of("a")
        for _ in counted:
            time.sleep(0.01)
            yield of("b")

    class Busy(MemorySource):
        def caught_up(self, emptied_at: float) -> float:
            assert emptied_at == -math.inf
            return time.monotonic() - 0.1

    serving = silent(Busy(records(), name="a"))
    eventually(lambda: bool(windows(serving)))
    assert windows(serving) == [("a", 1)]


def test_a_source_that_had_ended_has_caught_up_no_more_when_its_records_come_again(
    silent: Any, eventually: Any
) -> None:
    class SlowToRewind(MemorySource):
        def rewind(self, lanes: Iterable[Lane]) -> None:
            super().rewind(lanes)
            time.sleep(0.5)

    source, other = SlowToRewind(name="a"), MemorySource(name="b")
    source.feed(of("a"))
    source.end()
    intake, _ = silent(source, other).agent._loop.intakes
    eventually(lambda: intake.caught_up() == math.inf)
    intake.rewind(source._lanes.values())
    eventually(lambda: intake.caught_up() == -math.inf)
    eventually(lambda: intake.caught_up() == math.inf)


def test_services_without_state_do_not_ask(define: Any, serve: Any, eventually: Any) -> None:
    class Asked(MemorySource):
        def caught_up(self, emptied_at: float) -> float:
            raise AssertionError("nobody needs to know")

    serving = serve(define(), sources={"memory": Asked(topic=MemoryTopic("in", 1), name="memory")})
    serving.feed(1)
    eventually(lambda: serving.results() == [2])
    assert serving.stop().error is None
