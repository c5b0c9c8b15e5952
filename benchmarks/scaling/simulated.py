"""A simulated consumer group: records a second, members, partitions, and the pause when a member comes or goes.

A member runs one batch after the other; a batch of n records takes `a + b * n` seconds. Each partition gets the same
rate. While members change nobody runs anything (a rebalance), and records wait. Cores, the network and brokers have no
limit here, so this is what members do that have what they need.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

STEP: Final = 0.25
"""Seconds between two points of the backlog."""


class Load(NamedTuple):
    """What a group has to do, and what a batch costs it."""

    rate: float
    """Records a second, of all partitions."""
    partitions: int
    a: float
    """Seconds of a batch."""
    b: float
    """Seconds of each record in it."""
    max_records: int = 512
    max_wait: float = 0.005


class Change(NamedTuple):
    """The group has another number of members from then on."""

    at: float
    """Seconds since the beginning."""
    members: int
    pause: float = 0.0
    """Seconds in which no member runs a batch."""


class Simulated(NamedTuple):
    """What a group did."""

    delay: float
    """The longest that a record waited for its result, in seconds; `inf` if some still wait at the end."""
    backlog: npt.NDArray[np.float64]
    """Records that waited, every `STEP` seconds."""
    done: float
    """Records that were run."""
    ended: float
    """When the last backlog of more than a batch for each member was gone, in seconds; `inf` if it was not."""


def simulated(load: Load, changes: Sequence[Change], seconds: float, *, backlog: float = 0.0) -> Simulated:
    """A group that begins with so many records waiting. The first change gives the members at the beginning."""
    waiting = np.full(load.partitions, backlog / load.partitions)
    points = [np.zeros(0)]
    delay = done = 0.0
    for change, end in zip(changes, [*(later.at for later in changes[1:]), seconds], strict=True):
        idle = min(change.at + change.pause, end)
        points.append(_while_idle(load, waiting, change.at, idle))
        parts: dict[tuple[int, float], _Member] = {}
        curve = np.zeros(len(_grid(idle, end)))
        for number in range(min(change.members, load.partitions)):
            own = waiting[number :: change.members]
            # Most members have the same to do, and do the same.
            kind = (len(own), round(float(own.sum()), 3))
            if kind not in parts:
                parts[kind] = _Member(load, own)
                parts[kind].run(idle, end)
            part = parts[kind]
            waiting[number :: change.members] = part.waiting
            delay, done = max(delay, part.delay), done + part.done
            curve += part.curve
        points.append(curve)
    total = np.concatenate(points)
    most = load.max_records * changes[-1].members
    late = np.flatnonzero(total > most)
    ended = 0.0 if not len(late) else float("inf") if late[-1] == len(total) - 1 else (late[-1] + 1) * STEP
    return Simulated(float("inf") if late.size and ended == float("inf") else delay, total, done, ended)


def members_for(load: Load, pause: float, most: float, choices: Sequence[int]) -> int | None:
    """The fewest members, of these rising numbers, with which no record waits longer than `most` seconds when one
    leaves; `None`: none is enough."""

    def fits(members: int) -> bool:
        changes = [Change(0.0, members), Change(10.0, members - 1, pause)]
        return members > 1 and simulated(load, changes, 10.0 + 3 * most + pause).delay <= most

    place = bisect_left(choices, True, key=fits)
    return choices[place] if place < len(choices) else None


def _while_idle(load: Load, waiting: npt.NDArray[np.float64], start: float, end: float) -> npt.NDArray[np.float64]:
    """Let records come, and say how many waited."""
    before = float(waiting.sum())
    waiting += load.rate / load.partitions * (end - start)
    return before + load.rate * (_grid(start, end) - start)


def _grid(start: float, end: float) -> npt.NDArray[np.float64]:
    """The points of time between the two, the first included."""
    first, last = math.ceil(start / STEP - 1e-9), math.ceil(end / STEP - 1e-9)
    return np.arange(first, last, dtype=np.float64) * STEP


class _Member:
    """One member, with the records that wait in its partitions, `float64 (partitions,)`."""

    def __init__(self, load: Load, waiting: npt.NDArray[np.float64]) -> None:
        self._load = load
        self._rate = load.rate / load.partitions * len(waiting)
        self._each = len(waiting)
        self.waiting = waiting.copy()
        self.delay = 0.0
        self.done = 0.0
        self.curve = np.zeros(0)
        """Records that waited, at each point of time."""

    def run(self, start: float, end: float) -> None:
        """Run batches."""
        load, now, count = self._load, start, float(self.waiting.sum())
        times, counts = [start], [count]
        while now < end:
            if count < load.max_records:
                # The first record waits for others.
                wait = min(load.max_wait, (load.max_records - count) / self._rate if self._rate else load.max_wait)
                now, count = now + wait, count + self._rate * wait
            batch = min(count, float(load.max_records))
            took = load.a + load.b * batch
            # Those that came first wait since as long as it takes that so many come.
            self.delay = max(self.delay, count / self._rate + took if self._rate else 0.0)
            now, count = now + took, count + self._rate * took - batch
            self.done += batch
            times.append(now)
            counts.append(count)
        self.waiting = np.full(self._each, float(np.interp(end, times, counts)) / self._each)
        self.curve = np.interp(_grid(start, end), times, counts)
