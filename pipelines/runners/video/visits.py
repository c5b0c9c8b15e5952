"""Events of one camera's tracks at its zones and lines, each given once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pipelines.runners.video.places import XY, Area, Gate

EventKind: TypeAlias = Literal["enter", "leave", "dwell", "cross"]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a track at a zone or line."""

    kind: EventKind
    place: str
    """Name of the zone or line."""
    track: int
    label: str | None
    direction: str | None = None
    """`in` or `out`, of a line that was crossed."""
    seconds: float | None = None
    """How long it had been inside, when it left or dwelt."""
    lost: bool = False
    """Whether the track was lost inside, rather than seen outside."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A confirmed track in a frame."""

    track: int
    label: str | None
    point: XY


@dataclass(frozen=True, slots=True)
class WatchedZone:
    """A zone of a camera."""

    area: Area
    labels: frozenset[str] | None
    dwell: float | None


@dataclass(frozen=True, slots=True)
class WatchedLine:
    """A line of a camera."""

    gate: Gate
    labels: frozenset[str] | None


@dataclass(slots=True)
class Crossing:
    """A track at a line: the side on which it was last by the margin, and the ways across since then."""

    side: int = 0
    passed: int = 0


@dataclass(slots=True)
class Visitor:
    """The state of one track."""

    label: str | None
    point: XY
    seen: float
    since: dict[str, float] = field(default_factory=dict)
    """Zone to the time at which the track entered it, while it is inside."""
    dwelt: set[str] = field(default_factory=set)
    crossings: dict[str, Crossing] = field(default_factory=dict)


@dataclass(slots=True)
class Totals:
    """The counts and waiting events of a camera's zones and lines, kept over all its connections."""

    counts: dict[str, Counter[str]]
    waiting: list[Event] = field(default_factory=list)
    """Events of a connection that has ended, for the camera's next record."""


class Visits:
    """The tracks of one camera during one connection."""

    def __init__(
        self,
        zones: Mapping[str, WatchedZone],
        lines: Mapping[str, WatchedLine],
        margin: float,
        lost_after: float,
        totals: Totals,
    ) -> None:
        self._zones = zones
        self._lines = lines
        self._margin = margin
        self._lost_after = lost_after
        self.totals = totals
        self._visitors: dict[int, Visitor] = {}

    def inside(self) -> Counter[str]:
        """How many tracks each zone has."""
        return Counter(zone for visitor in self._visitors.values() for zone in visitor.since)

    def update(self, sightings: Iterable[Sighting], now: float) -> list[Event]:
        """The events of a frame at `now` seconds, which never falls: those of tracks that are gone come first."""
        gone = [track for track, visitor in self._visitors.items() if round(now - visitor.seen, 6) > self._lost_after]
        events = [*self.totals.waiting, *(event for track in gone for event in self._lost(track))]
        self.totals.waiting.clear()
        for sighting in sightings:
            events.extend(self._seen(sighting, now))
        return events

    def end(self) -> None:
        """The connection has ended: the tracks leave, which the camera's next record says."""
        self.totals.waiting.extend(event for track in list(self._visitors) for event in self._lost(track))

    def _seen(self, sighting: Sighting, now: float) -> Iterator[Event]:
        visitor = self._visitors.get(sighting.track)
        before = sighting.point if visitor is None else visitor.point
        if visitor is None:
            visitor = self._visitors[sighting.track] = Visitor(sighting.label, sighting.point, now)
        visitor.label, visitor.point, visitor.seen = sighting.label, sighting.point, now
        for name, zone in self._zones.items():
            if zone.labels is None or sighting.label in zone.labels:
                yield from self._at_zone(name, zone, sighting, visitor, now)
        for name, line in self._lines.items():
            if line.labels is None or sighting.label in line.labels:
                yield from self._at_line(name, line.gate, sighting, visitor, before)

    def _at_zone(
        self, name: str, zone: WatchedZone, sighting: Sighting, visitor: Visitor, now: float
    ) -> Iterator[Event]:
        depth = zone.area.depth(sighting.point)
        if name not in visitor.since:
            if depth > self._margin:
                visitor.since[name] = now
                self.totals.counts[name]["entered"] += 1
                yield Event("enter", name, sighting.track, sighting.label)
            return
        seconds = now - visitor.since[name]
        if zone.dwell is not None and round(seconds, 6) >= zone.dwell and name not in visitor.dwelt:
            visitor.dwelt.add(name)
            yield Event("dwell", name, sighting.track, sighting.label, seconds=seconds)
        if depth < -self._margin:
            yield self._left(name, sighting.track, visitor, now, lost=False)

    def _at_line(self, name: str, gate: Gate, sighting: Sighting, visitor: Visitor, before: XY) -> Iterator[Event]:
        crossing = visitor.crossings.setdefault(name, Crossing())
        crossing.passed += gate.passed(before, sighting.point)
        side = gate.side(sighting.point)
        if abs(side) <= self._margin:
            return
        new = 1 if side > 0 else -1
        if crossing.side == -new and crossing.passed * new > 0:
            direction = "in" if new > 0 else "out"
            self.totals.counts[name][direction] += 1
            yield Event("cross", name, sighting.track, sighting.label, direction)
        crossing.side, crossing.passed = new, 0

    def _lost(self, track: int) -> list[Event]:
        visitor = self._visitors.pop(track)
        return [self._left(name, track, visitor, visitor.seen, lost=True) for name in list(visitor.since)]

    def _left(self, name: str, track: int, visitor: Visitor, when: float, *, lost: bool) -> Event:
        seconds = when - visitor.since.pop(name)
        visitor.dwelt.discard(name)
        self.totals.counts[name]["left"] += 1
        return Event("leave", name, track, visitor.label, seconds=seconds, lost=lost)
