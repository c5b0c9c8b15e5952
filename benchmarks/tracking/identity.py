"""IDF1 (Ristani 2016): how much of the truth has, all along, the same id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import lap
import numpy as np

from benchmarks.tracking.scenes import Frame, Ints
from pipelines.runners.video.association import overlaps

LEAST = 0.5
"""Intersection over union from which a box is that of an object."""


class Identity(NamedTuple):
    """Counts of boxes; those of several sequences are added."""

    right: int
    """Boxes whose track is that of their object, tracks and objects being paired so that this is as large as can be."""
    truth: int
    """Boxes of objects."""
    given: int
    """Boxes of tracks."""
    made_up: int
    """Tracks of which less than half the boxes are those of objects."""

    @property
    def idf1(self) -> float:
        """Twice the right boxes, by all boxes of both: from 0 to 1."""
        return 2 * self.right / (self.truth + self.given) if self.truth + self.given else 1.0


def identity(frames: Sequence[Frame], ids: Iterable[Ints]) -> Identity:
    """Of the ids that a tracker gave to the boxes of each frame; 0 is no track, and does not count."""
    shared: Counter[tuple[int, int]] = Counter()
    boxes: Counter[int] = Counter()
    real: Counter[int] = Counter()
    truth = 0
    for frame, numbers in zip(frames, ids, strict=True):
        tracked = numbers > 0
        tracks = numbers[tracked].tolist()
        truth += len(frame.objects)
        same = overlaps(frame.truth, frame.boxes[tracked]) >= LEAST
        shared.update((int(frame.objects[one]), tracks[other]) for one, other in np.argwhere(same).tolist())
        boxes.update(tracks)
        real.update(tracks[other] for other in np.flatnonzero(same.any(axis=0)).tolist())
    made_up = sum(2 * real[track] < count for track, count in boxes.items())
    return Identity(_best(shared), truth, boxes.total(), made_up)


def together(counts: Iterable[Identity]) -> Identity:
    """Of several sequences, each box counting as much."""
    return Identity(*(sum(column) for column in zip(*counts, strict=True)))


def _best(shared: Counter[tuple[int, int]]) -> int:
    """The largest sum over pairs, each object and each track being in one pair at most."""
    if not shared:
        return 0
    objects, tracks = ({one: at for at, one in enumerate(sorted({*column}))} for column in zip(*shared, strict=True))
    table = np.zeros((len(objects), len(tracks)))
    for (one, other), count in shared.items():
        table[objects[one], tracks[other]] = count
    columns = lap.lapjv(-table, extend_cost=True, return_cost=False)[0]
    rows = np.flatnonzero(columns >= 0)
    return int(table[rows, columns[rows]].sum())
