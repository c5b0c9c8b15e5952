"""`LedgerEntry`: the rows of one batch in the ledger, and how many outputs each of them still waits for."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from connectors.records import Ints, Lane

Mask = npt.NDArray[np.bool_]
Places: TypeAlias = Ints | slice | None
"""Which rows of an entry, counted from its first: `int64 (n,)`, a slice `[start, stop)`, or `None`: all."""


class LedgerEntry:
    """The rows of one batch.

    A row is complete when it is decided (the pipeline has finished it) and none of its outputs is missing. Nearly
    always all rows of an entry have the same state; then one number stands for all, without work per row.
    """

    __slots__ = (
        "_alike",
        "_all_missing",
        "_all_undecided",
        "_missing",
        "_undecided",
        "byte_count",
        "count",
        "entered_at",
        "first",
        "lanes",
        "note",
    )

    _undecided: Mask
    _missing: npt.NDArray[np.int32]

    def __init__(self, first: int, count: int, byte_count: int, entered_at: float, note: Any = None) -> None:
        """The rows `first`, `first + 1`, ..., `count` of them.

        `note` is any object that the caller of `Ledger.enter` needs again when rows are confirmed.
        """
        self.first = first
        self.count = count
        self.byte_count = byte_count
        self.entered_at = entered_at
        self.note = note
        self.lanes: list[Lane] = []
        """The lanes of its rows."""
        self._all_undecided = True
        self._all_missing = 0
        # `_undecided` and `_missing`, with an element for each row, are made when the first row's state differs.
        self._alike = True

    @property
    def all_undecided(self) -> bool:
        """Whether all rows are undecided."""
        return self._all_undecided if self._alike else bool(self._undecided.all())

    @property
    def undecided(self) -> Mask:
        """Rows that the pipeline has not finished: not run yet, or held by a step."""
        return np.full(self.count, self._all_undecided) if self._alike else self._undecided

    @property
    def is_complete(self) -> bool:
        """Whether all rows are complete."""
        if self._alike:
            return not self._all_undecided and not self._all_missing
        return not self.is_open().any()

    @property
    def is_decided(self) -> bool:
        """Whether the pipeline has finished all rows."""
        return not self._all_undecided if self._alike else not self._undecided.any()

    def is_open(self) -> Mask:
        """Which rows are not complete."""
        if self._alike:
            return np.full(self.count, not self.is_complete)
        waiting: Mask = self._missing > 0
        waiting |= self._undecided
        return waiting

    def first_open(self, start: int, stop: int) -> int:
        """The first of the rows `[start, stop)` that is not complete; `stop` if all are."""
        if self._alike:
            return stop if self.is_complete else start
        waiting = self.is_open()[start:stop]
        return start + int(np.argmax(waiting)) if waiting.any() else stop

    def is_row_open(self, place: int) -> bool:
        """Whether the row at this place is not complete."""
        if self._alike:
            return not self.is_complete
        return bool(self._undecided[place] or self._missing[place])

    def expect(self, places: Places) -> None:
        """Each of these rows that is not complete waits for one more output; an array may repeat a row."""
        if places is None and self._alike:
            self._all_missing += not self.is_complete
            return
        self._tell_apart()
        if places is None or isinstance(places, slice):
            at = slice(None) if places is None else places
            self._missing[at] += self.is_open()[at]
            return
        self._missing += np.bincount(places, minlength=self.count) * self.is_open()

    def decide(self, places: Places) -> None:
        """The pipeline has finished these rows: they wait only for their outputs."""
        if places is None and self._alike:
            self._all_undecided = False
            return
        self._tell_apart()
        self._undecided[slice(None) if places is None else places] = False

    def lower(self, places: Places) -> None:
        """Each of these rows waits for one output less; an array may repeat a row."""
        if places is None and self._alike:
            self._all_missing = max(self._all_missing - 1, 0)
            return
        self._tell_apart()
        if places is None or isinstance(places, slice):
            self._missing[slice(None) if places is None else places] -= 1
        else:
            self._missing -= np.bincount(places, minlength=self.count)
        np.maximum(self._missing, 0, out=self._missing)

    def wait_for(self, place: int, outputs: int) -> None:
        """This row waits for `outputs` outputs."""
        self._tell_apart()
        self._missing[place] = outputs

    def forget(self, start: int, stop: int) -> None:
        """The rows `[start, stop)` are complete, even if they waited for outputs."""
        self._tell_apart()
        self._undecided[start:stop] = False
        self._missing[start:stop] = 0

    def _tell_apart(self) -> None:
        if self._alike:
            self._undecided = np.full(self.count, self._all_undecided)
            self._missing = np.full(self.count, self._all_missing, np.int32)
            self._alike = False
