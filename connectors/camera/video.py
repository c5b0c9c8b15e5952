"""`Video`: an open stream of pictures, and the errors of libav in words."""

from __future__ import annotations

import errno
import logging
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from connectors.camera.address import Address, Kind
from connectors.camera.upright import Upright
from pipelines.errors import ConnectorError, MissingPackageError, nearest

if TYPE_CHECKING:
    import av
    from av.video.stream import VideoStream

    from connectors.camera.footage import Footage

_log = logging.getLogger(__name__)

_AS_WRITTEN: Final = {"correct_ts_overflow": "0"}
"""Times are read as they were written. libav otherwise takes any that go back by a minute, as in recordings that were
joined, for those of a clock that has run over, and adds 26.5 hours; of either kind times go on (`Camera`)."""
_PATIENT: Final = {"analyzeduration": "5000000", "probesize": "5000000"}
_SNAPSHOT: Final = "its URL gives one picture and ends: take the URL of its video stream"
RATE: Final = 25.0
"""Pictures a second of files that hold no times."""
_REMEMBERED: Final = 64
"""The number of packets whose time of receipt is kept until the decoder outputs their picture."""


class VideoError(ConnectorError):
    """The stream gives no pictures. The text says why, and holds neither URL nor login."""


class SilentError(VideoError):
    """The stream is open, and nothing came within the time that was given."""


class RefusedError(VideoError):
    """The camera refuses the login. Many cameras lock out a client that tries again soon."""


class Picture(NamedTuple):
    """One decoded picture."""

    frame: av.VideoFrame
    seconds: float | None
    """Its time in the stream; `None` if the stream has no times, or libav made them up."""
    clock: float | None
    """When the camera took it, by its own clock, in seconds since 1970; `None` if the camera does not send its time."""
    receipt: float
    """When its data were received, in seconds since 1970."""
    at: float = 0.0
    """When its data were received, on the line of time of `Footage`; 0 without footage."""


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


class Video(ABC):
    """A stream that is open; one thread uses it, from the opening to `close`."""

    codec: str
    size: tuple[int, int]
    """Width and height, 0 where they are not known yet."""
    rate: float | None
    """Pictures a second as the stream announces them; cameras are often wrong about it."""
    corrupt: int = 0
    """Packets, or files, that could not be decoded."""

    @abstractmethod
    def read(self) -> Sequence[Picture] | None:
        """The pictures of the next packet, often one, maybe none; `None` at the end.

        Raises `SilentError` if no data comes in time, `VideoError` for all else.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the stream and free its decoder."""


def open_video(address: Address, opening: Opening | None = None, footage: Footage | None = None) -> Video:
    """The stream at this address, at its beginning. Its packets are added to `footage`.

    Raises `VideoError`, and `MissingPackageError` without PyAV.
    """
    opening = opening or Opening()
    pyav()
    if address.kind is Kind.FOLDER:
        from connectors.camera.picturefolder import PictureFolder

        return PictureFolder(address, opening)
    video = Stream(address, opening, {}, footage)
    if not all(video.size) and address.live:
        # The short probe did not tell the size of its pictures.
        video.close()
        video = Stream(address, opening, _PATIENT, footage)
    return video


