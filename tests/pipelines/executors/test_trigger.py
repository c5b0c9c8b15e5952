"""Triggers on a clock that the tests move: when they run, what they give, how they stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from waiting import PATIENCE

from pipelines import (
    CachingTrigger,
    Data,
    SimpleLoopTrigger,
    TimeLoopTrigger,
    Trigger,
)
from pipelines.executors.opentrigger import Clock, OpenTrigger
from pipelines.executors.trigger import TriggerError

"""Seconds after which a test that waits for a thread gives up."""


class Manual(Clock):
    """Time stands still until the test moves it; tells how long a sleeper means to sleep."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.moved = threading.Condition()
        self.sleeper: tuple[threading.Condition, float] | None = None

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        with self.moved:
            self.sleeper = (condition, seconds)
            self.moved.notify_all()
        condition.wait(PATIENCE)

    def asleep(self) -> float:
        """Waits until somebody sleeps, and says for how long he means to."""
        with self.moved:
            assert self.moved.wait_for(lambda: self.sleeper is not None, PATIENCE)
            assert self.sleeper is not None
            return self.sleeper[1]

    def move(self, seconds: float) -> None:
        """Waits until somebody sleeps, moves the time and wakes him."""
        self.asleep()
        assert self.sleeper is not None
        condition, _ = self.sleeper
        with condition:
            self.sleeper = None
            self.now += seconds
            condition.notify_all()


class Runs:
    """A step that counts its runs; may be told to wait, to take time, or to fail."""

    def __init__(self, clock: Manual | None = None) -> None:
        self.clock = clock
        self.starts: list[float] = []
        self.inputs: list[dict[str, Any]] = []
        self.takes = 0.0
        self.error: BaseException | None = None
        self.gate: threading.Event | None = None
        self.begun = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self, data: Data) -> Data | None:
        self.starts.append(0.0 if self.clock is None else self.clock.now)
        self.inputs.append(dict(data))
        self.thread = threading.current_thread()
        self.begun.set()
        if self.gate is not None:
            assert self.gate.wait(PATIENCE)
        if self.clock is not None:
            self.clock.now += self.takes
        if self.error is not None:
            raise self.error
        return Data({"run": len(self.starts)})


@pytest.fixture
def started() -> Iterator[Callable[..., OpenTrigger]]:
    """Open triggers that are stopped at the test's end: `started(trigger, clock, callback)`."""
    found: list[OpenTrigger] = []

    def start(trigger: Trigger, clock: Clock, callback: Callable[[Data], Any]) -> OpenTrigger:
        opened = trigger.open(clock)
        found.append(opened)
        opened.set_callback(callback)
        return opened

    yield start
    for one in found:
        one.stop()


def test_a_simple_loop_starts_a_run_every_period(started: Any) -> None:
    clock = Manual()
    runs = Runs(clock)
    runs.takes = 0.3
    trigger = started(SimpleLoopTrigger(frequency_ms=1000), clock, runs)
    assert clock.asleep() == pytest.approx(0.7)
    assert trigger.query(Data()) == Data({"run": 1})
    clock.move(0.7)
    assert clock.asleep() == pytest.approx(0.7)
    assert trigger.query(Data()) == Data({"run": 2})
    assert runs.starts == pytest.approx([1000.0, 1001.0])


def test_a_run_that_takes_longer_than_the_period_is_followed_at_once_and_none_is_made_up(started: Any) -> None:
    clock = Manual()
    runs = Runs(clock)
    runs.takes = 2.5

    def run(data: Data) -> Data | None:
        if len(runs.starts) == 1:
            runs.takes = 0.0
        return runs(data)

    started(SimpleLoopTrigger(frequency_ms=1000), clock, run)
    assert clock.asleep() == pytest.approx(1.0)
    assert runs.starts == pytest.approx([1000.0, 1002.5])


def test_sleeping_is_cut_up_and_no_run_comes_early(started: Any) -> None:
    clock = Manual()
    runs = Runs(clock)
    started(SimpleLoopTrigger(frequency_ms=100_000), clock, runs)
    assert clock.asleep() == 60
    clock.move(60)
    assert clock.asleep() == pytest.approx(40)
    clock.move(39.9)
    assert clock.asleep() == pytest.approx(0.1)
    assert len(runs.starts) == 1
    clock.move(0.1)
    assert clock.asleep() == 60
    assert len(runs.starts) == 2


def test_without_a_period_a_loop_runs_again_and_again(started: Any) -> None:
    enough = threading.Event()
    runs = Runs()

    def run(data: Data) -> Data | None:
        if len(runs.starts) == 50:
            enough.set()
        return runs(data)

    started(SimpleLoopTrigger(), Clock(), run)
    assert enough.wait(PATIENCE)


