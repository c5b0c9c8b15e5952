"""`ClipSink`: the packets of a camera around an event, as the camera sent them, in files."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from connectors.camera.footage import Footage, KeepsFootage, check_footage
from connectors.camera.video import pyav
from connectors.measures import Measure
from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from connectors.source import Source
from connectors.view.clipfile import ClipFile
from connectors.view.clipfolder import ClipFolder
from connectors.view.config import ClipSinkConfig
from connectors.view.madeclip import MadeClip
from connectors.view.result import data_of
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

MOST_EVENTS: Final = 1000
"""Events that may wait to be processed; beyond that the sink is full."""
LATE: Final = 10.0
"""Seconds that packets are kept longer than `before`, as a result comes later than its picture."""
_LOOK: Final = 0.2
"""Seconds between two checks for new packets."""
_SILENCE: Final = 2.0
"""Seconds after the end of a clip until it is finished, though the camera is silent."""
_AGAIN: Final = 5.0
"""Seconds after which a folder that could not be written to is tried again."""
_FINISH: Final = 5.0
"""Seconds that `close` waits for files to be finished."""


@dataclass(eq=False, slots=True)
class _Event:
    camera: tuple[str, str]
    at: float | None
    """The time of its picture on the camera's timeline; `None`: older than the kept packets."""
    timestamp: int | None
    values: Mapping[str, Any]
    rows: Ints


@dataclass(eq=False, slots=True)
class _Clip:
    footage: Footage
    first: _Event
    begin: float
    end: float
    reached: float
    """The time up to which its packets have been written."""
    next: int
    """The number of the next packet."""
    file: ClipFile | None = None
    file_begin: float = 0.0
    """The time of the file's first packet."""
    files: int = 0
    waiting: list[_Event] = field(default_factory=list)
    """Events whose pictures are not in the file yet."""