class Stream(Video):
    """A file, device or stream of the network, read by PyAV."""

    def __init__(
        self, address: Address, opening: Opening, further: Mapping[str, str], footage: Footage | None = None
    ) -> None:
        self._address = address
        self._opening = opening
        self._footage = footage
        self._errors = pyav().FFmpegError, OSError, ValueError
        self._upright = Upright()
        self._container = _opened(address, opening, further)
        self._timed = not _makes_up_times(self._container.format, live=address.live)
        # Only RTCP has the camera's time. To look for it in each packet takes as long as all else in `read`.
        self._clocked = address.kind is Kind.RTSP
        try:
            stream = self._chosen()
            if footage is not None:
                footage.begin(stream, timed=self._timed)
            self._packets: Iterator[av.Packet[Any]] = self._container.demux(stream)
        except BaseException:
            self.close()
            raise
        self._received: OrderedDict[int, tuple[float, float | None, float]] = OrderedDict()
        self._count = 0

    def read(self) -> Sequence[Picture] | None:
        """As `Video.read`."""
        try:
            packet = next(self._packets, None)
            failed = None
        except self._errors as error:
            failed = self._broken(error)
        if failed is not None:
            # Not raised inside `except`: the error of libav, which holds the URL, would be kept as its context.
            raise failed
        if packet is None:
            if self._is_snapshot:
                raise VideoError(_SNAPSHOT)
            return None
        receipt = time.time()
        clock = _clock(packet) if self._clocked else None
        at = 0.0 if self._footage is None else self._footage.add(packet, self._coded_size)
        if packet.pts is not None:
            self._received[packet.pts] = receipt, clock, at
            if len(self._received) > _REMEMBERED:
                self._received.popitem(last=False)
        try:
            frames = packet.decode()
        except self._errors:
            self.corrupt += 1
            return []
        return [self._picture(frame, receipt, clock, at) for frame in frames]

    def close(self) -> None:
        """As `Video.close`. Errors of a peer that is gone are ignored."""
        with suppress(Exception):
            self._container.close()

    @property
    def _is_snapshot(self) -> bool:
        """Whether the URL gave a picture's file, which libav shows as a video of one picture."""
        return self._address.kind is Kind.HTTP and self._count == 1 and _is_pipe(self._container.format)

    def _broken(self, error: Exception) -> VideoError:
        failed = reason(error, self._address, self._opening.silence, "data")
        return VideoError(_SNAPSHOT) if self._is_snapshot and not isinstance(failed, SilentError) else failed

    def _picture(self, frame: av.VideoFrame, receipt: float, clock: float | None, at: float) -> Picture:
        seconds = None if frame.pts is None or not self._timed else frame.time
        if seconds is None and not self._address.live:
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
        """The first video stream, ready to be decoded. The cover pictures of films and songs are none."""
        found = [one for one in self._container.streams.video if not _is_cover(one)]
        if not found:
            others = {"a cover picture" if one.type == "video" else one.type for one in self._container.streams}
            raise VideoError(f"there is no video in it{', only ' + ' and '.join(sorted(others)) if others else ''}")
        stream: VideoStream = found[0]
        _leave_out([one for one in self._container.streams if one is not stream])
        context = stream.codec_context
        if context is None:
            raise VideoError("its codec is not known to this libav")
        self.codec = context.name
        self.size = self._coded_size = context.width, context.height
        self.rate = None if stream.average_rate is None else float(stream.average_rate)
        check_size(*self.size, self._opening.max_pixels)
        # Threads that decode several frames at once deliver each as many frames late.
        stream.thread_type = "SLICE" if self._address.live else "AUTO"
        context.thread_count = self._opening.threads
        context.options = decoder_options(context.name, self._opening, live=self._address.live)
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
    return live and (Flags.no_timestamps in Flags(format.flags) or _is_pipe(format))


def _leave_out(streams: Iterable[av.stream.Stream]) -> None:
    """Streams that nobody reads: of HLS, the other sizes of a video would be loaded all the time."""
    from av.stream import Discard

    for stream in streams:
        stream.discard = Discard.all


def _is_cover(stream: VideoStream) -> bool:
    from av.stream import Disposition

    return bool(stream.disposition & Disposition.attached_pic)


def _is_pipe(format: av.ContainerFormat) -> bool:
    """Whether libav reads pictures' files that follow each other, or a single one."""
    return format.name.endswith("_pipe")


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
    try:
        return av.open(
            address.target,
            format=opening.format or address.format,
            options=options,
            timeout=(opening.wait, opening.silence),
            hwaccel=hardware,
        )
    except (av.FFmpegError, OSError, ValueError) as error:
        failed = reason(error, address, opening.wait, "answer")
    raise failed


