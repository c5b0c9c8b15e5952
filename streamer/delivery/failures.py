"""`FailureWatch`: distinguishes single bad records from a step in which most records fail, which stops the service."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping

from pipelines.errors import StreamerError, step_of


class ServiceStopped(StreamerError):
    """The service must not go on. The records that failed stay unacknowledged."""


class FailureWatch:
    """Counts failures by step: since the start, and over the last `over` rows.

    `broken` names a step in which more than `stop_ratio` of the last `over` rows failed, or all of the `first` rows (0:
    that is not looked at): then the service must stop, instead of emptying the topic into the dead letter. `suspect`
    names such a step among fewer rows, at the start: dead letters are held back until more rows have been run.
    """

    def __init__(self, stop_ratio: float, over: int, first: int = 0) -> None:
        self.stop_ratio = stop_ratio
        self.over = over
        self.first = first
        self._batches: deque[tuple[int, Counter[str] | None]] = deque()
        self._rows = 0
        self._failed: Counter[str] = Counter()
        self._rows_ever = 0
        self._failed_ever: Counter[str] = Counter()

    def add(self, rows: int, failed: Mapping[int, Exception]) -> None:
        """Count `rows` rows that are finished, and rows that failed, which may have been counted as finished before."""
        if not (rows or failed):
            return
        by_step = None
        self._rows_ever += rows
        if failed:
            by_step = Counter(step_of(error) for error in failed.values())
            self._failed.update(by_step)
            self._failed_ever.update(by_step)
        batches = self._batches
        batches.append((rows, by_step))
        self._rows += rows
        # Whole batches leave, so that at least the last `over` rows stay.
        while batches and self._rows - batches[0][0] >= self.over:
            gone, steps = batches.popleft()
            self._rows -= gone
            if steps:
                self._failed.subtract(steps)

    @property
    def suspect(self) -> str | None:
        """The step in which more than `stop_ratio` of the counted rows failed, `None` if there is none."""
        if not self._failed:
            return None
        step, count = self._failed.most_common(1)[0]
        return step if count > self.stop_ratio * self._rows or self.none_succeeded else None

    @property
    def broken(self) -> str | None:
        """The same, once there are enough rows to be sure."""
        return self.suspect if self._rows >= self.over or self._is_first_broken else None

    @property
    def none_succeeded(self) -> bool:
        """Whether all rows since the start, one at least, failed in the same step; never if `first` is 0."""
        return self.first > 0 and 0 < self._rows_ever <= max(self._failed_ever.values(), default=0)

    @property
    def _is_first_broken(self) -> bool:
        return self.none_succeeded and self._rows_ever >= self.first

    def text(self) -> str:
        """How many records failed in which step, for the error that stops the service."""
        step, count = self._failed.most_common(1)[0]
        where = step or "the pipeline"
        if self._is_first_broken:
            return f"all of the first {self._rows_ever} records failed in {where}"
        return f"{count} of the last {self._rows} records failed in {where}"

    def advice(self) -> str:
        """Which field lets the service go on in spite of these failures."""
        return "write errors: {first: 0}" if self._is_first_broken else "raise errors.stop_ratio"


def let_go(errors: Iterable[Exception]) -> None:
    """Remove the tracebacks of these errors: their frames refer to the batch, which would stay in memory until Python's
    garbage collector runs."""
    for error in errors:
        chain: list[BaseException] = [error]
        for one in chain:
            one.__traceback__ = None
            chain += [up for up in (one.__cause__, one.__context__) if up is not None and up not in chain]