class ClipSink(Sink):
    """Writes a clip for each event: the packets of its camera from `before` seconds before the picture of the result
    until `after` seconds after it. An event while a clip of its camera is being written extends that clip; the clip of
    a file is written until all pictures before its end have their results.

    Packets are not encoded again: a clip begins with the last key frame before its time. Packets after a reconnect, or
    with another codec or size, are written to a file of their own, with a number in its name.

    A message is confirmed when its picture is in the file, or its packets are not kept any more; results that belong to
    no camera of this service are refused. While the folder cannot be written to (a full disk) messages are refused as
    retriable, and it is tried again every few seconds; the messages of a clip that breaks off are lost. The packets
    come from `KeepsFootage` sources, with bounded memory for each camera.
    """

    def __init__(self, config: ClipSinkConfig) -> None:
        self.name = config.label
        self.clips = 0
        """Events that began a clip."""
        self.files = 0
        """Files that were finished."""
        self.bytes = 0
        """Bytes of packets in them."""
        self.failed = 0
        """Clips that could not be written, or only in part."""
        self.deleted = 0
        """Files that were deleted as there were too many."""
        self._config = config
        self._folder = ClipFolder(config.directory, config.file_name, config.format, config.max_files, config.max_size)
        self._footage: dict[tuple[str, str], Footage] = {}
        self._changed = threading.Condition()
        self._events: deque[_Event] = deque()
        self._starting: list[_Event] = []
        """Events whose clips are about to begin."""
        self._busy = 0
        """Events whose clips are not finished."""
        self._confirmed: list[Ints] = []
        self._lost: dict[int, ConnectorError] = {}
        self._closing = False
        self._down: str | None = None
        self._try_at = 0.0
        self._failure: str | None = None
        self._open: dict[tuple[str, str], _Clip] = {}
        self._on_clip: list[Callable[[MadeClip], None]] = []
        self._thread: threading.Thread | None = None

    def attach(self, sources: Sequence[Source]) -> None:
        """As `Sink.attach`: has cameras keep their packets."""
        for source in sources:
            if isinstance(source, KeepsFootage):
                kept = source.keep_footage(self._config.before + LATE, self._config.memory)
                self._footage.update(((source.name, camera), footage) for camera, footage in kept.items())

    def on_clip(self, call: Callable[[MadeClip], None]) -> None:
        """As `TellsClips.on_clip`."""
        self._on_clip.append(call)

    def open(self) -> None:
        """Get ready for events; clips that a killed process left unfinished get their final names. Raises
        `ConnectorError` if the folder cannot be created or read."""
        if self._thread is not None:
            return
        try:
            self._folder.path.mkdir(parents=True, exist_ok=True)
            named, deleted = self._folder.take_over()
        except OSError as error:
            raise ConnectorError(
                f'sink {self.name}: directory "{self._folder.path}": {error.strerror}; choose another one'
            ) from error
        if named or deleted:
            _log.warning(
                "sink %s: a process before this one was killed: %d of its clips can be played and got their names, "
                "%d were empty and are deleted", self.name, named, deleted,
            )  # fmt: skip
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"clips {self.name}", daemon=True)
        self._thread.start()

    def send(self, messages: Messages, deadline: float) -> Refused:
        """As `Sink.send`; it never waits."""
        if self._thread is None:
            raise ConnectorError(f"sink {self.name} is not open")
        self._raise_failure()
        refused: dict[int, ConnectorError] = {}
        for index, value in enumerate(messages.values):
            rows = messages.parents(index)
            try:
                if value is None:
                    self._confirmed.append(rows)
                else:
                    self._take(value, rows)
            except ConnectorError as error:
                refused[index] = ConnectorError(f"sink {self.name}: {error}", retriable=error.retriable)
        self._tell_needs()
        return refused

    def barrier(self, deadline: float) -> Lost:
        """As `Sink.barrier`: until all pictures are in their files, not until these end."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: not (self._events or self._busy) or self._failure is not None,
                max(deadline - time.monotonic(), 0.0),
            )
            lost, self._lost = self._lost, {}
        self._raise_failure()
        if lost:
            return lost
        if not done:
            raise ConnectorError(f"sink {self.name}: the pictures are not in their clips yet", retriable=True)
        return {}

    def confirmed(self) -> list[Ints]:
        """As `Sink.confirmed`."""
        with self._changed:
            confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def behind(self) -> float:
        """As `Sink.behind`: events are taken up within moments."""
        return 0.1 if self._events or self._busy else 0.0

    def close(self) -> None:
        """Finish all clips with the pictures that they have."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        thread.join(_FINISH)

    def down(self) -> str | None:
        """Why the folder cannot be written to."""
        return self._down

    def metrics(self) -> Sequence[Measure]:
        """Clips and files written, failed and deleted, and the memory that kept packets use."""
        return (
            Measure("begun", "Events that began a clip.", self.clips),
            Measure("files", "Files of clips that were finished.", self.files),
            Measure("bytes", "Bytes of packets in finished files.", self.bytes),
            Measure("failed", "Clips that could not be written, or only in part.", self.failed),
            Measure("deleted", "Files that were deleted as there were too many.", self.deleted),
            Measure(
                "kept_bytes",
                "Bytes of packets that are kept for clips to come.",
                sum(footage.byte_count for footage in self._footage.values()),
                "gauge",
            ),
        )

    def _take(self, value: object, rows: Ints) -> None:
        data = data_of(value)
        record = data.record
        if record is None:
            raise ConnectorError("the result does not say which picture of a camera it is of")
        camera = record.source, record.topic
        footage = check_footage(self._footage.get(camera), record.topic)
        if self._down is not None:
            raise ConnectorError(self._down, retriable=True)
        if len(self._events) >= MOST_EVENTS:
            raise ConnectorError("too many events wait for their clips", retriable=True)
        # Only values for the name are kept, no pictures.
        values = {key: data[key] for key in self._folder.keys if isinstance(data.get(key), (str, int, float))}
        at = None if record.offset is None else footage.time_of(record.offset)
        with self._changed:
            self._events.append(_Event(camera, at, record.timestamp, values, rows))
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._events or self._closing, self._patience())
                    self._starting = list(self._events)
                    self._busy += len(self._starting)
                    self._events.clear()
                    closing = self._closing
                for event in self._starting:
                    self._begin(event)
                for camera, clip in list(self._open.items()):
                    self._write(camera, clip, closing=closing)
                with self._changed:
                    self._starting = []
                self._tell_needs()
                if closing:
                    return
                if self._down is not None and time.monotonic() >= self._try_at:
                    self._try_again()
        except Exception as error:  # noqa: BLE001 - the sink raises it as `_failure`
            self._failure = f"{type(error).__name__}: {error}"
            _log.exception("sink %s", self.name)
        finally:
            with self._changed:
                self._changed.notify_all()

    def _tell_needs(self) -> None:
        """Tell the cameras' footage which packets clips still need."""
        with self._changed:
            times: dict[tuple[str, str], float] = {camera: clip.reached for camera, clip in self._open.copy().items()}
            for event in (*self._starting, *self._events):
                at = float("-inf") if event.at is None else event.at - self._config.before
                times[event.camera] = min(at, times.get(event.camera, at))
            for camera, footage in self._footage.items():
                footage.needs(self, times.get(camera))

    def _patience(self) -> float | None:
        """The timeout of the wait for events, in seconds; `None`: no timeout, as there is no other work."""
        if self._open:
            return _LOOK
        return None if self._down is None else max(self._try_at - time.monotonic(), 0.0)

    def _try_again(self) -> None:
        """Check whether the folder can be written to again, without waiting for the next event."""
        self._try_at = time.monotonic() + _AGAIN
        try:
            self._folder.try_out()
        except OSError:
            return
        self._down = None

    def _begin(self, event: _Event) -> None:
        """Extend the clip of the event's camera, or begin one."""
        footage = self._footage[event.camera]
        at = footage.oldest if event.at is None else event.at
        begin = float("-inf")
        clip = self._open.get(event.camera)
        # Packets of a live camera after the clip's end may not have been checked yet; those of a file wait for results.
        if clip is not None and at > (
            max(clip.end, clip.begin + self._config.longest - self._config.after) if footage.live else clip.end
        ):
            # All its packets have come. The next clip goes on where it ends.
            self._write(event.camera, clip, closing=True)
            begin, clip = clip.end, None
        if clip is None:
            begin = max(at - self._config.before, begin)
            clip = _Clip(footage, event, begin, at + self._config.after, begin, footage.start(begin))
            self._open[event.camera] = clip
            self.clips += 1
        clip.end = min(max(clip.end, at + self._config.after), max(clip.begin + self._config.longest, at))
        clip.waiting.append(event)

    def _write(self, camera: tuple[str, str], clip: _Clip, *, closing: bool) -> None:
        """Write the available packets of a clip, and finish it at its end."""
        footage = clip.footage
        # Read first: events that come later are found by the next check.
        ended = footage.ended and not footage.awaits(clip.end)
        over = closing or ended or (footage.live and footage.now > clip.end + _SILENCE)
        lost: ConnectorError | None = None
        try:
            for kept in footage.since(clip.next):
                if kept.at > clip.end:
                    # Pending results of a file's earlier pictures may extend it.
                    over = over or not footage.awaits(clip.end)
                    break
                if clip.file is not None and (kept.number != clip.next or not clip.file.takes(kept)):
                    self._finish(clip)
                clip.next = kept.number + 1
                clip.reached = kept.at
                if clip.file is None:
                    if not kept.is_keyframe:
                        continue
                    clip.file = self._opened(clip, kept)
                clip.file.write(kept)
            if over:
                self._finish(clip)
        except (OSError, ValueError, pyav().FFmpegError) as error:
            lost = self._lose(clip, error)
            over = True
        if over:
            del self._open[camera]
            if not clip.files:
                _log.warning("sink %s: there is no key frame of %s to begin a clip with", self.name, camera[1])
                self.failed += 1
        self._settle(clip, lost, over=over)

    def _opened(self, clip: _Clip, first: Any) -> ClipFile:
        event = clip.first
        clip.file_begin = first.at
        path = self._folder.free(event.camera[1], event.timestamp, event.values)
        clip.files += 1
        return ClipFile(path, self._folder.kind, first)

    def _finish(self, clip: _Clip) -> None:
        file, clip.file = clip.file, None
        if file is None:
            return
        file.finish()
        self._down = None
        self.files += 1
        self.bytes += file.byte_count
        self._tell_clip(clip, file)
        in_use = frozenset(event.file.unfinished for event in self._open.values() if event.file is not None)
        self.deleted += self._folder.make_room(in_use)

    def _tell_clip(self, clip: _Clip, file: ClipFile) -> None:
        """Tell the sinks that want to know of a finished file."""
        first = clip.first
        at = clip.begin if first.at is None else first.at
        stamp = time.time() * 1000 if first.timestamp is None else first.timestamp
        # The camera's timeline begins anywhere: the event's picture has a time on both.
        begin, end = (round(stamp + (moment - at) * 1000) for moment in (clip.file_begin, clip.reached))
        made = MadeClip(first.camera[1], round(stamp), begin, end, file.path)
        for call in self._on_clip:
            call(made)

    def _lose(self, clip: _Clip, error: Exception) -> ConnectorError:
        self.failed += 1
        if clip.file is not None:
            clip.file.abandon()
            clip.file = None
        camera = clip.first.camera[1]
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        _log.error("sink %s: the clip of %s cannot be written: %s", self.name, camera, reason)
        if not isinstance(error, (OSError, pyav().FFmpegError)):
            # A permanent error: the format does not support the codec.
            clip.footage.unusable = f"{self._folder.kind} does not take it: {reason}"
        if isinstance(error, OSError):
            self._down = f'clips cannot be written to "{self._folder.path}": {reason}'
            self._try_at = time.monotonic() + _AGAIN
        return ConnectorError(f"sink {self.name}: the clip of {camera} cannot be written: {reason}")

    def _settle(self, clip: _Clip, lost: ConnectorError | None, *, over: bool) -> None:
        """Confirm the events whose pictures were written; all of them at the end of the clip, none if it is `lost`."""
        done = [event for event in clip.waiting if over or event.at is None or event.at <= clip.reached]
        clip.waiting = [event for event in clip.waiting if event not in done]
        with self._changed:
            if lost is None:
                self._confirmed += [event.rows for event in done]
            else:
                self._lost.update((row, lost) for event in done for row in event.rows.tolist())
            self._busy -= len(done)
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ConnectorError(f"sink {self.name}: {self._failure}")
