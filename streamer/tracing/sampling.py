"""Which records of a batch get spans: those whose trace is sampled, and a share of those that belong to no trace."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

from connectors.records import Header
from streamer.tracing.traceparent import TRACEPARENT, TraceContext, read, values_of

_EVEN: Final = frozenset(b"%x" % digit for digit in range(0, 16, 2))
"""The last digits of flags without the one that says sampled."""


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
    if headers is None:
        return [Sampled(places[number], None) for number in draw.drawn(len(places))]
    chosen: list[Sampled] = []
    bare: list[int] = []
    for place in places:
        of_record = headers[place]
        if of_record and len(of_record) == 1:
            # The usual record, which is not sampled: it gets no span, whether the rest of the header is valid or not.
            name, value = of_record[0]
            if name == TRACEPARENT and value is not None and value[-1:] in _EVEN:
                continue
        values = values_of(of_record) if of_record else None
        if not values:
            bare.append(place)
        elif len(values) == 1 and (context := read(values[0])) is not None and context.is_sampled:
            chosen.append(Sampled(place, context))
    drawn = draw.drawn(len(bare))
    if not drawn:
        return chosen
    return sorted([*chosen, *(Sampled(bare[number], None) for number in drawn)], key=lambda each: each.place)
