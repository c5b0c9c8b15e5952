"""The undecoded values of one key in N rows, of which a `WireColumn` is made."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

Entry = TypeVar("Entry", covariant=True)


class PackedEntries(Sequence[Entry]):
    """Entries that are held together, in one buffer for example: a few rows are taken without a look at the others.

    An entry is the undecoded value of one row: `bytes`, or a plain value; `None` where a row has none.
    """

    __slots__ = ()

    @overload
    def __getitem__(self, row: int) -> Entry: ...
    @overload
    def __getitem__(self, row: slice) -> PackedEntries[Entry]: ...
    @abstractmethod
    def __getitem__(self, row: int | slice) -> Entry | PackedEntries[Entry]: ...

    @abstractmethod
    def take(self, rows: npt.NDArray[np.int64]) -> PackedEntries[Entry]:
        """The entries of these rows, `int64 (N,)`."""

    def joined(self, parts: Sequence[Entries]) -> PackedEntries[Any] | None:
        """The entries of all parts, these among them; `None` if they can only be joined one by one."""
        return None


Entries = list[Any] | PackedEntries[Any]
