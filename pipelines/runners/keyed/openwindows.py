"""`OpenWindows`: the windows of each key that have records and are not closed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pipelines.data.columns import Mask, Rows
from pipelines.runners.state.keytable import grown

_NONE: Final = np.iinfo(np.int64).min
_FIRST: Final = 64
_NO_WINDOWS: Final[Mapping[int, int]] = {}


class Opened(NamedTuple):
    """Open windows, in columns."""

    codes: Rows
    begins: Rows
    slots: Rows

    def take(self, which: Rows | Mask) -> Opened:
        """Those at these places."""
        return Opened(self.codes[which], self.begins[which], self.slots[which])


class OpenWindows:
    """Each open window has a slot: the row of the columns that hold its content. Times are in milliseconds.

    A window is known by the code of its key (`KeyTable`) and its begin. Slots are used again. Used by one thread.
    """

    def __init__(self, grow: Callable[[int], None], begin: Callable[[Rows], None]) -> None:
        """`grow` is called with the number of slots that columns need, then `begin` with those of new windows."""
        self._grow = grow
        self._begin = begin
        self._free: list[int] = []
        self._slots = 0
        self._of: dict[int, dict[int, int]] = {}
        # The window that each key had last, which is nearly always that of its next record.
        self._recent = np.zeros(0, np.int64)
        self._recent_slot = np.zeros(0, np.int64)
        self._has = np.zeros(0, np.bool_)
        """Which keys have open windows."""

    def grow(self, capacity: int) -> None:
        """Have room for so many keys."""
        self._recent, self._recent_slot = grown(self._recent, capacity), grown(self._recent_slot, capacity)
        self._has = grown(self._has, capacity)

    def begin(self, codes: Rows) -> None:
        """These keys are new."""
        self._recent[codes] = _NONE
        self._has[codes] = False

    @property
    def codes(self) -> Rows:
        """The keys that have open windows."""
        return np.flatnonzero(self._has)

    def of(self, code: int) -> Mapping[int, int]:
        """The slots of a key's open windows, by begin."""
        return self._of.get(code, _NO_WINDOWS)

    def all_of(self, codes: Sequence[int]) -> Opened:
        """The open windows of these keys."""
        opened = [(code, begin, slot) for code in codes for begin, slot in self._of.get(code, _NO_WINDOWS).items()]
        return Opened(*np.array(opened, np.int64).reshape(-1, 3).T)

    def slots(self, codes: Rows, begins: Rows) -> Rows:
        """The slot of each of these windows; those that are not open are opened."""
        slots = self._recent_slot[codes]
        missed = np.flatnonzero(self._recent[codes] != begins)
        if not len(missed):
            return slots
        new: list[int] = []
        others = []
        for code, begin in zip(codes[missed].tolist(), begins[missed].tolist(), strict=True):
            windows = self._of.setdefault(code, {})
            slot = windows.get(begin)
            if slot is None:
                slot = windows[begin] = self._slot()
                new.append(slot)
            others.append(slot)
        if new:
            self._begin(np.array(new, np.int64))
        slots[missed] = others
        self._has[codes[missed]] = True
        self._recent[codes[missed]] = begins[missed]
        self._recent_slot[codes[missed]] = slots[missed]
        return slots

    def close(self, codes: Rows, begins: Rows) -> None:
        """These windows are closed, and their slots may be given to others."""
        for code, begin in zip(codes.tolist(), begins.tolist(), strict=True):
            windows = self._of[code]
            self._free.append(windows.pop(begin))
            if not windows:
                del self._of[code]
                self._has[code] = False
        self._recent[codes] = _NONE

    def drop(self, codes: Rows) -> None:
        """All windows of these keys are gone."""
        for code in codes.tolist():
            self._free.extend(self._of.pop(code, _NO_WINDOWS).values())
        self._recent[codes] = _NONE
        self._has[codes] = False

    def _slot(self) -> int:
        if not self._free:
            more = max(self._slots, _FIRST)
            self._free = list(range(self._slots, self._slots + more))[::-1]
            self._slots += more
            self._grow(self._slots)
        return self._free.pop()
