"""`Headers`: the headers of N records as columns, as `pipelines.data.spans` holds their payloads and keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pipelines.data.spans import Ints, Spans

Header = tuple[str, bytes | None]


class Headers(Sequence[Sequence[Header] | None]):
    """The headers of N records, as a sequence of lists of (name, value), `None` for a record without any.

    Record i has the headers `[starts[i], starts[i] + counts[i])` of `names` and `values`; `starts` and `counts` are
    `int64 (N,)`. Names are UTF-8 and never null; bytes that are not, which brokers let pass, are read as U+FFFD.
    """

    __slots__ = ("counts", "names", "starts", "values")

    def __init__(self, names: Spans, values: Spans, starts: Ints, counts: Ints) -> None:
        self.names = names
        self.values = values
        self.starts = starts
        self.counts = counts

    @staticmethod
    def of(rows: Sequence[Sequence[Header] | None]) -> Headers:
        """The same headers as columns."""
        if isinstance(rows, Headers):
            return rows
        flat = list(chain.from_iterable(filter(None, rows)))
        names = [name.encode() for name, _ in flat]
        return Headers.flat(names, [value for _, value in flat], list(accumulate(len(row or ()) for row in rows)))

    @staticmethod
    def flat(names: Sequence[bytes], values: Sequence[bytes | None], ends: Sequence[int]) -> Headers:
        """Headers of all records, one after the other, of which those of record i end at `ends[i]`."""
        stops = np.array(ends, np.int64)
        counts = np.diff(stops, prepend=0)
        return Headers(Spans.of(names), Spans.of(values), stops - counts, counts)

    @staticmethod
    def concat(parts: Sequence[Headers]) -> Headers:
        """The rows of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        bases = np.cumsum([0, *(len(part.names) for part in parts)])[:-1].tolist()
        return Headers(
            Spans.concat([part.names for part in parts]),
            Spans.concat([part.values for part in parts]),
            np.concatenate([part.starts + base for part, base in zip(parts, bases, strict=True)]),
            np.concatenate([part.counts for part in parts]),
        )

    def take(self, rows: npt.NDArray[Any]) -> Headers:
        """The headers of the records at these positions (numbers or a mask)."""
        return Headers(self.names, self.values, self.starts[rows], self.counts[rows])

    @staticmethod
    def none(count: int) -> Headers:
        """So many records without headers."""
        nothing = Spans.of([])
        return Headers(nothing, nothing, np.zeros(count, np.int64), np.zeros(count, np.int64))

    def replaced(self, rows: Mapping[int, Sequence[Header]]) -> Headers:
        """The same records, of which these, by place, have other headers."""
        places, new = list(rows), Headers.of(list(rows.values()))
        starts, counts = self.starts.copy(), self.counts.copy()
        starts[places], counts[places] = new.starts + len(self.names), new.counts
        return Headers(Spans.concat([self.names, new.names]), Spans.concat([self.values, new.values]), starts, counts)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, place: int) -> Sequence[Header] | None: ...
    @overload
    def __getitem__(self, place: slice) -> Headers: ...
    def __getitem__(self, place: int | slice) -> Sequence[Header] | None | Headers:
        if isinstance(place, slice):
            return Headers(self.names, self.values, self.starts[place], self.counts[place])
        start, count = int(self.starts[place]), int(self.counts[place])
        if not count:
            return None
        headers = zip(self.names[start : start + count], self.values[start : start + count], strict=True)
        return [((name or b"").decode(errors="replace"), value) for name, value in headers]

    def __iter__(self) -> Iterator[Sequence[Header] | None]:
        # All are read at once, which costs as much as reading those of one record.
        places, _ = self.entries()
        names = [(name or b"").decode(errors="replace") for name in self.names.take(places).tolist()]
        pairs = list(zip(names, self.values.take(places).tolist(), strict=True))
        return (pairs[begin:end] or None for begin, end in pairwise([0, *np.cumsum(self.counts).tolist()]))

    def entries(self) -> tuple[Ints, Ints]:
        """The places in `names` and `values` of these records' headers, in order, and the record of each."""
        counts = self.counts
        owners = np.repeat(np.arange(len(counts)), counts)
        return (self.starts - np.cumsum(counts) + counts)[owners] + np.arange(len(owners)), owners

    def __repr__(self) -> str:
        return f"Headers({len(self)} rows, {len(self.names)} headers)"
