"""`Video`: an open stream of pictures, and the errors of libav in words."""

from __future__ import annotations

import errno
import logging
import struct
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from connectors.camera.address import Address, Kind
from connectors.camera.errors import PAGE, SilentError, VideoError, reason
from connectors.camera.upright import Picture, Upright
from connectors.camera.web.look import CameraAnswer, look
from connectors.camera.web.recording import RATE, Place, RecordingReading, has_end, is_playlist
from pipelines.errors import MissingPackageError, nearest
from pipelines.late import late

if TYPE_CHECKING:
    import av
    from av.video.stream import VideoStream

    from connectors.camera.footage import Footage

_log = logging.getLogger(__name__)

_AS_WRITTEN: Final = {"correct_ts_overflow": "0"}
"""Times are read as they were written. libav otherwise takes any that go back by a minute, as in recordings that were
joined, for those of a clock that has run over, and adds 26.5 hours; of either kind times go on (`Camera`)."""
_PATIENT: Final = {"analyzeduration": "5000000", "probesize": "5000000"}
_OF_A_FILE: Final = {**_PATIENT, "fpsprobesize": "-1"}
"""Options of libav for files, whose beginning may be probed for longer."""
_SNAPSHOT: Final = (
    "its URL gives one picture and ends: set fps to ask for it again and again, as in `fps: 1` each second, or take "
    "the URL of its video stream"
)
_REMEMBERED: Final = 64
"""The number of packets whose time of receipt is kept until the decoder outputs their picture."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How a stream is opened and decoded."""

    wait: float = 5.0
    """Seconds within which the peer has to answer."""
    silence: float = 5.0
    """Seconds without data after which `read` gives up. RTSP takes up to twice as long."""
    format: str | None = None
    """The name of the format in libav; `None`: that of the address, or libav detects it."""
    options: Mapping[str, str] | None = None
    """Options of libav, which override ours."""
    keyframes_only: bool = False
    hardware: str | None = None
    threads: int = 1
    max_pixels: int = 40_000_000
    every: float | None = None
    """Seconds between two requests to a URL that gives one picture; `None`: such a URL is not a camera."""


class Video(ABC):
    """A stream that is open; one thread uses it, from the opening to `close`."""

    codec: str
    size: tuple[int, int]
    """Width and height, 0 where they are not known yet."""
    rate: float | None
    """Pictures a second as the stream announces them; cameras are often wrong about it."""
    corrupt: int = 0
    """Packets, or files, that could not be decoded."""
    live: bool = False
    """Whether pictures come at their own time. It is known once the stream is open: what the network sends may be a
    recording."""

    format: str | None = None
    """The name of the format, where it had to be given to libav."""
    polled: bool = False
    """Whether pictures are requested one by one, at the rate that is wanted."""

    @abstractmethod
    def read(self) -> Sequence[Picture] | None:
        """The pictures of the next packet, often one, maybe none; `None` at the end.

        Raises `SilentError` if no data comes in time, `VideoError` for all else.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the stream and free its decoder."""

    @property
    def place(self) -> Place | None:
        """How far a recording of the network was read; `None` before its first picture, and for other videos."""
        return None


def open_video(
    address: Address, opening: Opening | None = None, footage: Footage | None = None, after: Place | None = None
) -> Video:
    """The stream at this address, at its beginning, or behind the pictures that were read before. Its packets are added
    to `footage`.

    Raises `VideoError`, and `MissingPackageError` without PyAV.
    """
    opening = opening or Opening()
    pyav()
    if address.kind is Kind.FOLDER:
        return _folder(address, opening)
    video = _stream(address, opening, footage, after)
    if opening.every is None or not video.may_be_snapshot:
        return video
    return _snapshots(video, lambda: _stream(address, opening), opening.every, footage)


_folder: Final[Callable[[Address, Opening], Video]] = late("connectors.camera.files.picturefolder:PictureFolder")
_snapshots: Final[Callable[..., Video]] = late("connectors.camera.web.snapshots:Snapshots")


def _stream(address: Address, opening: Opening, footage: Footage | None = None, after: Place | None = None) -> Stream:
    video = Stream(address, opening, {}, footage, after)
    if not all(video.size) and address.live:
        # The short probe did not tell the size of its pictures.
        video.close()
        video = Stream(address, opening, _PATIENT, footage, after)
    return video


