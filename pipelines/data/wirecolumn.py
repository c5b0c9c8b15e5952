"""`WireColumn`: values that no step has asked for yet, as undecoded pieces of the input."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column, Mask, Rows, cut_mask, joined_masks, mask_at
from pipelines.data.entries import Entries
from pipelines.errors import RowsFailed, WireError, without_traceback
from pipelines.values.oddvalue import OddValue


class WireColumn(Column):
    """Undecoded map entries of the input, decoded when first asked for and passed through untouched.

    `entries[i]` is the serialised map entry of row i, tag and length included (so that joined entries are a
    message), or `None`; of plain JSON it is the text of the value. `decode` turns the entries into a decoded column or
    raises `RowsFailed`. In a list, entries that a row lacks are `None`; with `PackedEntries`, `Spans` for example,
    `present` has to say which these are.
    """

    __slots__ = ("_decode", "_decoded", "_odd", "entries")

    def __init__(self, entries: Entries, decode: Callable[[Entries], Column], present: Mask | None = None) -> None:
        if present is None and isinstance(entries, list) and None in entries:
            present = np.fromiter((entry is not None for entry in entries), np.bool_, len(entries))
        super().__init__(None, present)
        self.entries = entries
        self._decode = decode
        self._decoded: Column | None = None
        self._odd: dict[int, Exception] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def is_decoded(self) -> bool:
        """Whether the values have been decoded."""
        return self._decoded is not None

    def decoded(self) -> Column:
        if self._odd is not None:
            raise RowsFailed(self._with_key(self._odd), of=self)
        if self._decoded is None:
            try:
                self._decoded = self._decode(self.entries)
            except RowsFailed as error:
                self._odd = {row: without_traceback(reason) for row, reason in error.failures.items()}
                raise RowsFailed(self._with_key(error.failures), of=self) from None
        self._decoded.key = self.key
        return self._decoded

    def all_cells(self) -> Iterator[tuple[int, Any]]:
        try:
            return self.decoded().cells({})
        except RowsFailed as error:
            return self._cells_with_odd(error.failures)

    @property
    def has_odd(self) -> bool:
        return self._odd is not None

    def _cells_with_odd(self, odd: Mapping[int, Exception]) -> Iterator[tuple[int, Any]]:
        cells: dict[int, Any] = {row: OddValue(self.entries[row], self._decode, str(odd[row])) for row in odd}
        others = [row for row in self.positions() if row not in odd]
        if others:
            cells.update((others[at], value) for at, value in self.take(np.array(others, np.int64)).all_cells())
        return iter(sorted(cells.items(), key=operator.itemgetter(0)))

    @property
    def array(self) -> npt.NDArray[Any]:
        return self.decoded().array

    def __getitem__(self, row: int) -> Any:
        if self._decoded is not None:
            return self._decoded[row]
        entry = self.entries[row]
        try:
            return MISSING if entry is None else self._decode([entry])[0]
        except RowsFailed as error:
            raise RowsFailed(self._with_key({range(len(self))[row]: error.failures[0]}), of=self) from None

    def _with_key(self, failures: Mapping[int, Exception]) -> dict[int, Exception]:
        """The same failures, with the key of the values; decoders of some forms know and name it themselves."""
        if self.key is None:
            return dict(failures)
        return {
            row: WireError.unreadable(self.key, error)
            if isinstance(error, WireError) and error.key != self.key
            else error
            for row, error in failures.items()
        }

    @property
    def writable(self) -> bool:
        try:
            return self.decoded().writable
        except RowsFailed:
            return True

    def lent(self) -> WireColumn:
        if self._decoded is not None and not self._decoded.writable:
            return self
        return LentWireColumn(self)

    def is_decoded_as(self, column: object) -> bool:
        return self._decoded is not None and self._decoded is column

    def part(self, start: int, stop: int) -> WireColumn:
        present = cut_mask(self.mask, start, stop)
        cut = WireColumn(self.entries[start:stop], self._decode, present)
        if self._decoded is not None:
            cut._decoded = self._decoded.part(start, stop)
        return cut

    def take(self, rows: Rows) -> WireColumn:
        entries = self.entries
        if isinstance(entries, list):
            selected = WireColumn([entries[row] for row in rows.tolist()], self._decode)
        else:
            selected = WireColumn(entries.take(rows), self._decode, mask_at(self.mask, rows))
        if self._decoded is not None:
            selected._decoded = self._decoded.take(rows)
        return selected

    def values(self) -> list[Any]:
        return self.decoded().values()

    @property
    def may_hold_images(self) -> bool:
        return getattr(self._decode, "may_give_images", True)

    @property
    def converts(self) -> bool:
        return getattr(self._decode, "converts", False)

    @property
    def decoder(self) -> Callable[[Entries], Column]:
        """The function of the codec that decodes the entries."""
        return self._decode

    def joined(self, columns: Sequence[Column]) -> WireColumn | None:
        """The rows of all columns, still undecoded; `None` unless each comes from this codec or has no values."""
        parts: list[Entries] = []
        for column in columns:
            if isinstance(column, WireColumn) and column._decode == self._decode:
                parts.append(column.entries)
            elif column.empty:
                parts.append([None] * len(column))
            else:
                return None
        for part in parts:
            if not isinstance(part, list) and (entries := part.joined(parts)) is not None:
                return WireColumn(entries, self._decode, joined_masks(columns))
        return WireColumn(list(itertools.chain.from_iterable(parts)), self._decode)


class LentWireColumn(WireColumn):
    """An undecoded column over another one; it decodes through that one, and copies values when first asked for."""

    __slots__ = ("source",)

    def __init__(self, source: WireColumn) -> None:
        # Without a look at the entries, as a function gets every column lent and reads few of them.
        Column.__init__(self, None, source.mask)
        self.entries = source.entries
        self._decode = source._decode
        self._decoded = self._odd = None
        self.source = source

    def decoded(self) -> Column:
        if self._decoded is None:
            self._decoded = self.source.decoded().lent()
        return super().decoded()

    @property
    def has_odd(self) -> bool:
        return self.source.has_odd

    @property
    def untouched(self) -> WireColumn:
        return self.source if self._decoded is None else self
