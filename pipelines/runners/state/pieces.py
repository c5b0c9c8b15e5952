"""`Pieces`: which keys have a state to be saved, where the state of a key is one small piece."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import tee

import numpy as np

from pipelines.data.columns import Rows
from pipelines.errors import StreamerError
from pipelines.runners.state.item import Change, Item
from pipelines.runners.state.keytable import KeyTable, grown


class Pieces:
    """The keys of a table whose state has changed since it was saved, and those that are gone.

    Each key has one piece, part 0. What it holds is the step's, behind a first byte for the version of its form.
    """

    def __init__(self, table: KeyTable, version: int, write: Callable[[Rows], Sequence[bytes]]) -> None:
        """`write` gives the states of the keys with these codes, without the version."""
        self._table = table
        self._version = bytes([version])
        self._write = write
        self._changed = np.zeros(table.capacity, np.bool_)
        self._saved = np.zeros(table.capacity, np.bool_)
        self._gone: dict[tuple[Hashable, str], None] = {}

    def begin(self, codes: Rows) -> None:
        """These keys are new: nothing of them is saved."""
        if len(self._changed) < self._table.capacity:
            self._changed = grown(self._changed, self._table.capacity)
            self._saved = grown(self._saved, self._table.capacity)
        self._changed[codes] = self._saved[codes] = False

    def change(self, codes: Rows) -> None:
        """The states of these keys have changed."""
        self._changed[codes] = True

    def remove(self, codes: Rows) -> None:
        """What is saved of these keys has to go, as they leave the table or have an empty state."""
        for code in codes[self._saved[codes]].tolist():
            self._gone[self._table.lane(code), self._table.text(code)] = None
        self._changed[codes] = self._saved[codes] = False

    def forget(self, lanes: Iterable[Hashable], codes: Rows) -> None:
        """These lanes, with the keys of these codes, are left as they are saved."""
        self._changed[codes] = False
        if self._gone:
            ended = set(lanes)
            self._gone = {place: None for place in self._gone if place[0] not in ended}

    def changes(self) -> Iterator[Change]:
        """What has changed or is gone since the last call."""
        gone, self._gone = self._gone, {}
        codes = np.flatnonzero(self._changed)
        self._changed[codes] = False
        self._saved[codes] = True
        for code, value in zip(codes.tolist(), self._write(codes), strict=True):
            lane, text = self._table.lane(code), self._table.text(code)
            # A key that was gone and is there again.
            gone.pop((lane, text), None)
            yield Change(lane, text, 0, self._version + value)
        for lane, text in gone:
            yield Change(lane, text, 0, None)

    def load(self, lane: Hashable, items: Iterable[Item], read: Callable[[int, bytes], None]) -> None:
        """Begin the keys of a lane with what was saved; `read` takes the code and the state of one.

        Raises `StreamerError` for a piece of another version, or for which `read` raises `ValueError`.
        """
        items, same = tee(items)
        for item, code in zip(same, self._table.loaded(lane, (item.key for item in items)), strict=True):
            if item.part or item.value[:1] != self._version:
                raise StreamerError(
                    f"the saved state of the key {item.key[:60]} is of another version of streamer: use that version, "
                    "or discard the state with `streamer state forget`"
                )
            try:
                read(code, item.value[1:])
            except ValueError as error:
                raise StreamerError(
                    f"the saved state of the key {item.key[:60]} is damaged: {error}; discard it with `streamer state "
                    "forget`"
                ) from None
            self._changed[code], self._saved[code] = False, True