def _accelerator(kind: str) -> Any:
    """The device that decodes; `None`, with a warning, where there is none. Raises `VideoError` for an unknown kind."""
    import av
    from av.codec.hwaccel import HWAccel, HWDeviceType

    known = [one.name for one in HWDeviceType if one.name != "none"]
    if kind not in known:
        raise VideoError(f'hardware: there is no "{kind}"{nearest(kind, known)}; there are {", ".join(known)}')
    try:
        # Tried before connecting to the camera: a later failure would look like one of the camera.
        HWAccel(kind).create(av.Codec("h264", "r"))
    except (av.FFmpegError, OSError, ValueError, NotImplementedError) as error:
        _log.warning("hardware: %s cannot be had here (%s): the CPU decodes", kind, type(error).__name__)
        return None
    return HWAccel(kind, allow_software_fallback=True)


def reason(error: Exception, address: Address, seconds: float, awaited: str) -> VideoError:
    """The error of libav in words. The error itself may not be shown: its text holds the URL with the login."""
    import av

    if isinstance(error, av.error.ExitError) and address.is_sent_here:
        return SilentError(f"nothing was sent to {address.shown} within {seconds:g} s: does the sender name this port?")
    if isinstance(error, av.error.ProtocolNotFoundError):
        return VideoError(
            f"the libav of this PyAV reads no {address.scheme}://; pass the stream on: "
            f"ffmpeg -i {address.shown} -c copy -f mpegts udp://127.0.0.1:5000, and write udp://127.0.0.1:5000 here"
        )
    if isinstance(error, av.error.ExitError):
        return SilentError(f"no {awaited} within {seconds:g} s")
    if isinstance(error, av.error.HTTPUnauthorizedError):
        another = (
            "another user name and password" if address.has_login else "a user name and a password: write both down"
        )
        return RefusedError(f"the camera wants {another} (401)")
    if isinstance(error, av.error.HTTPForbiddenError):
        return RefusedError("the camera forbids it to this user (403)")
    if getattr(error, "errno", None) == errno.EIO and address.host is not None and not _is_known(address.host):
        return VideoError(f'there is no host "{address.host}", or no name server that knows it')
    if getattr(error, "errno", None) == errno.EIO and address.kind is Kind.HTTP:
        # An answer that ends where libav expects more, and redirects without end.
        return VideoError(
            "the connection ended before a picture came: is this the URL of a video stream?"
            if awaited == "answer"
            else "the camera ended the stream"
        )
    for kind, words in (
        (av.error.HTTPNotFoundError, "the camera has no such stream (404): is the path of the URL right?"),
        (ConnectionRefusedError, "nothing listens at this address: connection refused"),
        (PermissionError, "this process may not read it"),
        (FileNotFoundError, "it is not there"),
        (
            av.error.InvalidDataError,
            f"its data are no {'picture' if address.kind is Kind.FOLDER else 'video'} that libav can read"
            f"{_CAUSES.get(address.kind, '')}",
        ),
        (
            av.error.ArgumentError,
            "libav refuses it: an unknown option, or a redirect to a protocol that is not allowed",
        ),
    ):
        if isinstance(error, kind):
            return VideoError(words)
    text = getattr(error, "strerror", None) or (str(error) if not isinstance(error, OSError) else type(error).__name__)
    return VideoError(address.scrubbed(str(text)))


_CAUSES: Final[Mapping[Kind, str]] = {
    Kind.RTSP: ": are the port and the path of the URL right?",
    Kind.HTTP: ": is the path of the URL right? A camera that sends JPEG pictures may need `format: mjpeg`",
    Kind.FILE: ": is the file cut short?",
}
"""What to look at when data are no video."""


def _is_known(host: str) -> bool:
    """Whether the host's name has an address; libav does not tell that from other troubles."""
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


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
