"""Runs ZONES."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, Final

from pipelines.data.data import Data
from pipelines.data.record import RecordContext
from pipelines.errors import DataError
from pipelines.runners.runner import OpenContext
from pipelines.runners.state.lastrecords import NO_RECORD
from pipelines.runners.video.boxrows import boxes_of, corners_of, ids_of
from pipelines.runners.video.lanerunner import MOST_CAMERAS, LaneRunner
from pipelines.runners.video.places import Area, Gate, place_of
from pipelines.runners.video.visits import Event, Sighting, Totals, Visits, WatchedLine, WatchedZone
from pipelines.steps.video.zones import Place, Zones
from pipelines.values import TypedList, ValueType

_log = logging.getLogger(__name__)
_FRACTION: Final = 2.0
"""Largest coordinate that counts as a fraction of the picture; boxes may extend a little beyond its edge."""


class ZonesRunner(LaneRunner[Visits]):
    """Adds events and counts to boxes.

    Where tracks are is known by lane; counts go on when a camera connects again, and the tracks of before have left
    then.

    Fails a row without boxes, without an id for each of them, or with an id that is there twice.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True

    def __init__(self, step: Zones, context: OpenContext) -> None:
        super().__init__(step.frame_rate, by_key=step.by_key)
        self._step = step
        # The camera that connected last is the last one.
        self._totals: dict[tuple[str, str, Hashable], Totals] = {}
        self._compared = False

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._step.bbox_name is None else frozenset([self._step.bbox_name, self._step.ids_name])

    @property
    def needs(self) -> frozenset[str]:
        return self.reads or frozenset([self._step.ids_name])

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset([self._step.events_name, self._step.counts_name])

    @property
    def types(self) -> Mapping[str, ValueType]:
        return {self._step.events_name: ValueType.LIST, self._step.counts_name: ValueType.DATA}

    def begin(self, record: RecordContext) -> Visits:
        step = self._step
        zones = {
            name: WatchedZone(Area(zone.points), _labels(zone), zone.dwell)
            for name, zone in step.zones.items()
            if place_of(zone, record)
        }
        lines = {
            name: WatchedLine(Gate(line.start, line.end), _labels(line))
            for name, line in step.lines.items()
            if place_of(line, record)
        }
        camera = (record.source, record.topic, record.key if step.by_key else record.partition)
        totals = self._totals.pop(camera, None)
        if totals is None:
            zeros = {name: Counter(entered=0, left=0) for name in zones}
            totals = Totals(zeros | {name: Counter({"in": 0, "out": 0}) for name in lines})
            if len(self._totals) >= MOST_CAMERAS:
                del self._totals[next(iter(self._totals))]
        self._totals[camera] = totals
        return Visits(zones, lines, step.margin, step.lost_after, totals)

    def ended(self, state: Visits) -> None:
        state.end()

    def checked(self, data: Data) -> list[Sighting]:
        step = self._step
        key, boxes = boxes_of(data, step.bbox_name, step.ids_name)
        corners = corners_of(boxes, key).tolist()
        if corners and not self._compared:
            self._compared = True
            self._warn_of_units(max(map(max, corners)))
        ids = ids_of(data, step.ids_name, boxes, key)
        sightings = [
            Sighting(number, box.label, ((x1 + x2) / 2, _height(y1, y2, step.anchor)))
            for number, box, (x1, y1, x2, y2) in zip(ids, boxes, corners, strict=True)
            if number > 0
        ]
        if len({sighting.track for sighting in sightings}) < len(sightings):
            twice = next(
                track for track, count in Counter(sighting.track for sighting in sightings).items() if count > 1
            )
            raise DataError(f'"{step.ids_name}" has {twice} twice: a track is in one place only')
        return sightings

    def _warn_of_units(self, most: float) -> None:
        """Say once that places are in pixels and boxes in fractions of the picture, or the other way round."""
        places = {name: zone.points for name, zone in self._step.zones.items()}
        places |= {name: (line.start, line.end) for name, line in self._step.lines.items()}
        for name, points in places.items():
            farthest = max(map(max, points))
            if (farthest > _FRACTION) != (most > _FRACTION):
                _log.warning(
                    'ZONES: "%s" goes to %g, and the first boxes to %g: one is in pixels, the other in fractions of '
                    "the picture; write the points in the unit of the boxes",
                    name, farthest, most,
                )  # fmt: skip
                return

    def step(self, data: Data, values: list[Sighting], state: Visits, now: float) -> Data:
        record = data.record or NO_RECORD
        events = [_described(event, record) for event in state.update(values, now)]
        inside = state.inside()
        counts = {
            name: Data({"inside": inside[name], **counted} if name in self._step.zones else {**counted})
            for name, counted in state.totals.counts.items()
        }
        data[self._step.events_name] = events or TypedList(ValueType.DATA)
        data[self._step.counts_name] = Data(counts)
        return data


def _labels(place: Place) -> frozenset[str] | None:
    return None if place.labels is None else frozenset(place.labels)


def _height(top: float, bottom: float, anchor: str) -> float:
    return bottom if anchor == "BOTTOM_CENTER" else top if anchor == "TOP_CENTER" else (top + bottom) / 2


def _described(event: Event, record: RecordContext) -> Data:
    entries: dict[str, Any] = {"event": event.kind, "place": event.place, "id": event.track}
    optional = {"label": event.label, "direction": event.direction, "seconds": event.seconds, "time": record.timestamp}
    entries |= {key: value for key, value in optional.items() if value is not None}
    return Data(entries | {"lost": True} if event.lost else entries)
