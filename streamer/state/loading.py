"""`Loading`: how far the saved state of a partition is loaded, for `/ready` and the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pipelines.runners.state.item import Item

LOG_AFTER: Final = 2.0
"""Seconds between two lines of the log."""


class Loading:
    """What is being loaded. Written by the run thread, read by any."""

    def __init__(self, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._log = log
        self._clock = clock
        self._partition: str | None = None
        self._began = self._logged_at = 0.0
        self._pieces = self._loaded = 0

    @property
    def reason(self) -> str | None:
        """Why the service is not ready; `None`: nothing is being loaded."""
        partition, loaded, pieces = self._partition, self._loaded, self._pieces
        if partition is None:
            return None
        return f"the state of {partition} is being loaded, {loaded} of {pieces} pieces are"

    @contextmanager
    def of(self, partition: str) -> Iterator[None]:
        """While this lasts the state of this partition is loaded, named as in messages: `kafka 0`."""
        self._loaded = self._pieces = 0
        self._began = self._logged_at = self._clock()
        self._partition = partition
        try:
            yield
        finally:
            self._partition = None
        if self._pieces:
            seconds = round(self._clock() - self._began, 3)
            self._log.info("the state is loaded", partition=partition, pieces=self._pieces, seconds=seconds)

    def counted(self, items: Mapping[str, Sequence[Item]]) -> dict[str, Iterable[Item]]:
        """The same pieces, by step, which count as loaded as they are read."""
        self._pieces = sum(map(len, items.values()))
        return {step: self._each(pieces) for step, pieces in items.items()}

    def _each(self, pieces: Iterable[Item]) -> Iterator[Item]:
        for piece in pieces:
            yield piece
            self._loaded += 1
            # A look at the clock for each piece would cost as much as some steps need for one.
            if self._loaded % 1000 == 0 and (now := self._clock()) - self._logged_at >= LOG_AFTER:
                self._logged_at = now
                self._log.info(
                    "the state is being loaded", partition=self._partition, loaded=self._loaded, pieces=self._pieces
                )
