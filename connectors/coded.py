"""`Coded`: a column of texts with few distinct values, as a table of names and a number for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column

Codes = npt.NDArray[np.int32]
Rows = npt.NDArray[Any]
"""Numbers of rows, or a mask of all of them."""


class Coded(Sequence[str]):
    """The texts of N rows: row i has `names[codes[i]]`.

    `codes` is `int32 (N,)`. `names` may hold more than these rows use, and its maker may go on appending to it: a
    source keeps one table of topics for all its blocks. No method here loops over the whole table.
    """

    __slots__ = ("codes", "names")

    def __init__(self, names: Sequence[str], codes: Codes) -> None:
        self.names = names
        self.codes = codes

    @classmethod
    def of(cls, texts: Sequence[str]) -> Coded:
        """These texts, one for each row."""
        if isinstance(texts, Coded):
            return texts
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(text, len(numbers)) for text in texts]
        return cls(list(numbers), np.array(codes, np.int32))

    @classmethod
    def concat(cls, parts: Sequence[Coded]) -> Coded:
        """The rows of all parts, one after the other. No text is compared if all parts have the same table."""
        names = parts[0].names
        if all(part.names is names for part in parts):
            return cls(names, np.concatenate([part.codes for part in parts]))
        numbers: dict[str, int] = {}
        joined: list[Codes] = []
        for part in parts:
            used, places = np.unique(part.codes, return_inverse=True)
            new = [numbers.setdefault(part.names[code], len(numbers)) for code in used.tolist()]
            joined.append(np.array(new, np.int32)[places])
        return cls(list(numbers), np.concatenate(joined))

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> Coded: ...
    def __getitem__(self, row: int | slice) -> str | Coded:
        if isinstance(row, slice):
            return Coded(self.names, self.codes[row])
        text: str = self.names[int(self.codes[row])]
        return text

    def __repr__(self) -> str:
        return f"Coded({self.texts()!r})"

    def take(self, rows: Rows) -> Coded:
        """These rows, with the same table."""
        return Coded(self.names, self.codes[rows])

    def texts(self) -> list[str]:
        """The text of each row."""
        names = self.names
        return [names[code] for code in self.codes.tolist()]

    def distinct(self) -> dict[int, str]:
        """The distinct texts of these rows by their codes, in rising order."""
        return {code: self.names[code] for code in np.unique(self.codes).tolist()}

    def column(self, values: dict[int, Any]) -> Column:
        """A column of values that depend on the text: each row has the value of its code, or none if there is none.

        So a value is computed once for each distinct text, not for each row.
        """
        return Column.of([values.get(code, MISSING) for code in self.codes.tolist()])
