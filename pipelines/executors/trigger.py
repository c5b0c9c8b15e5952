"""Open triggers: a loop in a thread of its own, and a cache. Each runs a callback, one run at a time."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import Literal

from pipelines.data.data import Data
from pipelines.errors import RAISED, StreamerError
from pipelines.executors.executor import Output
from pipelines.executors.opentrigger import Callback, Clock, OpenTrigger
from pipelines.steps.flow.trigger import CachingTrigger, SimpleLoopTrigger, TimeLoopTrigger

LONGEST_SLEEP = 60.0
"""Seconds after which a sleeping loop looks at the clock again: it may have been set, or the machine suspended."""

_log = logging.getLogger(__name__)


class TriggerError(StreamerError):
    """A trigger has no result to give: a run failed, or it was stopped."""


class RunTimes(ABC):
    """When the runs of a loop start, in milliseconds of a clock."""

    @abstractmethod
    def now(self, clock: Clock) -> float:
        """The current time of that clock, in milliseconds."""

    @abstractmethod
    def following(self, clock: Clock, started: float | None) -> float:
        """The start time of the next run, once the run that began at `started` (`None`: no run yet) has ended."""


class FixedPeriod(RunTimes):
    """Runs start `frequency_ms` apart; after a run that takes longer the next starts at once. `None`: no pause."""

    def __init__(self, frequency_ms: int | None) -> None:
        self._period = frequency_ms or 0

    def now(self, clock: Clock) -> float:
        return clock.monotonic() * 1000

    def following(self, clock: Clock, started: float | None) -> float:
        return self.now(clock) if started is None else started + self._period


class ClockAligned(RunTimes):
    """Runs start when the system's clock is `offset` milliseconds past a multiple of `frequency_ms`."""

    def __init__(self, frequency_ms: int, offset: int) -> None:
        self._period = frequency_ms
        self._offset = offset

    def now(self, clock: Clock) -> float:
        return clock.time() * 1000

    def following(self, clock: Clock, started: float | None) -> float:
        # In whole milliseconds, so that the present start time is never returned as the next one.
        now = int(self.now(clock))
        return now + self._period - (now - self._offset) % self._period


class Loop(OpenTrigger):
    """Runs the callback at the times that `times` gives, in a daemon thread, as soon as there is a callback.

    Every query gets the latest result; queries before the first result wait for it. With `on_error` "stop" a run that
    raises ends the loop, and every later query raises `TriggerError`; with "continue" the error is logged.
    """

    uses_input = False

    def __init__(self, times: RunTimes, data: Data | None, on_error: Literal["stop", "continue"], clock: Clock) -> None:
        self._times = times
        self._data = Data() if data is None else data
        self._on_error = on_error
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        # Each thread has a number; a thread whose number is not the last one has been stopped.
        self._last = 0
        self._output: tuple[Output] | None = None
        self._error: BaseException | None = None
        self._stopped = True

    @classmethod
    def periodic(cls, trigger: SimpleLoopTrigger, clock: Clock) -> Loop:
        """The loop of a `SimpleLoopTrigger`."""
        return cls(FixedPeriod(trigger.frequency_ms), trigger.data, trigger.on_error, clock)

    @classmethod
    def clock_aligned(cls, trigger: TimeLoopTrigger, clock: Clock) -> Loop:
        """The loop of a `TimeLoopTrigger`."""
        return cls(ClockAligned(trigger.frequency_ms, trigger.offset), trigger.data, trigger.on_error, clock)

    def set_callback(self, callback: Callback) -> None:
        self.stop()
        with self._changed:
            self._output = None
            self._error = None
            self._stopped = False
            self._thread = threading.Thread(
                target=self._run, args=(callback, self._last), name="streamer-trigger", daemon=True
            )
            self._thread.start()

    def query(self, data: Data) -> Output:
        with self._changed:
            while self._output is None and self._error is None and not self._stopped:
                self._changed.wait()
            if self._stopped:
                raise TriggerError("Unable to get output after trigger has been stopped")
            if self._error is not None:
                raise TriggerError(f"Error in Async execution thread: {self._error}") from self._error
            (output,) = self._output or (None,)
            return output

    def stop(self) -> None:
        with self._changed:
            self._last += 1
            self._stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self, callback: Callback, me: int) -> None:
        started: float | None = None
        while self._sleep(self._times.following(self._clock, started), me):
            started = self._times.now(self._clock)
            try:
                output = callback(self._data.copy())
            except BaseException as error:  # noqa: BLE001 - queries raise it, instead of waiting for ever
                if self._ends(error, me):
                    return
                continue
            with self._changed:
                if self._last != me:
                    return
                self._output = (output,)
                self._changed.notify_all()

    def _sleep(self, until: float, me: int) -> bool:
        with self._changed:
            while self._last == me and (left := until - self._times.now(self._clock)) > 0:
                self._clock.wait(self._changed, min(left / 1000, LONGEST_SLEEP))
            return self._last == me

    def _ends(self, error: BaseException, me: int) -> bool:
        if self._on_error == "continue" and isinstance(error, RAISED):
            _log.error("a run of the trigger's loop failed, the loop goes on", exc_info=error)
            return False
        with self._changed:
            if self._last == me:
                self._output = None
                self._error = error
                self._changed.notify_all()
        return True


class Cache(OpenTrigger):
    """Runs on a query if the last result is older than the period; other queries wait for that run meanwhile.

    The age counts from the start of the run. A run that raises leaves no result: the next query runs again.
    """

    uses_input = True

    def __init__(self, frequency_ms: int, clock: Clock) -> None:
        self._period = frequency_ms
        self._clock = clock
        self._turn = threading.RLock()
        self._callback: Callback | None = None
        self._output: tuple[Output] | None = None
        self._started = 0.0

    @classmethod
    def of(cls, trigger: CachingTrigger, clock: Clock) -> Cache:
        """The cache of a `CachingTrigger`."""
        return cls(trigger.frequency_ms, clock)

    def set_callback(self, callback: Callback) -> None:
        with self._turn:
            self._callback = callback
            self._output = None

    def query(self, data: Data) -> Output:
        with self._turn:
            if self._callback is None:
                raise TriggerError("Unable to get output after trigger has been stopped")
            now = self._clock.monotonic() * 1000
            if self._output is None or now - self._started > self._period:
                self._output = None
                self._output = (self._callback(data),)
                self._started = now
            (output,) = self._output
            return output

    def stop(self) -> None:
        with self._turn:
            self._callback = None
            self._output = None