def test_everybody_waits_for_the_first_result_and_then_gets_the_latest_one(started: Any) -> None:
    clock = Manual()
    runs = Runs(clock)
    runs.gate = threading.Event()
    trigger = started(SimpleLoopTrigger(frequency_ms=1000), clock, runs)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(trigger.query(Data({"mine": 1})))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert runs.begun.wait(PATIENCE)
    assert found == []
    runs.gate.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [Data({"run": 1})] * 3
    assert found[0] is found[1] is found[2]
    assert trigger.query(Data()) is found[0]


def test_a_loop_runs_on_its_own_data_and_not_on_that_of_who_asks(started: Any) -> None:
    runs = Runs()
    trigger = started(SimpleLoopTrigger(frequency_ms=1000, data=Data({"k": 1})), Manual(), runs)
    trigger.query(Data({"k": 2}))
    assert runs.inputs == [{"k": 1}]
    runs = Runs()
    started(SimpleLoopTrigger(frequency_ms=1000), Manual(), runs).query(Data({"k": 2}))
    assert runs.inputs == [{}]


def test_each_run_has_a_record_of_its_own(started: Any) -> None:
    clock = Manual()
    seen: list[int] = []

    def run(data: Data) -> Data:
        seen.append(len(data))
        data["more"] = 1
        return data

    started(SimpleLoopTrigger(frequency_ms=1000, data={"k": 1}), clock, run)
    clock.move(1)
    clock.asleep()
    assert seen == [1, 1]


@pytest.mark.parametrize(
    ("now", "frequency", "offset", "sleep"),
    [
        (1000.0, 60_000, 0, 20.0),
        (1000.0, 60_000, 20_000, 40.0),
        (1020.0, 60_000, 0, 60.0),
        (1019.999, 60_000, 0, 0.001),
        (1040.0, 60_000, 20_000, 60.0),
        (1000.0, 60_000, 80_000, 40.0),
        (1000.5, 7, 3, 0.006),
    ],
)
def test_a_time_loop_runs_at_the_next_time_that_fits(
    started: Any, now: float, frequency: int, offset: int, sleep: float
) -> None:
    clock = Manual(now)
    runs = Runs(clock)
    started(TimeLoopTrigger(frequency_ms=frequency, offset=offset), clock, runs)
    assert clock.asleep() == pytest.approx(min(sleep, 60), abs=1e-6)
    assert runs.starts == []
    clock.move(sleep)
    clock.asleep()
    assert len(runs.starts) == 1
    assert runs.starts[0] * 1000 % frequency == pytest.approx(offset % frequency, abs=1e-3)


def test_a_time_loop_leaves_out_the_times_that_a_long_run_took(started: Any) -> None:
    clock = Manual(1000.0)
    runs = Runs(clock)
    runs.takes = 70.0
    started(TimeLoopTrigger(frequency_ms=60_000), clock, runs)
    clock.move(20.0)
    assert clock.asleep() == pytest.approx(50.0)
    assert runs.starts == [1020.0]
    clock.move(50.0)
    clock.asleep()
    assert runs.starts == [1020.0, 1140.0]


def test_a_run_that_fails_ends_the_loop_and_everybody_is_told(started: Any) -> None:
    clock = Manual()
    runs = Runs(clock)
    trigger = started(SimpleLoopTrigger(frequency_ms=1000), clock, runs)
    assert trigger.query(Data()) == Data({"run": 1})
    clock.asleep()
    runs.error = error = ValueError("boom")
    clock.move(1)
    assert runs.thread is not None
    runs.thread.join(PATIENCE)
    for _ in range(2):
        with pytest.raises(TriggerError, match="Error in Async execution thread: boom") as caught:
            trigger.query(Data())
        assert caught.value.__cause__ is error


def test_those_who_wait_for_a_first_run_that_fails_are_told(started: Any) -> None:
    runs = Runs()
    runs.gate = threading.Event()
    runs.error = KeyboardInterrupt()
    trigger = started(SimpleLoopTrigger(), Manual(), runs)
    told: list[BaseException | None] = []

    def ask() -> None:
        try:
            trigger.query(Data())
        except TriggerError as error:
            told.append(error.__cause__)

    thread = threading.Thread(target=ask)
    thread.start()
    assert runs.begun.wait(PATIENCE)
    runs.gate.set()
    thread.join(PATIENCE)
    assert told == [runs.error]


