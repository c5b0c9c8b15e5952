"""`OpenTrigger`, the base of open triggers, and `Clock`, the time that they use, which tests can replace."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from pipelines.data.data import Data
from pipelines.executors.executor import Output

Callback: TypeAlias = Callable[[Data], Output]
"""Runs the pipeline on one record. Raises the error of the run."""


class Clock:
    """The real time; another clock derives from it."""

    def monotonic(self) -> float:
        """Seconds that never go back, from no particular beginning."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since 1970-01-01 UTC, by the system's clock, which may be set."""
        return time.time()

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        """Sleep with `condition`, which the caller holds, until it is notified or the time is over."""
        condition.wait(seconds)


class OpenTrigger(ABC):
    """Decides when the pipeline runs. `query` may be called from any number of threads."""

    uses_input: bool
    """Whether the record given to `query` goes into the pipeline."""

    @abstractmethod
    def set_callback(self, callback: Callback) -> None:
        """Run `callback` from now on. An earlier callback is stopped, and its result discarded."""

    @abstractmethod
    def query(self, data: Data) -> Output:
        """The result for a record; may wait for a run. Raises `TriggerError`, or the error of the run."""

    @abstractmethod
    def stop(self) -> None:
        """Start no more runs, and wait for the end of a run that is under way. A second call does nothing."""
