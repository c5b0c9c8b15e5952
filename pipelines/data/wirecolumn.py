"""`WireColumn`: values that no step has asked for yet, as undecoded pieces of the input."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column, Mask, Rows, cut_mask, joined_masks, taken_mask
from pipelines.data.spans import Spans
from pipelines.errors import RowsFailed, WireError

Entries = Sequence[bytes | None]
"""Serialised map entries, a list or `Spans`; `None` where a row has none."""


@runtime_checkable
class JoinedEntries(Protocol):
    """Entries that can be joined with others without a look at each."""

    def joined(self, parts: Sequence[Sequence[Any]]) -> Entries | None:
        """The entries of all parts, these among them; `None` if each has to be looked at."""


class WireColumn(Column):
    """Undecoded map entries of the input, decoded when first asked for and passed through untouched.

    `entries[i]` is the serialised map entry of row i, tag and length included (so that joined entries are a
    message), or `None`; of plain JSON it is the text of the value. `decode` turns the entries into a decoded column or
    raises `RowsFailed`. In a list, entries that a row lacks are `None`; with `Spans`, or any other sequence with a
    method `take(rows)`, `present` has to say which these are.
    """

    __slots__ = ("_decode", "_decoded", "entries")

    def __init__(self, entries: Entries, decode: Callable[[Entries], Column], present: Mask | None = None) -> None:
        if present is None and isinstance(entries, list) and None in entries:
            present = np.fromiter((entry is not None for entry in entries), np.bool_, len(entries))
        super().__init__(None, present)
        self.entries = entries
        self._decode = decode
        self._decoded: Column | None = None

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def is_decoded(self) -> bool:
        """Whether the values have been decoded."""
        return self._decoded is not None

    def decoded(self) -> Column:
        if self._decoded is None:
            try:
                self._decoded = self._decode(self.entries)
            except RowsFailed as error:
                raise RowsFailed(self._with_key(error.failures), of=self) from None
        self._decoded.key = self.key
        return self._decoded

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
        what = f'key "{self.key}" '
        return {
            row: WireError(f"{what}cannot be read: {error}")
            if isinstance(error, WireError) and not str(error).startswith(what)
            else error
            for row, error in failures.items()
        }

    @property
    def writable(self) -> bool:
        return self.decoded().writable

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
        # Not by a protocol, which takes longer to look for than most entries to take.
        own_take: Callable[[Rows], Entries] | None = getattr(entries, "take", None)
        if own_take is not None:
            taken = WireColumn(own_take(rows), self._decode, taken_mask(self.mask, rows))
        else:
            taken = WireColumn([entries[row] for row in rows.tolist()], self._decode)
        if self._decoded is not None:
            taken._decoded = self._decoded.take(rows)
        return taken

    def values(self) -> list[Any]:
        return self.decoded().values()

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
        own = next((part for part in parts if isinstance(part, JoinedEntries)), None)
        entries = None if own is None else own.joined(parts)
        if entries is not None:
            return WireColumn(entries, self._decode, joined_masks(columns))
        if any(isinstance(part, Spans) for part in parts):
            return WireColumn(Spans.concat([Spans.of(part) for part in parts]), self._decode, joined_masks(columns))
        return WireColumn(list(itertools.chain.from_iterable(parts)), self._decode)


class LentWireColumn(WireColumn):
    """An undecoded column over another one; it decodes through that one, and copies values when first asked for."""

    __slots__ = ("source",)

    def __init__(self, source: WireColumn) -> None:
        # Without a look at the entries, as a function gets every column lent and reads few of them.
        Column.__init__(self, None, source.mask)
        self.entries = source.entries
        self._decode = source._decode
        self._decoded = None
        self.source = source

    def decoded(self) -> Column:
        if self._decoded is None:
            self._decoded = self.source.decoded().lent()
        return super().decoded()

    @property
    def untouched(self) -> WireColumn:
        return self.source if self._decoded is None else self
