"""`Footage`: the newest packets of one camera as it sent them, for clips that are not encoded again."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from pipelines.errors import ConnectorError

if TYPE_CHECKING:
    import av
    from av.container import OutputContainer

BACK: Final = 1.0
"""Seconds by which the times of a file go back where another begins, of those that it was joined from."""
_MILLISECONDS: Final = Fraction(1, 1000)
_UNPACKED: Final = frozenset({"rawvideo", "wrapped_avframe"})
"""Codecs of uncompressed pictures: keeping their packets would take too much memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """The stream parameters that a file needs for the packets of one connection."""

    stream: Any
    """A stream of libav with these parameters, independent of the connection."""
    container: OutputContainer
    """The output container that holds the stream; nothing is written to it."""
    codec: str
    extradata: bytes
    timed: bool
    """Whether its packets' times come from the camera, and are not made up by libav."""


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """A packet in the ring."""

    number: int
    """Counts the packets of a camera, over all its connections, from 0."""
    data: bytes
    """A copy of the bytes: a packet of libav would keep the decoder of its connection in memory."""
    pts: int | None
    dts: int | None
    duration: int
    time_base: Fraction
    """Seconds in a unit of `pts`, `dts` and `duration`."""
    is_keyframe: bool
    at: float
    """Seconds on the camera's own line of time, which only rises: for live streams `time.monotonic` of its receipt, for
    files the time in the file, over all repetitions."""
    template: Template
    size: tuple[int, int]
    """Width and height of the pictures at that time."""


class Footage:
    """A ring of packets: the camera's thread adds them, and a sink that writes clips reads them.

    Keeps the packets of the last `seconds`, from a key frame on, and those that a sink still `needs`, in `max_bytes` at
    most. A file is read ahead of the pictures that are run, far ahead where few of its pictures are run: of a file the
    `seconds` before the first picture that may still have results (`settled`) are kept. Thread-safe.
    """

    def __init__(self, seconds: float = 0.0, max_bytes: int = 0, *, live: bool) -> None:
        self.live = live
        self.byte_count = 0
        """Bytes of the packets that are kept."""
        self.ended = False
        """Whether no packet comes any more."""
        self.unusable: str | None = None
        """Why no packets of this camera can be kept; `None` if they can."""
        self._seconds = seconds
        self._most = max_bytes
        self._lock = threading.Lock()
        self._kept: deque[Kept] = deque()
        self._keys: deque[Kept] = deque()
        self._pictures: deque[tuple[int, float]] = deque()
        self._unsettled: deque[tuple[int, float]] = deque()
        self._needs: dict[object, float] = {}
        self._next = 0
        self._template: Template | None = None
        self._base = 0.0
        self._now = 0.0

    def covers(self, seconds: float, max_bytes: int) -> None:
        """Keep at least so many seconds and bytes."""
        self._seconds = max(self._seconds, seconds)
        self._most = max(self._most, max_bytes)

    def begin(self, stream: Any, *, timed: bool, goes_on: bool = False) -> None:
        """A new connection begins: the next packets are of this stream of libav. `goes_on`: behind the last packets of
        the same recording."""
        import av

        context = stream.codec_context
        self.ended = False
        self.unusable = None
        self._template = None
        if not goes_on:
            # Times of a file that is repeated go on.
            self._base = self._now
        if context.name in _UNPACKED:
            self.unusable = "it sends pictures that are not compressed"
            return
        container = av.open(_Nothing(), "w", format="matroska")
        try:
            copy = container.add_stream_from_template(stream, opaque=True)
        except (ValueError, av.FFmpegError) as error:
            self.unusable = f"its codec {context.name} cannot be written to a file: {type(error).__name__}"
            return
        self._template = Template(copy, container, context.name, bytes(context.extradata or b""), timed)

    def add(self, packet: av.Packet[Any], size: tuple[int, int]) -> float:
        """Keep a packet; `size` is that of the last picture. Returns its time on the camera's timeline."""
        at = self._time_of(packet)
        template = self._template
        if template is None or not packet.size:
            return at
        kept = Kept(
            self._next,
            bytes(packet),
            packet.pts,
            packet.dts,
            packet.duration or 0,
            packet.time_base or _MILLISECONDS,
            packet.is_keyframe,
            at,
            template,
            size,
        )
        self._next += 1
        with self._lock:
            self._kept.append(kept)
            self.byte_count += len(kept.data)
            if kept.is_keyframe:
                self._keys.append(kept)
            self._trim(min(self._wanted_from(at), *self._needs.values()) if self._needs else self._wanted_from(at))
        return at

    def picture(self, number: int, at: float) -> None:
        """The picture of this number came out of the packet at this time."""
        with self._lock:
            self._pictures.append((number, at))
            if not self.live and self._kept:
                self._unsettled.append((number, at))
                # Packets beyond `max_bytes` were dropped, even if a later result would have needed them.
                while self._unsettled[0][1] < min(self._kept[0].at, at):
                    self._unsettled.popleft()
            oldest = self._wanted_from(at)
            while self._pictures[0][1] < oldest:
                self._pictures.popleft()

    def settled(self, number: int) -> None:
        """Pictures before this number have no more results to come."""
        with self._lock:
            while self._unsettled and self._unsettled[0][0] < number:
                self._unsettled.popleft()

    def dropped(self, number: int) -> None:
        """The picture of this number was not run, so it has no results."""
        with self._lock:
            self._unsettled = deque(picture for picture in self._unsettled if picture[0] != number)

    def awaits(self, at: float) -> bool:
        """Whether pictures of a file at this time or before may still have results."""
        with self._lock:
            if self.live:
                return False
            # A decoder outputs a picture some packets after the packet that holds it.
            to_come = not self.ended and (not self._pictures or self._pictures[-1][1] <= at)
            return to_come or bool(self._unsettled and self._unsettled[0][1] <= at)

    def needs(self, reader: object, at: float | None) -> None:
        """This reader still needs the packets from this time on; `None`: it waits for nothing.

        A file is read faster than it plays, so its last `seconds` of packets may be dropped within a moment.
        """
        with self._lock:
            if at is None:
                self._needs.pop(reader, None)
            else:
                self._needs[reader] = at

    def end(self) -> None:
        """Mark the end: no further packet comes."""
        self.ended = True

    def time_of(self, picture: int) -> float | None:
        """The time of this picture on the camera's timeline; `None` if it is no longer kept."""
        with self._lock:
            return next((at for number, at in reversed(self._pictures) if number == picture), None)

    @property
    def now(self) -> float:
        """The end of the camera's line of time: for live streams the present."""
        return time.monotonic() if self.live else self._now

    @property
    def oldest(self) -> float:
        """The time of the oldest packet that is kept; the present if there is none."""
        with self._lock:
            return self._kept[0].at if self._kept else self.now

    def start(self, at: float) -> int:
        """The number of the last key frame at or before `at`, or of the first that is kept."""
        with self._lock:
            number = next((key.number for key in reversed(self._keys) if key.at <= at), None)
            if number is not None:
                return number
            return self._keys[0].number if self._keys else self._next

    def since(self, number: int) -> Sequence[Kept]:
        """The packets that are kept from this number on."""
        packets: list[Kept] = []
        with self._lock:
            for kept in reversed(self._kept):
                if kept.number < number:
                    break
                packets.append(kept)
        packets.reverse()
        return packets

    def _time_of(self, packet: av.Packet[Any]) -> float:
        if self.live:
            now = time.monotonic()
        else:
            stamp = packet.dts if packet.dts is not None else packet.pts
            base = Fraction(packet.time_base or _MILLISECONDS)
            if stamp is None:
                # A film without times, such as a bare H.264 stream.
                now = self._now + float((packet.duration or 0) * base)
            else:
                now = self._base + float(stamp * base)
                if now < self._now - BACK:
                    self._base += self._now - now
        self._now = max(self._now, now)
        return self._now

    def _wanted_from(self, at: float) -> float:
        """The time from which on packets are kept, where `at` is the time of the newest."""
        return (min(self._unsettled[0][1], at) if self._unsettled else at) - self._seconds

    def _trim(self, oldest: float) -> None:
        while self._kept and (self.byte_count > self._most or self._is_spare(self._kept[0], oldest)):
            gone = self._kept.popleft()
            self.byte_count -= len(gone.data)
            if self._keys and self._keys[0] is gone:
                self._keys.popleft()

    def _is_spare(self, first: Kept, oldest: float) -> bool:
        """Whether no clip needs the first packet: it is older than the key frame that the oldest clip begins with."""
        if not self._keys:
            return first.at < oldest
        return first is not self._keys[0] or (len(self._keys) > 1 and self._keys[1].at <= oldest)


