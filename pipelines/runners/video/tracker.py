"""Tracks of one camera's boxes: SORT (Bewley 2016) and ByteTrack (Zhang 2022), with the true time between frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.runners.video.association import assigned, overlaps
from pipelines.runners.video.kalman import BoxFilters

Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Objects: TypeAlias = npt.NDArray[np.object_]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TrackerSettings:
    """Settings for the matching of boxes to tracks."""

    two_stages: bool
    """Whether boxes of a high score choose their tracks before those of a low one do (ByteTrack)."""
    high: float
    """Score from which a box may begin a track."""
    low: float
    """Score from which a box may go on with one."""
    overlap: float
    """Intersection over union that a box and the place where its track is expected have at least."""
    hits: int
    """Boxes in a row that confirm a track."""
    max_age: float
    """Seconds for which a confirmed track that no box goes on with is kept."""


@dataclass(frozen=True, slots=True)
class Coasting:
    """Confirmed tracks that no box went on with: where they are expected."""

    corners: Doubles
    ids: Ints
    labels: Objects


class Tracker:
    """The tracks of one camera.

    A track gets its id when it is confirmed; `ids` gives a number once only, so that ids are never used again. A track
    that is not confirmed yet ends with the first frame in which no box goes on with it.
    """

    SECOND_OVERLAP = 0.5
    """Least overlap of a box of a low score with a track: it may only continue one near its expected place."""

    def __init__(self, settings: TrackerSettings, ids: Iterator[int]) -> None:
        self._settings = settings
        self._next = ids
        self._filters = BoxFilters()
        self._ids: Ints = np.zeros(0, np.int64)
        self._labels: Objects = np.zeros(0, object)
        self._hits: Ints = np.zeros(0, np.int64)
        self._seen: Doubles = np.zeros(0)
        self._now: float | None = None

    def update(self, corners: Doubles, scores: Doubles, labels: Objects, now: float) -> Ints:
        """The id of each box of the next frame; 0 for those without a confirmed track.

        Args:
            corners: `(N, 4)`, x1, y1, x2, y2 of each box.
            scores: `(N,)`.
            labels: `(N,)`, texts or None: a box never goes on with a track of another label.
            now: Time of the frame in seconds.
        """
        before = self._now if self._now is not None else now
        self._now = now
        settings = self._settings
        self._keep((self._ids == 0) | (np.round(now - self._seen, 6) <= settings.max_age))
        self._filters.predict(now - before)
        track_of = np.full(len(corners), -1, np.int64)
        free = np.ones(len(self._ids), np.bool_)
        overlap = overlaps(self._filters.corners, corners)
        overlap[self._labels[:, np.newaxis] != labels[np.newaxis, :]] = 0.0
        high = scores >= settings.high
        confirmed = self._ids > 0

        def match(tracks: Mask, boxes: Mask, least: float) -> None:
            rows, columns = np.flatnonzero(tracks & free), np.flatnonzero(boxes & (track_of < 0))
            if not len(rows) or not len(columns):
                return
            matched_rows, matched_columns = assigned(overlap[np.ix_(rows, columns)], least)
            track_of[columns[matched_columns]] = rows[matched_rows]
            free[rows[matched_rows]] = False

        if settings.two_stages:
            low = ~high & (scores >= settings.low)
            match(confirmed, high, settings.overlap)
            match(confirmed, low, max(settings.overlap, self.SECOND_OVERLAP))
            match(~confirmed, high | low, settings.overlap)
        else:
            match(np.ones_like(confirmed), scores >= settings.low, settings.overlap)
        return self._continued(corners, labels, high, track_of, free, now)

    def coasting(self, seconds: float) -> Coasting:
        """The confirmed tracks that no box of the last frame went on with, seen within so many seconds before it."""
        now = self._now or 0.0
        rows = (self._ids > 0) & (self._seen < now) & (np.round(now - self._seen, 6) <= seconds)
        return Coasting(self._filters.corners[rows], self._ids[rows], self._labels[rows])

    def _continued(self, corners: Doubles, labels: Objects, high: Mask, track_of: Ints, free: Mask, now: float) -> Ints:
        boxes = np.flatnonzero(track_of >= 0)
        tracks = track_of[boxes]
        if len(tracks):
            self._filters.correct(tracks, corners[boxes])
        if free.any():
            self._filters.hold_size(free)
        self._seen[tracks] = now
        self._hits[tracks] += 1
        for track in tracks[(self._ids[tracks] == 0) & (self._hits[tracks] >= self._settings.hits)].tolist():
            self._ids[track] = next(self._next)
        ids = np.zeros(len(corners), np.int64)
        ids[boxes] = self._ids[tracks]
        self._keep(~free | (self._ids > 0))
        new = np.flatnonzero(high & (track_of < 0))
        if len(new):
            ids[new] = self._begin(corners[new], labels[new], now)
        return ids

    def _keep(self, rows: Mask) -> None:
        if rows.all():
            return
        self._filters.keep(rows)
        self._ids, self._labels = self._ids[rows], self._labels[rows]
        self._hits, self._seen = self._hits[rows], self._seen[rows]

    def _begin(self, corners: Doubles, labels: Objects, now: float) -> Ints:
        count = len(corners)
        at_once = self._settings.hits <= 1
        ids = np.array([next(self._next) if at_once else 0 for _ in range(count)], np.int64)
        self._filters.add(corners)
        self._ids = np.concatenate([self._ids, ids])
        self._labels = np.concatenate([self._labels, labels])
        self._hits = np.concatenate([self._hits, np.ones(count, np.int64)])
        self._seen = np.concatenate([self._seen, np.full(count, now)])
        return ids
