"""Which records of a batch get spans: those whose trace is sampled, and a share of those that belong to no trace."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

import numpy as np

from connectors.headers import Header, Headers
from pipelines.data.columns import Mask
from pipelines.data.spans import Ints, Spans
from streamer.tracing.traceparent import TRACEPARENT, TraceContext, read, values_of

_EVEN: Final = frozenset(b"02468ace")
"""The last digits of flags without the one that says sampled."""
_IS_ODD: Final = np.array([byte in b"13579bdf" for byte in range(256)])
"""Whether a byte is one of the other digits."""
_NAME: Final = np.frombuffer(TRACEPARENT.encode(), np.uint8)


class Sampled(NamedTuple):
    """A record that gets a span."""

    place: int
    """Its place in the block of records."""
    context: TraceContext | None
    """The span that it comes from; `None`: its trace begins here."""


class Draw:
    """Draws a share of records at random, by the distance from one to the next: others cost nothing."""

    def __init__(self, share: float, random: Random | None = None) -> None:
        self._share = share
        self._random = random or Random()  # noqa: S311 - nobody gains by guessing it
        self._skip = self._gap()

    def drawn(self, count: int) -> list[int]:
        """Which of the next `count` records are drawn, by number from 0."""
        places: list[int] = []
        at = self._skip
        while at < count:
            places.append(int(at))
            at += 1 + self._gap()
        self._skip = at - count
        return places

    def _gap(self) -> float:
        if self._share >= 1:
            return 0
        if self._share <= 0:
            return math.inf
        return math.floor(math.log(1 - self._random.random()) / math.log1p(-self._share))


def sampled(headers: Sequence[Sequence[Header] | None] | None, places: Sequence[int], draw: Draw) -> list[Sampled]:
    """The records that get spans, in the order of their places.

    `headers` are those of all records of the block, `places` those of the records to look at. A record whose header is
    not valid, or that has several, gets none.
    """
    if headers is None or not (isinstance(headers, Headers) or any(headers)):
        return [Sampled(places[number], None) for number in draw.drawn(len(places))]
    is_whole = isinstance(places, range) and places == range(len(headers))
    if isinstance(headers, Headers):
        rows = headers if is_whole else headers.take(np.array(places, np.int64))
        chosen, bare = _of_columns(rows, places)
    else:
        chosen, bare = _of_rows(enumerate(headers) if is_whole else [(place, headers[place]) for place in places])
    drawn = draw.drawn(len(bare))
    if not drawn:
        return chosen
    return sorted([*chosen, *(Sampled(bare[number], None) for number in drawn)], key=lambda each: each.place)


def _of_rows(rows: Iterable[tuple[int, Sequence[Header] | None]]) -> tuple[list[Sampled], list[int]]:
    """Of these records with their headers, those that are sampled, and the places of those without a trace."""
    chosen: list[Sampled] = []
    bare: list[int] = []
    for place, of_record in rows:
        if not of_record:
            bare.append(place)
            continue
        if len(of_record) == 1:
            # The usual record, which is not sampled: it gets no span, whether the rest of the header is valid or not.
            ((name, value),) = of_record
            if name == TRACEPARENT and value and value[-1] in _EVEN:
                continue
        values = values_of(of_record)
        if not values:
            bare.append(place)
        elif len(values) == 1 and (value := values[0]) and value[-1] not in _EVEN:
            _add(chosen, place, value)
    return chosen, bare


def _of_columns(headers: Headers, places: Sequence[int]) -> tuple[list[Sampled], Sequence[int]]:
    """As `_of_rows`, of columns: all records are looked at at once."""
    entries, owners = headers.entries()
    is_trace = _named(headers.names, entries)
    entries, owners = entries[is_trace], owners[is_trace]
    counts = np.bincount(owners, minlength=len(headers))
    values = headers.values
    lengths = values.lengths[entries]
    # Of a value without bytes any byte will do, as it cannot be read.
    lasts = np.maximum(values.starts[entries] + lengths - 1, 0)
    maybe = (counts[owners] == 1) & (lengths > 0)
    maybe[maybe] = _IS_ODD[values.buffer[lasts[maybe]]]
    chosen: list[Sampled] = []
    for owner, entry in zip(owners[maybe].tolist(), entries[maybe].tolist(), strict=True):
        _add(chosen, places[owner], values[entry])
    bare = np.flatnonzero(counts == 0).tolist()
    return chosen, [places[owner] for owner in bare] if len(bare) < len(places) else places


def _named(names: Spans, entries: Ints) -> Mask:
    """Which of these names are `traceparent`, in any case of letters."""
    named: Mask = names.lengths[entries] == len(_NAME)
    letters = names.buffer[names.starts[entries[named], None] + np.arange(len(_NAME))]
    # The bit that tells large letters from small ones.
    named[named] = ((letters | 0x20) == _NAME).all(axis=1)
    return named


def _add(chosen: list[Sampled], place: int, value: bytes | None) -> None:
    context = read(value)
    if context is not None and context.is_sampled:
        chosen.append(Sampled(place, context))