class Stream(Video):
    """A file, device or stream of the network, read by PyAV."""

    def __init__(
        self,
        address: Address,
        opening: Opening,
        further: Mapping[str, str],
        footage: Footage | None = None,
        after: Place | None = None,
    ) -> None:
        self._address = address
        self._opening = opening
        self._footage = footage
        self._after = after
        self._errors = pyav().FFmpegError, OSError, ValueError
        # Only RTCP has the camera's time. To look for it in each packet takes as long as all else in `read`.
        self._clocked = address.kind is Kind.RTSP
        self._further = further
        self._sought = after is not None and after.seconds is not None
        self._begin()

    def _begin(self) -> None:
        address, footage = self._address, self._footage
        self.live = address.live
        self._upright = Upright()
        self._received: OrderedDict[int, tuple[float, float | None, float]] = OrderedDict()
        self._count = 0
        self._container = _opened(address, self._opening, self._further)
        try:
            self._breaks = address.may_be_recorded and (self._after is not None or has_end(self._container))
            """Whether it is a recording whose connection may be cut."""
            if self._breaks:
                self.live = False
            if self._breaks and not is_playlist(self._container):
                # The parts of a playlist have been loaded now, of each of its sizes: that is not done twice.
                self._container.close()
                self._container = _opened(address, self._opening, _OF_A_FILE)
            self.format = "mjpeg" if self._container.format.name == "mjpeg" else None
            self._timed = not _makes_up_times(self._container.format, live=self.live)
            self._stream = stream = self._chosen()
            if footage is not None:
                footage.begin(stream, timed=self._timed, goes_on=self._after is not None)
            self._packets: Iterator[av.Packet[Any]] = self._container.demux(stream)
            self._held: av.Packet[Any] | None = None
            self._reading = self._new_reading(stream) if self._breaks else None
            if self._sought and (self._reading is None or not self._reading.seek()):
                self._begin_again()
        except BaseException:
            self.close()
            raise

    def _new_reading(self, stream: VideoStream) -> RecordingReading:
        return RecordingReading(self._container, stream, self._after, keyframes_only=self._opening.keyframes_only)

    def _begin_again(self) -> None:
        """Open it anew, to read all pictures and pass over those that were read before."""
        self._sought = False
        self.close()
        self._begin()

    @property
    def may_be_snapshot(self) -> bool:
        """Whether the URL gives a picture's file; others may follow in the same answer."""
        name = self._container.format.name
        return self._address.kind is Kind.HTTP and (name.endswith("_pipe") or name == "image2")

    @property
    def place(self) -> Place | None:
        """As `Video.place`."""
        return self._after if self._reading is None else self._reading.place

    def read(self) -> Sequence[Picture] | None:
        """As `Video.read`."""
        if self._reading is not None:
            self._reading.check()
        packet = self._next()
        if self._breaks:
            # The last packet before a connection breaks may be cut short: it is decoded once another one has come.
            packet, self._held = self._held, packet
            if packet is None and self._held is not None:
                return []
        if packet is None:
            if self._is_snapshot and self._opening.every is None:
                raise VideoError(_SNAPSHOT)
            if self._reading is not None and self._reading.missed(None):
                self._begin_again()
                return []
            if self._reading is not None:
                self._reading.check_end()
            answer = self._look()
            if answer is not None and answer.is_page:
                raise VideoError(PAGE)
            return None
        receipt = time.time()
        clock = _clock(packet) if self._clocked else None
        read_before = self._reading is not None and not self._reading.begun
        at = 0.0 if self._footage is None or read_before else self._footage.add(packet, self._coded_size)
        if packet.pts is not None:
            self._received[packet.pts] = receipt, clock, at
            if len(self._received) > _REMEMBERED:
                self._received.popitem(last=False)
        try:
            frames = packet.decode()
        except self._errors:
            self.corrupt += 1
            return []
        pictures = [self._picture(frame, receipt, clock, at) for frame in frames]
        if self._reading is None:
            return pictures
        if pictures and self._reading.missed(pictures[0]):
            self._begin_again()
            return []
        return self._reading.unread(pictures)

    def close(self) -> None:
        """As `Video.close`. Errors of a peer that is gone are ignored."""
        with suppress(Exception):
            self._container.close()

    def _next(self) -> av.Packet[Any] | None:
        """The next packet; `None` at the end."""
        try:
            return next(self._packets, None)
        except self._errors as error:
            ends = self._breaks or (self._is_snapshot and self._opening.every is not None)
            if ends and self._container.size <= 0 and getattr(error, "errno", None) == errno.EIO:
                # The end of a stream without a length. Decoders still hold pictures.
                return self._flush()
            failed = self._broken(error)
        # Not raised inside `except`: the error of libav, which holds the URL, would be kept as its context.
        answer = self._look() if failed.may_be_explained else None
        if answer is not None and answer.holds_jpegs and self._opening.format is None:
            self._opening = replace(self._opening, format="mjpeg")
            self.close()
            self._begin()
            return self._next()
        raise failed if answer is None or not answer.is_page else VideoError(PAGE)

    def _flush(self) -> av.Packet[Any]:
        last: av.Packet[Any] = pyav().Packet()
        last.stream = self._stream
        return last

    @property
    def _is_snapshot(self) -> bool:
        """Whether the URL gave a picture's file, which libav shows as a video of one picture."""
        return self._count == 1 and self.may_be_snapshot

    def _look(self) -> CameraAnswer | None:
        """What the URL gives, if no picture has come: libav goes by the end of its path, or by what a camera says."""
        return look(self._address, self._opening.wait) if not self._count and self._address.kind is Kind.HTTP else None

    def _broken(self, error: Exception) -> VideoError:
        failed = reason(error, self._address, self._opening.silence, "data")
        return VideoError(_SNAPSHOT) if self._is_snapshot and not isinstance(failed, SilentError) else failed

    def _picture(self, frame: av.VideoFrame, receipt: float, clock: float | None, at: float) -> Picture:
        seconds = None if frame.pts is None or not self._timed else frame.time
        if seconds is None and not self.live:
            # A film without times, such as a bare H.264 stream, is played at the rate that libav assumes.
            seconds = self._count / (self.rate or RATE)
        self._count += 1
        if frame.pts is not None:
            receipt, clock, at = self._received.pop(frame.pts, (receipt, clock, at))
        # Not all decoders enforce `max_pixels`.
        check_size(frame.width, frame.height, self._opening.max_pixels)
        self._coded_size = frame.width, frame.height
        frame = self._upright.turned(frame)
        self.size = frame.width, frame.height
        return Picture(frame, seconds, clock, receipt, at)

    def _chosen(self) -> VideoStream:
        """The first video stream, ready to be decoded. Cover pictures of films and songs do not count."""
        streams = [stream for stream in self._container.streams.video if not _is_cover(stream)]
        if not streams:
            others = {
                "a cover picture" if stream.type == "video" else stream.type for stream in self._container.streams
            }
            raise VideoError(f"there is no video in it{', only ' + ' and '.join(sorted(others)) if others else ''}")
        stream: VideoStream = streams[0]
        _leave_out([other for other in self._container.streams if other is not stream])
        context = stream.codec_context
        if context is None:
            raise VideoError("its codec is not known to this libav")
        self.codec = context.name
        self.size = self._coded_size = context.width, context.height
        self.rate = None if stream.average_rate is None else float(stream.average_rate)
        check_size(*self.size, self._opening.max_pixels)
        # Threads that decode several frames at once deliver each as many frames late.
        stream.thread_type = "SLICE" if self.live else "AUTO"
        context.thread_count = self._opening.threads
        context.options = decoder_options(context.name, self._opening, live=self.live)
        if self._opening.keyframes_only:
            context.skip_frame = "NONKEY"
        return stream


