"""`VideoWriter`: writes the pictures of one camera as video, in a separate thread."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from connectors.records import Ints
from connectors.view.config import VideoSinkConfig
from connectors.view.encoder import added, unwritable
from connectors.view.picture import Pixels, pixels_of
from connectors.view.result import Shown
from pipelines.errors import ConnectorError, DataError, MissingPackageError

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

_log = logging.getLogger(__name__)

_MILLISECONDS: Final = Fraction(1, 1000)
_BT_601: Final = 6
"""How libswscale makes the colours of a video from those of a picture, as H.273 numbers it."""
_LIMITED: Final = 1
"""Limited colour range: luma from 16 to 235."""
_SET_BACK: Final = 1000
"""Milliseconds by which a picture is older than the one before if a clock was set back."""
_AGAIN: Final = 5.0
"""Seconds after which a peer that is away is tried again."""
_FORMATS: Final = {"rtmp": "flv", "rtmps": "flv", "rtsp": "rtsp", "rtsps": "rtsp", "srt": "mpegts", "udp": "mpegts"}
_FILE_OPTIONS: Final = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "flush_packets": "1"}
"""With these options the file can be played up to the last written picture, even after a crash."""


class VideoWriter:
    """Takes pictures of one camera, and encodes them in its own thread, in order.

    `target` returns the destination: the path of a new file, or a URL. Another file begins when the size of pictures
    changes. A file that cannot be written is a permanent error; a peer that is away is tried again every few seconds,
    and pictures that come meanwhile are dropped and counted. The time of a picture is that of its record.
    """

    def __init__(self, name: str, target: Callable[[], Path | str], config: VideoSinkConfig) -> None:
        self.failure: str | None = None
        """Why writing has ended; `None` if it has not."""
        self.down: str | None = None
        """Why the peer cannot be reached at present."""
        self.written = 0
        self.passed_over = 0
        self._name = name
        self._target = target
        self._config = config
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Shown, Ints, float]] = deque()
        self._busy = False
        self._done: list[Ints] = []
        self._closing = False
        self._container: OutputContainer | None = None
        self._stream: VideoStream | None = None
        self._began = 0
        self._last = -1
        self._try_at = 0.0
        self._where: Path | str = ""
        """Where the last video was begun."""
        self._thread = threading.Thread(target=self._run, name=f"video {name}", daemon=True)
        self._thread.start()

    def put(self, shown: Shown, rows: Ints, deadline: float) -> bool:
        """Queue a picture, waiting for room until `deadline` (`time.monotonic`). Returns whether there was room."""
        with self._changed:
            self._changed.wait_for(self._has_room, max(deadline - time.monotonic(), 0.0))
            if not self._has_room():
                return False
            self._waiting.append((shown, rows, time.time()))
            self._changed.notify_all()
            return True

    def wait(self, deadline: float) -> bool:
        """Wait until all queued pictures are written. Returns whether they are at `deadline`."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._waiting or self._busy) or self.failure is not None,
                max(deadline - time.monotonic(), 0.0),
            )

    def done(self) -> list[Ints]:
        """The rows whose pictures were written or dropped since the last call."""
        with self._changed:
            done, self._done = self._done, []
        return done

    def close(self, timeout: float) -> bool:
        """Write the waiting pictures, and finish the file. Returns whether that was done in time."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _has_room(self) -> bool:
        return len(self._waiting) < self._config.queue or self.failure is not None

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._waiting or self._closing)
                    if not self._waiting:
                        break
                    shown, rows, received = self._waiting.popleft()
                    self._busy = True
                self._write(shown, received)
                with self._changed:
                    self._done.append(rows)
                # The variable would keep a frame in memory while the thread waits.
                del shown
        except Exception as error:  # noqa: BLE001 - the sink raises it as `failure`
            self.failure = self._said(error)
        finally:
            self._finish()
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _write(self, shown: Shown, received: float) -> None:
        try:
            pixels = pixels_of(shown, self._config.width, boxes=self._config.draw)
        except (DataError, MissingPackageError) as error:
            if isinstance(error, MissingPackageError):
                raise
            self.passed_over += 1
            _log.warning("a picture of %s cannot be written: %s", self._name, error)
            return
        stamp = round(received * 1000) if shown.timestamp is None else shown.timestamp
        try:
            if not self._is_open(pixels):
                self.passed_over += 1
                return
            self._encode(pixels, stamp)
        except OSError as error:
            # PyAV's errors are of these classes, too. Their text may hold the URL, and with it a login.
            if not isinstance(self._where, str):
                raise
            self._lost(error)
            self.passed_over += 1

    def _is_open(self, pixels: Pixels) -> bool:
        """Open the file or connection, if it is time to, and anew if the picture has another size. Returns whether it
        is open."""
        size = pixels.shape[1], pixels.shape[0]
        if self._stream is not None and (self._stream.width, self._stream.height) != size:
            self._finish()
        if self._stream is not None:
            return True
        if time.monotonic() < self._try_at:
            return False
        self._where = self._target()
        self._open(*size)
        self.down = None
        return True

    def _open(self, width: int, height: int) -> None:
        av = _pyav()
        where = self._where
        options = dict(_FILE_OPTIONS) if isinstance(where, Path) and where.suffix in (".mp4", ".mov") else {}
        kind = None if isinstance(where, Path) else _FORMATS[where.partition("://")[0].lower()]
        if isinstance(where, Path):
            where.parent.mkdir(parents=True, exist_ok=True)
        timeout = None if isinstance(where, Path) else 5.0
        config = self._config
        ending = where.suffix if isinstance(where, Path) else f".{kind}"
        rate = Fraction(config.fps).limit_denominator(1000)
        try:
            self._container = av.open(str(where), "w", format=kind, options=options, timeout=timeout)
            stream: Any = added(self._container, config.encoder, rate, dict(config.options), ending)
        except ValueError as error:
            problem = unwritable(config.encoder, ending) if isinstance(where, Path) else str(error)
            if problem is None:
                raise
            raise ConnectorError(problem) from None
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        # Players take larger videos that say nothing for BT.709, and show other colours.
        stream.codec_context.colorspace, stream.codec_context.color_range = _BT_601, _LIMITED
        stream.codec_context.time_base = _MILLISECONDS
        self._stream = stream
        self._began, self._last = -1, -1

    def _encode(self, pixels: Pixels, stamp: int) -> None:
        assert self._stream is not None
        assert self._container is not None
        if self._began < 0:
            self._began = stamp
        frame = _pyav().VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="bgr24")
        if stamp < self._began + self._last - _SET_BACK:
            # A clock was set back, or a film begins anew: the video goes on with the next picture.
            self._began = stamp - self._last - round(1000 / self._config.fps)
        # Times in the video have to rise, even if a picture is a little late.
        self._last = max(stamp - self._began, self._last + 1)
        frame.pts, frame.time_base = self._last, _MILLISECONDS
        for packet in self._encoded(self._stream, frame):
            self._container.mux(packet)
        self.written += 1

    def _encoded(self, stream: VideoStream, frame: Any) -> list[Any]:
        """The packets of a frame; the first one opens the encoder."""
        try:
            return list(stream.encode(frame))
        except _pyav().error.ArgumentError:
            config = self._config
            options = ", ".join(f"{name}: {value}" for name, value in config.options.items())
        raise ConnectorError(
            f'the encoder "{config.encoder}" refuses pictures of {stream.width} x {stream.height} with the options '
            f"{{{options}}}; change `options` or `encoder` of the sink"
        )

    def _lost(self, error: OSError) -> None:
        reason = _error_text(error)
        if self.down is None:
            _log.warning("the video of %s cannot be sent, trying again: %s", self._name, reason)
        self.down = reason
        self._try_at = time.monotonic() + _AGAIN
        self._finish()

    def _finish(self) -> None:
        container, stream = self._container, self._stream
        self._container = self._stream = None
        if container is None:
            return
        try:
            if stream is not None and self._last >= 0:
                for packet in stream.encode(None):
                    container.mux(packet)
            container.close()
        except Exception as error:  # noqa: BLE001 - a peer may be gone; an error of a file is reported below
            if isinstance(self._where, Path):
                self.failure = self.failure or self._said(error)

    def _said(self, error: Exception) -> str:
        """The error in words, with the file; a URL may hold a login."""
        return f"{self._where}: {_error_text(error)}" if isinstance(self._where, Path) else _error_text(error)


def _error_text(error: Exception) -> str:
    if isinstance(error, (ConnectorError, MissingPackageError, DataError)):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return str(error.strerror)
    return type(error).__name__


def _pyav() -> Any:
    try:
        import av
    except ImportError:
        raise MissingPackageError("av", "camera", "writing video") from None
    return av
