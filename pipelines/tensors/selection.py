"""Selections: which positions of an axis a view shows, without a list of them where a rule says it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Positions: TypeAlias = npt.NDArray[np.int64]


class Selection(ABC):
    """`count` positions of an axis, in order."""

    __slots__ = ("count",)

    count: int

    @abstractmethod
    def resolve(self, nth: Positions) -> Positions:
        """The positions that are shown at these places, `0 <= nth < count`."""


class Span(Selection):
    """Positions at equal distances: `start`, `start + step`, ..."""

    __slots__ = ("start", "step")

    def __init__(self, start: int, step: int, count: int) -> None:
        self.start = start
        self.step = step
        self.count = count

    def resolve(self, nth: Positions) -> Positions:
        return self.start + nth * self.step

    def slice(self) -> slice:
        """The selection as a `slice`."""
        return slice(self.start, self.start + self.count * self.step, self.step)


class Listed(Selection):
    """A list of positions, in any order."""

    __slots__ = ("positions",)

    def __init__(self, positions: Positions) -> None:
        self.positions = positions
        self.count = len(positions)

    def resolve(self, nth: Positions) -> Positions:
        return self.positions[nth]


class Skipping(Selection):
    """All positions of an axis but a few; only those few are kept."""

    __slots__ = ("_before",)

    def __init__(self, skipped: Positions, size: int) -> None:
        # For each skipped position, how many are shown before it: sorted, as the skipped positions are.
        self._before = skipped - np.arange(len(skipped))
        self.count = size - len(skipped)

    def resolve(self, nth: Positions) -> Positions:
        return nth + np.searchsorted(self._before, nth, side="right")


class Chain(Selection):
    """The selection `outer` applied to the positions that `inner` selects."""

    __slots__ = ("inner", "outer")

    def __init__(self, inner: Selection, outer: Selection) -> None:
        self.inner = inner
        self.outer = outer
        self.count = outer.count

    def resolve(self, nth: Positions) -> Positions:
        return self.inner.resolve(self.outer.resolve(nth))


def composed(inner: Selection | None, outer: Selection) -> Selection:
    """`outer` applied to the positions of an axis that `inner` selects (`None`: all of them)."""
    if inner is None:
        return outer
    if isinstance(outer, Listed):
        return Listed(inner.resolve(outer.positions))
    if isinstance(outer, Span):
        if outer.start == 0 and outer.step == 1 and outer.count == inner.count:
            return inner
        if isinstance(inner, Listed):
            return Listed(inner.positions[outer.slice()])
    return Chain(inner, outer)


def listed(positions: Positions) -> Selection:
    """These positions; a `Span` if they rise by equal distances."""
    if len(positions) == 1:
        return Span(int(positions[0]), 1, 1)
    if len(positions) > 1:
        steps = np.diff(positions)
        if steps[0] > 0 and (steps == steps[0]).all():
            return Span(int(positions[0]), int(steps[0]), len(positions))
    return Listed(positions)


def skipping(skipped: Positions, size: int) -> Selection:
    """All positions but these, which are sorted and differ; a `Span` if the rest is in one piece."""
    if size <= _SHORT:
        return listed(np.delete(np.arange(size), skipped))
    rest = size - len(skipped)
    lead = int((skipped == np.arange(len(skipped))).argmin()) if len(skipped) else 0
    if len(skipped) and skipped[-1] == len(skipped) - 1:
        lead = len(skipped)
    if rest == 0 or lead == len(skipped) or skipped[lead] == size - (len(skipped) - lead):
        return Span(lead, 1, rest)
    return Skipping(skipped, size)


# Positions of an axis that may well be listed.
_SHORT = 4096
