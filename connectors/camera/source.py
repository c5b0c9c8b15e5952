"""`CameraSource`: frames of cameras and videos as records."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from connectors.camera.address import Kind
from connectors.camera.camera import Camera
from connectors.camera.config import CameraSourceConfig
from connectors.camera.footage import Footage
from connectors.camera.frame import COLUMNS, Facts, Frame
from connectors.camera.health import State
from connectors.camera.measures import measures_of
from connectors.camera.video import pyav
from connectors.camera.waiting import COMPANY
from connectors.measures import Measure
from connectors.records import Header, Lane, Records, Span
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceDown, SourceEnded
from pipelines.data.columns import MISSING, Column
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

_OPEN_WAIT: Final = 2.0
"""Seconds that `open` waits for first pictures, so that a service whose cameras work is ready once it has started."""
_CLOSE_WAIT: Final = 1.0
"""Seconds that `close` waits for threads. A thread that libav blocks for longer ends later by itself."""


class CameraSource(Source):
    """Frames of cameras. A lane is a connection to a camera; topic and key are the camera's name.

    A payload is a `Frame`, whose image holds the decoded picture. Positions are the numbers of pictures; those that
    were dropped have numbers too. Each camera has a thread that reads it, and reconnects when the connection is lost: a
    camera that is away disturbs no other, and none has to be reachable when the source opens.

    No frame is delivered twice, acknowledged or not. Raises `ConnectorError` in `poll` once all cameras are files of
    which not one could be read.
    """

    replays = Replays.NONE

    def __init__(self, config: CameraSourceConfig) -> None:
        self.name = config.label
        self._settings = config.settings
        self._arrived = threading.Condition()
        self._footage: dict[str, Footage] = {}
        self._cameras = self._new_cameras()
        self._turns = deque(range(len(self._cameras)))
        self._lanes: dict[str, Lane] = {}
        self._connections: dict[str, int] = {}
        self._epochs: dict[str, int] = dict.fromkeys(self._settings, 0)
        self._dropped: dict[str, int] = dict.fromkeys(self._settings, 0)
        self._events: list[Event] = []
        self._woken = False
        self._open = False
        self._down = False
        self._ended = False

    @property
    def perishable(self) -> bool:  # type: ignore[override]
        """As `Source.perishable`: not once one of its cameras turns out to be a recording."""
        return all(camera.policy == "latest" for camera in self._cameras)

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Begin to connect to all cameras. Raises `MissingPackageError` without PyAV."""
        pyav()
        if self._open:
            return
        if any(camera.over or camera.waiting.closed for camera in self._cameras):
            self._cameras = self._new_cameras()
        self._open = True
        for camera in self._cameras:
            camera.footage = self._footage.get(camera.name)
            camera.start()
        with self._arrived:
            self._arrived.wait_for(self._all_told, _OPEN_WAIT)

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `Source.poll`: frames are taken when it returns, so that those of `latest` are the newest."""
        return self.poll_without((), max_records, max_bytes, timeout)

    def poll_without(self, lanes: Collection[Lane], max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `Source.poll_without`."""
        if not self._open:
            raise ConnectorError(f"{self.name} is not open")
        deadline = time.monotonic() + timeout
        with self._arrived:
            self._end_lanes()
            while not self._enough(lanes, max_records, max_bytes):
                left = deadline - time.monotonic()
                if left <= 0 or self._woken or self._all_over():
                    break
                # Nothing notifies when frames of a file have waited long enough for others.
                together = any(camera.policy == "block" for camera in self._cameras)
                self._arrived.wait(min(left, COMPANY) if together else left)
            self._woken = False
            frames, size = self._take(lanes, max_records, max_bytes)
            if not frames:
                self._tell_end()
        return self._block(frames, size)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """As `Source.acknowledge`. No picture is delivered again in any case; packets kept for clips of these pictures
        are released."""
        for lane, position in positions.items():
            footage = self._footage.get(lane.partition)
            if footage is not None:
                footage.settled(position)

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """As `Source.rewind`; new lanes begin, and go on with the present pictures."""
        with self._arrived:
            for lane in lanes:
                if self._lanes.get(lane.partition) == lane:
                    self._events.append(LaneEnded(self._lanes.pop(lane.partition)))
                    self._begin(lane.partition, -1)

    def events(self) -> list[Event]:
        """As `Source.events`."""
        with self._arrived:
            self._tell_state()
            events, self._events = self._events, []
        return events

    def close(self) -> None:
        """As `Source.close`. Waiting frames are dropped; the log has the counts of each camera's pictures."""
        if not self._open:
            return
        self._open = False
        for camera in self._cameras:
            camera.stop()
        deadline = time.monotonic() + _CLOSE_WAIT
        for camera in self._cameras:
            camera.join(max(0.0, deadline - time.monotonic()))
        for camera in self._cameras:
            health = camera.health
            drops = ", ".join(f"{count} {cause}" for cause, count in health.drops.items()) or "none"
            _log.info(
                "%s: camera %s: %d pictures, %d became records, dropped: %s",
                self.name, camera.name, health.pictures, health.delivered, drops,
            )  # fmt: skip
        self._lanes.clear()

    def wake(self) -> None:
        """As `Source.wake`."""
        with self._arrived:
            self._woken = True
            self._arrived.notify_all()

    def metrics(self) -> Sequence[Measure]:
        """As `Source.metrics`: for each camera, with the label `camera`."""
        return measures_of({camera.name: camera.health for camera in self._cameras})

    def pages(self) -> Mapping[str, Callable[[], Any]]:
        """As `Source.pages`: `/cameras`."""
        return {"cameras": self.cameras}

    def cameras(self) -> Mapping[str, Any]:
        """The state and counters of each camera, as the control port shows them."""
        with self._arrived:
            return {
                camera.name: {"url": camera.address.shown, **camera.health.as_json(), "waiting": len(camera.waiting)}
                for camera in self._cameras
            }

    def keep_footage(self, seconds: float, max_bytes: int) -> Mapping[str, Footage]:
        """As `KeepsFootage.keep_footage`."""
        for name, settings in self._settings.items():
            kept = self._footage.setdefault(name, Footage(live=settings.address.live))
            kept.covers(seconds, max_bytes)
            if settings.address.kind is Kind.FOLDER:
                kept.unusable = "it is a folder of pictures, not a stream"
        return self._footage

    @property
    def held_bytes(self) -> int:
        """Bytes of the frames that were not polled yet."""
        with self._arrived:
            return sum(camera.waiting.held_bytes for camera in self._cameras)

    def _new_cameras(self) -> list[Camera]:
        return [Camera(name, settings, self._arrived) for name, settings in self._settings.items()]

    def _enough(self, without: Collection[Lane], max_records: int, max_bytes: int) -> bool:
        """Whether there are as many as asked, or nothing more can come but newer pictures in the place of these, or
        pictures of files that wait for these to be polled."""
        waiting = size = 0
        more = False
        for camera in self._cameras:
            if self._lane(camera, camera.connection) in without:
                continue
            ready = camera.waiting.ready
            if ready:
                waiting += ready
                size += camera.waiting.held_bytes
            more = more or bool(camera.connection and not (camera.waiting.full and camera.policy != "fifo"))
        return waiting >= max_records or size >= max_bytes or (waiting > 0 and not more and not self._all_over())

    def _take(self, without: Collection[Lane], max_records: int, max_bytes: int) -> tuple[dict[Lane, list[Frame]], int]:
        """Take frames of all cameras in turn, up to the limits; of each camera, only those of one connection."""
        frames: dict[Lane, list[Frame]] = {}
        size = count = 0
        # The camera that was served least recently comes first, so that no camera starves.
        turn = list(self._turns)
        while turn:
            left = []
            for place in turn:
                if count >= max_records:
                    return frames, size
                if size >= max_bytes:
                    for camera in self._cameras:
                        camera.waiting.leave()
                    return frames, size
                camera = self._cameras[place]
                connection = camera.waiting.connection()
                if connection is None or self._lane(camera, connection) in without:
                    continue
                if not self._may_take(camera, connection, frames):
                    continue
                frame = camera.waiting.take()
                lane = self._lane_of(camera, connection, frame)
                frame.facts.drops = self._drops_since(camera)
                camera.health.delivered += 1
                frames.setdefault(lane, []).append(frame)
                count, size = count + 1, size + frame.byte_count
                self._turns.remove(place)
                self._turns.append(place)
                left.append(place)
            turn = left
        return frames, size

    def _lane(self, camera: Camera, connection: int) -> Lane | None:
        """The lane of this connection; `None` if it has none yet."""
        return self._lanes.get(camera.name) if self._connections.get(camera.name) == connection else None

    def _may_take(self, camera: Camera, connection: int, frames: Mapping[Lane, list[Frame]]) -> bool:
        """Whether a frame of this connection may be in the same block as those of its lane that are in it already."""
        lane = self._lanes.get(camera.name)
        return lane not in frames or self._connections.get(camera.name) == connection

    def _lane_of(self, camera: Camera, connection: int, frame: Frame) -> Lane:
        known = self._lane(camera, connection)
        if known is not None:
            return known
        if camera.name in self._lanes:
            # Polled frames of the lost connection are still run, as they are not delivered again.
            self._events.append(LaneEnded(self._lanes.pop(camera.name), finish=True))
        self._connections[camera.name] = connection
        return self._begin(camera.name, frame.facts.number)

    def _begin(self, camera: str, position: int) -> Lane:
        self._epochs[camera] += 1
        lane = self._lanes[camera] = Lane(self.name, camera, self._epochs[camera])
        self._events.append(LaneBegan(lane, camera, self._number_of(camera), position))
        return lane

    def _end_lanes(self) -> None:
        """End the lanes of connections that are lost, once nothing of them waits."""
        for camera in self._cameras:
            lost = camera.connection != self._connections.get(camera.name) and not camera.over
            if lost and camera.name in self._lanes and not len(camera.waiting):
                self._events.append(LaneEnded(self._lanes.pop(camera.name), finish=True))

    def _drops_since(self, camera: Camera) -> int:
        total = camera.health.drops.total()
        since = total - self._dropped[camera.name]
        self._dropped[camera.name] = total
        return since

    def _number_of(self, camera: str) -> int:
        return list(self._settings).index(camera)

    def _all_told(self) -> bool:
        return all(camera.health.state is not State.CONNECTING for camera in self._cameras)

    def _all_over(self) -> bool:
        return all(camera.over for camera in self._cameras)

    def _tell_state(self) -> None:
        """Whether any camera gives pictures; `/ready` goes by it. Files count where there is nothing else."""
        cameras = [camera for camera in self._cameras if camera.live] or self._cameras
        live = any(camera.health.now in (State.LIVE, State.ENDED) for camera in cameras)
        if not self._open or self._down is not live:
            return
        self._down = not live
        reasons = (
            f"{camera.name} is {camera.health.now.value}{f' ({camera.health.reason})' if camera.health.reason else ''}"
            for camera in self._cameras
        )
        reason = "a camera is live" if live else f"no camera is live: {'; '.join(reasons)}"
        self._events.append(SourceDown(self.name, self._down, reason))

    def _tell_end(self) -> None:
        if self._ended or not self._all_over():
            return
        failed = [f"{camera.name}: {camera.health.reason}" for camera in self._cameras if camera.health.reason]
        if len(failed) == len(self._cameras) and not any(camera.health.pictures for camera in self._cameras):
            raise ConnectorError(f"{self.name}: nothing can be read: {'; '.join(failed)}")
        self._ended = True
        self._events.append(SourceEnded(self.name))

    def _block(self, by_lane: Mapping[Lane, list[Frame]], size: int) -> Records:
        if not by_lane:
            return Records.empty(self.name)
        frames: list[Frame] = []
        spans = []
        for lane, of_lane in by_lane.items():
            spans.append(Span(lane, len(frames), len(frames) + len(of_lane)))
            frames += of_lane
        # Only these facts are kept: functions that are called later must not keep the pictures in memory.
        facts = [frame.facts for frame in frames]
        lanes = [span.lane for span in spans for _ in range(span.start, span.stop)]
        return Records(
            self.name,
            frames,
            [lane.partition.encode() for lane in lanes],
            np.array([fact.number for fact in facts], np.int64),
            spans,
            [span.lane.partition for span in spans],
            [self._number_of(span.lane.partition) for span in spans],
            size,
            headers=lambda: [_headers(fact, lane.epoch) for fact, lane in zip(facts, lanes, strict=True)],
            timestamps=lambda: np.array([fact.timestamp for fact in facts], np.int64),
            extras={name: _column(name, facts, lanes) for name in COLUMNS},
            received=min(frame.at for frame in frames),
        )


def _said(facts: Facts, epoch: int) -> dict[str, float | None]:
    return {
        "pts": facts.pts,
        "clock": facts.clock,
        "receipt": facts.receipt,
        "epoch": epoch,
        "drops": facts.drops,
    }


def _headers(facts: Facts, epoch: int) -> list[Header]:
    return [(name, b"%a" % value) for name, value in _said(facts, epoch).items() if value is not None]


def _column(name: str, facts: Sequence[Facts], lanes: Sequence[Lane]) -> Callable[[], Column]:
    def read() -> Column:
        values = (_said(fact, lane.epoch)[name] for fact, lane in zip(facts, lanes, strict=True))
        return Column.of([MISSING if value is None else value for value in values])

    return read