class _Nothing:
    """A file object that discards everything written to it."""

    def write(self, data: bytes) -> int:
        return len(data)


@runtime_checkable
class KeepsFootage(Protocol):
    """A source whose records are pictures of streams, of which it can keep the packets."""

    name: str

    def keep_footage(self, seconds: float, max_bytes: int) -> Mapping[str, Footage]:
        """Keep the packets of the last seconds of each camera, from now on; by the names of the cameras.

        Called before `open`. After several calls the largest values of each kind hold.
        """


def annexb_parameters(packet: bytes, codec: str) -> bytes:
    """The parameter sets (SPS, PPS, of H.265 also VPS) at the start of a key frame in Annex B form, in that form; empty
    if it has none, or has another form.

    Follows ITU-T H.264 and H.265, Annex B.
    """
    kinds = {"h264": (7, 8), "hevc": (32, 33, 34)}.get(codec)
    if kinds is None or not packet.startswith((b"\x00\x00\x01", b"\x00\x00\x00\x01")):
        return b""
    units = []
    begin = packet.find(b"\x00\x00\x01") + 3
    while begin >= 3 and begin < len(packet):
        kind = packet[begin] & 31 if codec == "h264" else packet[begin] >> 1 & 63
        # A picture follows its parameters; the bytes behind it are many and are not needed.
        if (1 <= kind <= 5) if codec == "h264" else kind < 32:
            break
        end = packet.find(b"\x00\x00\x01", begin)
        unit = packet[begin : len(packet) if end < 0 else end]
        if kind in kinds:
            units.append(unit.rstrip(b"\x00"))
        begin = end + 3 if end >= 0 else -1
    return b"".join(b"\x00\x00\x00\x01" + unit for unit in units)


def check_footage(footage: Footage | None, camera: str) -> Footage:
    """The footage of this camera. Raises `ConnectorError` for an unknown camera or packets that cannot be kept."""
    if footage is None:
        raise ConnectorError(f'"{camera}" is not a camera of this service, so there is nothing to make a clip of')
    if footage.unusable is not None:
        raise ConnectorError(f'there is no clip of "{camera}": {footage.unusable}')
    return footage