def _makes_up_times(format: av.ContainerFormat, *, live: bool) -> bool:
    """Whether libav makes up the times of such a stream: 25 pictures a second, at any real rate.

    A film needs some times, and the made up ones of its format are as good as others.
    """
    from av.format import Flags

    if format.name == "mpjpeg":
        return True
    return live and (Flags.no_timestamps in Flags(format.flags) or format.name.endswith("_pipe"))


def _leave_out(streams: Iterable[av.stream.Stream]) -> None:
    """Streams that nobody reads: of HLS, the other sizes of a video would be loaded all the time."""
    from av.stream import Discard

    for stream in streams:
        stream.discard = Discard.all


def _is_cover(stream: VideoStream) -> bool:
    from av.stream import Disposition

    return bool(stream.disposition & Disposition.attached_pic)


def decoder_options(codec: str, opening: Opening, *, live: bool) -> dict[str, str]:
    """The options of a decoder: pictures have at most `max_pixels`, and a JPEG that is cut short is an error.

    libav's decoder otherwise fills the missing part with gray. A JPEG without an end marker, or with bytes after it, is
    whole. Not of live cameras: many webcams leave out the last bits of every picture.
    """
    options = {"max_pixels": str(opening.max_pixels)}
    return {**options, "err_detect": "explode"} if codec == "mjpeg" and not live else options