def test_a_loop_may_log_a_failure_and_go_on_with_the_result_before(
    started: Any, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Manual()
    runs = Runs(clock)
    trigger = started(SimpleLoopTrigger(frequency_ms=1000, on_error="continue"), clock, runs)
    assert trigger.query(Data()) == Data({"run": 1})
    runs.error = ValueError("boom")
    with caplog.at_level(logging.ERROR, "pipelines"):
        clock.move(1)
        clock.asleep()
    assert "a run of the trigger's loop failed" in caplog.text
    assert trigger.query(Data()) == Data({"run": 1})
    runs.error = None
    clock.move(1)
    clock.asleep()
    assert trigger.query(Data()) == Data({"run": 3})


def test_after_the_stop_nobody_gets_a_result_and_nothing_runs() -> None:
    clock = Manual()
    runs = Runs(clock)
    trigger = SimpleLoopTrigger(frequency_ms=1000).open(clock)
    trigger.set_callback(runs)
    clock.asleep()
    trigger.stop()
    trigger.stop()
    assert runs.thread is not None
    assert not runs.thread.is_alive()
    with pytest.raises(TriggerError, match="Unable to get output after trigger has been stopped"):
        trigger.query(Data())
    assert len(runs.starts) == 1


def test_those_who_wait_when_the_loop_is_stopped_are_told() -> None:
    clock = Manual()
    trigger = TimeLoopTrigger(frequency_ms=60_000).open(clock)
    trigger.set_callback(Runs())
    clock.asleep()
    told: list[str] = []

    def ask() -> None:
        try:
            trigger.query(Data())
        except TriggerError as error:
            told.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    trigger.stop()
    thread.join(PATIENCE)
    assert told == ["Unable to get output after trigger has been stopped"]


def test_stopping_waits_for_the_run_that_is_under_way_and_throws_its_result_away() -> None:
    runs = Runs()
    runs.gate = threading.Event()
    trigger = SimpleLoopTrigger().open(Clock())
    trigger.set_callback(runs)
    assert runs.begun.wait(PATIENCE)
    threading.Timer(0.05, runs.gate.set).start()
    trigger.stop()
    assert runs.gate.is_set()
    assert runs.thread is not None
    assert not runs.thread.is_alive()
    assert len(runs.starts) == 1


def test_a_run_may_stop_its_own_loop() -> None:
    trigger = SimpleLoopTrigger().open(Clock())
    runs = Runs()

    def run(data: Data) -> Data | None:
        trigger.stop()
        return runs(data)

    trigger.set_callback(run)
    assert runs.begun.wait(PATIENCE)
    assert runs.thread is not None
    runs.thread.join(PATIENCE)
    assert len(runs.starts) == 1


def test_another_callback_takes_the_place_of_the_first_with_a_fresh_start(started: Any) -> None:
    first, second = Runs(), Runs()
    second.gate = threading.Event()
    clock = Manual()
    trigger = started(SimpleLoopTrigger(frequency_ms=1000), clock, first)
    clock.asleep()
    trigger.set_callback(second)
    assert second.begun.wait(PATIENCE)
    assert first.thread is not None
    assert not first.thread.is_alive()
    second.gate.set()
    assert trigger.query(Data()) == Data({"run": 1})
    assert len(first.starts) == 1


def test_the_thread_of_a_loop_ends_with_the_program(started: Any) -> None:
    runs = Runs()
    started(SimpleLoopTrigger(frequency_ms=1000), Manual(), runs).query(Data())
    assert runs.thread is not None
    assert runs.thread.daemon


def test_a_cache_runs_at_most_once_in_its_period(started: Any) -> None:
    clock = Manual()
    runs = Runs()
    trigger = started(CachingTrigger(frequency_ms=1000), clock, runs)
    assert runs.starts == []
    first = trigger.query(Data({"n": 1}))
    clock.now += 0.5
    assert trigger.query(Data({"n": 2})) is first
    clock.now += 0.5
    assert trigger.query(Data({"n": 3})) is first
    clock.now += 0.001
    assert trigger.query(Data({"n": 4})) == Data({"run": 2})
    clock.now += 0.999
    assert trigger.query(Data({"n": 5})) == Data({"run": 2})
    assert runs.inputs == [{"n": 1}, {"n": 4}]


def test_who_asks_a_cache_while_it_runs_waits_for_that_run(started: Any) -> None:
    runs = Runs()
    runs.gate = threading.Event()
    trigger = started(CachingTrigger(frequency_ms=60_000), Clock(), runs)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(trigger.query(Data()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert runs.begun.wait(PATIENCE)
    runs.gate.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [Data({"run": 1})] * 4


def test_a_failure_is_not_kept_in_the_cache(started: Any) -> None:
    runs = Runs()
    runs.error = error = ValueError("boom")
    trigger = started(CachingTrigger(frequency_ms=1000), Manual(), runs)
    with pytest.raises(ValueError, match="boom") as caught:
        trigger.query(Data())
    assert caught.value is error
    runs.error = None
    assert trigger.query(Data()) == Data({"run": 2})


def test_a_stopped_cache_gives_nothing(started: Any) -> None:
    trigger = started(CachingTrigger(frequency_ms=1000), Manual(), Runs())
    trigger.query(Data())
    trigger.stop()
    with pytest.raises(TriggerError, match="Unable to get output after trigger has been stopped"):
        trigger.query(Data())
