"""`KeyedRunner`: what steps share whose state of a key is one small piece."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, Final, TypeVar

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.data.result import NONE_HELD, Result
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.runners.state.item import Change, Item
from pipelines.runners.state.keymeters import KeyMeters
from pipelines.runners.state.keytable import KeyTable
from pipelines.runners.state.pieces import Pieces

VERSION: Final = 1
"""The version of the form in which states are saved."""
Why = TypeVar("Why")


class KeyedRunner(StatefulRunner):
    """A runner that remembers a little for each key of a lane, and gives each record its result at once.

    A subclass keeps the states in columns by the code of the key (`KeyTable`), and says when one has changed.
    """

    saves: ClassVar[bool] = True

    def __init__(self, by: Sequence[str], most: int, context: OpenContext, name: str) -> None:
        """`by`: the names of the values that are the key; `most`: keys of a lane; `name`: the step in messages."""
        self.table = KeyTable(by, most, begin=self._began, evict=self._evict)
        self.pieces = Pieces(self.table, VERSION, self.written)
        self._meters = KeyMeters(context.metrics, name, most)

    @abstractmethod
    def begin(self, codes: Rows) -> None:
        """Set the columns of new keys; the columns need room for `table.capacity` rows."""

    @abstractmethod
    def end(self, codes: Rows) -> None:
        """Release what the columns have of keys that are forgotten."""

    @abstractmethod
    def written(self, codes: Rows) -> Sequence[bytes]:
        """The states of these keys, to be saved."""

    @abstractmethod
    def read(self, code: int, state: bytes) -> None:
        """Set the state of a key to what `written` gave. Raises `ValueError` if that is damaged."""

    def coded(self, batch: Batch, failed: dict[int, Exception]) -> tuple[Rows, Rows]:
        """Positions of the rows of a batch that have not failed, and the codes of their keys.

        Rows that have no key are added to `failed`, by position. Keys of rows that failed before get no code.
        """
        rows = np.arange(batch.size, dtype=np.int64)
        if failed:
            for name in self.table.by:
                batch.get(name)  # raises for rows that cannot be decoded while positions are those of the batch
            rows = np.delete(rows, list(failed))
            batch = batch.take(rows)
        codes, keyless = self.table.coded(batch)
        if keyless:
            failed |= {int(rows[row]): error for row, error in keyless.items()}
            rows, codes = np.delete(rows, list(keyless)), np.delete(codes, list(keyless))
        self._meters.remembers(len(self.table))
        return rows, codes

    def drop(self, codes: Rows) -> None:
        """Forget these keys, and have their saved states removed."""
        self.pieces.remove(codes)
        self.table.drop(codes.tolist())
        self.end(codes)
        self._meters.remembers(len(self.table))

    def tick(self, now: float) -> Result:
        """Nothing is due at any time."""
        return Result(Batch({}, 0, rows=NONE_HELD))

    def flush(self) -> Result:
        """Nothing is held."""
        return Result(Batch({}, 0, rows=NONE_HELD))

    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Forget the keys of these lanes; what is saved of them stays."""
        lanes = list(lanes)
        codes = self.table.forget(lanes)
        self.pieces.forget(lanes, codes)
        self.end(codes)
        self._meters.remembers(len(self.table))

    def changes(self) -> Iterable[Change]:
        """The states that have changed, and those of keys that were forgotten."""
        return self.pieces.changes()

    def load(self, lane: Hashable, items: Iterable[Item]) -> None:
        """Begin a lane with the states that were saved."""
        self.forget([lane])
        self.pieces.load(lane, items, self.read)
        self._meters.remembers(len(self.table))

    def _began(self, codes: Rows) -> None:
        self.pieces.begin(codes)
        self.begin(codes)

    def _evict(self, codes: Rows, rows: Rows) -> None:
        self.pieces.remove(codes)
        self.end(codes)
        self._meters.evict(len(codes))


def by_number(batch: Batch, by_row: Mapping[int, Why]) -> dict[int, Why]:
    """Errors of rows, or reasons, by position, as a `Result` has them: by the numbers of the records."""
    return {number: why for row, why in by_row.items() for number in batch.parents(row).tolist()}


def dropped(batch: Batch, rows: Rows, reason: str) -> dict[int, str]:
    """Rows at these positions that are dropped, as a `Result` has them: by the numbers of the records."""
    return dict.fromkeys(batch.numbers(rows)[0].tolist(), reason)