def check_size(width: int, height: int, most: int) -> None:
    """Raise `VideoError` for a picture of more pixels than allowed."""
    if width * height > most:
        raise VideoError(
            f"its pictures of {width} x {height} pixels are larger than max_pixels, {most}; raise it if that is right"
        )


def _opened(address: Address, opening: Opening, further: Mapping[str, str]) -> Any:
    av = pyav()
    options = {"max_pixels": str(opening.max_pixels), **_AS_WRITTEN, **address.options, **further}
    options |= opening.options or {}
    hardware = None if opening.hardware is None else _accelerator(opening.hardware)
    if opening.format is not None and opening.format not in av.formats_available:
        raise VideoError(
            f'format: libav has no "{opening.format}"{nearest(opening.format, sorted(av.formats_available))}'
        )
    if address.path is not None and not address.path.exists():
        raise VideoError(f"there is no file {address.shown}")
    if address.path is not None and address.path.is_file() and not address.path.stat().st_size:
        raise VideoError("the file is empty")

    def connected(format: str | None) -> Any:
        timeout = opening.wait, opening.silence
        return av.open(address.target, format=format, options=options, timeout=timeout, hwaccel=hardware)

    try:
        return connected(opening.format or address.format)
    except (av.FFmpegError, OSError, ValueError) as error:
        failed = reason(error, address, opening.wait, "answer")
    answer = look(address, opening.wait) if failed.may_be_explained else None
    if answer is None:
        raise failed
    form = opening.format or ("mjpeg" if answer.holds_jpegs else None)
    login = None
    if address.kind is Kind.HTTP and not answer.redirected and answer.challenges.refusal is not None:
        login = answer.challenges.authorization(address, "GET", answer.path)
    if login is not None:
        # Once: an authorization is valid for one request.
        options["headers"] = f"{options.get('headers', '')}Authorization: {login}\r\n"
    if login is not None or form != opening.format:
        try:
            return connected(form)
        except (av.FFmpegError, OSError, ValueError) as error:
            failed = reason(error, address, opening.wait, "answer")
    elif address.has_login:
        failed = answer.challenges.refusal or failed
    raise VideoError(PAGE) if answer.is_page and answer.status == 200 else failed


def _accelerator(kind: str) -> Any:
    """The device that decodes; `None`, with a warning, where there is none. Raises `VideoError` for an unknown kind."""
    import av
    from av.codec.hwaccel import HWAccel, HWDeviceType

    known = [device.name for device in HWDeviceType if device.name != "none"]
    if kind not in known:
        raise VideoError(f'hardware: there is no "{kind}"{nearest(kind, known)}; there are {", ".join(known)}')
    try:
        # Tried before connecting to the camera: a later failure would look like one of the camera.
        HWAccel(kind).create(av.Codec("h264", "r"))
    except (av.FFmpegError, OSError, ValueError, NotImplementedError) as error:
        _log.warning("hardware: %s cannot be had here (%s): the CPU decodes", kind, type(error).__name__)
        return None
    return HWAccel(kind, allow_software_fallback=True)


def _clock(packet: av.Packet[Any]) -> float | None:
    """The time of the camera's clock, which libav computes from the sender reports of RTCP."""
    if not packet.has_sidedata("prft"):
        return None
    microseconds: int = struct.unpack_from("<q", bytes(packet.get_sidedata("prft")))[0]
    return microseconds / 1e6


def pyav() -> Any:
    """PyAV, imported when it is needed. Raises `MissingPackageError`."""
    try:
        import av
    except ImportError:
        raise MissingPackageError("av", "camera", "reading cameras and videos") from None
    return av
