"""`ArrowEntries`: the values of an Arrow array as the undecoded entries of a column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from pipelines.arrow.library import pa
from pipelines.data.columns import Rows
from pipelines.data.entries import Entries, PackedEntries


class ArrowEntries(PackedEntries[Any]):
    """The values of a `pyarrow.Array`, of any type. An entry is an array of one value, `None` where that is null.

    A column of them that no step reads is written as the array it came as; rows of it are selected by Arrow.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def take(self, rows: Rows) -> ArrowEntries:
        """The values at these positions."""
        return ArrowEntries(selected(self.array, rows))

    def joined(self, parts: Sequence[Entries]) -> ArrowEntries | None:
        """The values of all parts, one after the other; `None` if their types differ."""
        arrays: list[Any] = []
        for part in parts:
            if isinstance(part, ArrowEntries):
                arrays.append(part.array)
            elif all(entry is None for entry in part):
                arrays.append(pa.nulls(len(part), self.array.type))
            else:
                return None
        if any(array.type != self.array.type for array in arrays):
            return None
        return ArrowEntries(pa.concat_arrays(arrays))

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> ArrowEntries: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return ArrowEntries(self.array[row])
        place = range(len(self.array))[row]
        return self.array.slice(place, 1) if self.array[place].is_valid else None


def selected(array: Any, rows: Rows) -> Any:
    """The values of a `pyarrow.Array` at these positions, as an array of the same type."""
    kind = array.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # Arrow cannot select from views; Polars gives its texts as such.
        plain = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
        return array.cast(plain).take(pa.array(rows)).cast(kind)
    try:
        return array.take(pa.array(rows))
    except pa.ArrowNotImplementedError:
        # Of few other types, such as lists of views.
        return pa.concat_arrays([array.slice(0, 0), *(array.slice(row, 1) for row in rows.tolist())])
