"""What executors do for a step beyond running it: rows that failed are run again, calls that take too long ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pipelines.errors import DefinitionError
from pipelines.executors.errorclasses import ErrorClass, check_error_class
from pipelines.executors.retrybudget import RetryBudgets

LONGEST_WAIT: Final = 30.0
"""Seconds that a wait before another attempt is doubled to at most."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Which rows of a step are run again, how often and when.

    A row is run again if its error, or a `__cause__` of it, is of a class in `on` or of a subclass. All such rows of a
    batch are run together. No more than a tenth of a step's rows of the last minute, or 100, are run again; executors
    that are opened with the same object share that. Raises `DefinitionError` for values that make no sense, and for
    unknown names.
    """

    on: Sequence[ErrorClass]
    """Classes of errors, or their names: of Python's own (`"ConnectionError"`), of `pipelines.errors`, or with a module
    (`"requests.exceptions.Timeout"`)."""
    attempts: int = 3
    """How often a row is run in all, the first time included."""
    wait: float = 0.2
    """Seconds before the second attempt, doubled for each further one up to `LONGEST_WAIT`. Each wait is between half
    of this and all of it, at random, so that processes which failed together do not come back together."""

    budgets: RetryBudgets = field(default_factory=RetryBudgets, init=False, repr=False, compare=False)
    """How many rows may still be run again, for each step."""

    def __post_init__(self) -> None:
        on = (self.on,) if isinstance(self.on, (str, type)) else tuple(self.on)
        object.__setattr__(self, "on", on)
        if not on:
            raise DefinitionError("retry.on: name the errors after which a record is run again: [ConnectionError]")
        if self.attempts < 1:
            raise DefinitionError(f"retry.attempts: {self.attempts} is less than 1, the first attempt")
        if not 0 <= self.wait < float("inf"):
            raise DefinitionError(f"retry.wait: {self.wait} is no number of seconds")
        for error in on:
            check_error_class(error)

    def longest_wait(self, retries: int) -> float:
        """The most seconds to wait when rows were run again `retries` times already."""
        # Beyond 2 ** 40 the limit is reached, whatever the first wait was.
        return min(self.wait * 2.0 ** min(retries, 40), max(self.wait, LONGEST_WAIT))


@dataclass(frozen=True, slots=True)
class StepPolicy:
    """What an executor does for one step beyond running it."""

    retry: Retry | None = None
    """How rows that failed are run again; `None`: they are not."""
    timeout: float | None = None
    """Seconds after which the call of an `async` function for one record is cancelled; `None`: never."""

    def __post_init__(self) -> None:
        if self.timeout is not None and not 0 < self.timeout < float("inf"):
            raise DefinitionError(f"timeout: {self.timeout} is no number of seconds above 0")

    @property
    def longest(self) -> float:
        """The most seconds that waits and calls that time out may take for one record."""
        attempts = 1 if self.retry is None else self.retry.attempts
        waits = 0.0 if self.retry is None else sum(map(self.retry.longest_wait, range(attempts - 1)))
        return waits + attempts * (self.timeout or 0.0)

    @property
    def in_words(self) -> str:
        """`3 attempts after ConnectionError, 2 s a call`; empty if it says nothing."""
        parts = []
        if self.retry is not None:
            names = [error if isinstance(error, str) else error.__name__ for error in self.retry.on]
            parts.append(f"{self.retry.attempts} attempts after {' or '.join(names)}")
        if self.timeout is not None:
            parts.append(f"{self.timeout:g} s a call")
        return ", ".join(parts)


NO_POLICY: Final = StepPolicy()
"""Rows run once, for as long as it takes."""
