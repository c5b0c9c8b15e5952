"""`Camera`: one camera and its thread, which connects, reads, decodes, and comes back."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from threading import Condition
from typing import TYPE_CHECKING, Final

from connectors.backoff import Backoff
from connectors.camera.address import Address, Kind
from connectors.camera.clock import Stamps
from connectors.camera.errors import CutError, RefusedError, SilentError, VideoError
from connectors.camera.footage import BACK, Footage
from connectors.camera.frame import Facts, Frame
from connectors.camera.health import Health, State
from connectors.camera.rate import Rate
from connectors.camera.upright import Picture
from connectors.camera.video import Opening, Video, open_video
from connectors.camera.waiting import Cause, Policy, Waiting
from connectors.camera.watch import Watch
from connectors.camera.web.recording import RATE, Place

if TYPE_CHECKING:
    import av

_log = logging.getLogger(__name__)

_LEAST_WAIT: Final = 0.5
_MOST_WAIT: Final = 30.0
_IN_VAIN: Final = 3
"""How often a recording is opened without giving a picture before it is given up."""
_LONG: Final = 10.0
"""Seconds between two pictures of a recording that is read in real time, from which on the log says so."""


@dataclass(frozen=True, slots=True)
class CameraSettings:
    """How a camera is read; the defaults are those of the service file."""

    address: Address
    opening: Opening
    policy: Policy | None = None
    """What happens to pictures that come too fast; `None`: `policy_of` decides by the kind of camera."""
    max_frames: int = 8
    max_age: float | None = None
    fps: float | None = None
    size: tuple[int, int] | None = None
    """Width and height that pictures are scaled to."""
    loop: bool = False
    real_time: bool = False
    """Whether a file is read as fast as it was recorded, rather than as fast as it can be."""
    stall: float = 5.0
    frozen: float = 60.0
    clock_tolerance: float = 5.0

    def policy_of(self, *, live: bool) -> Policy:
        """The policy, unless it is given: `latest` for pictures that come at their own time, `block` for others."""
        return self.policy or ("latest" if live or self.real_time else "block")

    def check(self, *, live: bool) -> None:
        """Raise `UnfitError` if these settings are for recordings, and the open stream is live."""
        given = {"policy: block": self.policy == "block", "loop": self.loop, "real_time": self.real_time}
        names = " and ".join(name for name, is_given in given.items() if is_given)
        if live and names:
            raise UnfitError(
                f"{names}: for files and recordings, and this is a live stream, which has no end; leave it out"
                f"{', or write `policy: fifo`' if self.policy == 'block' else ''}"
            )


class UnfitError(VideoError):
    """The settings of a camera do not fit what it turned out to be. Another attempt would bring the same."""


class _StalledError(Exception):
    """The connection is up, but gives no usable pictures."""


class Camera:
    """Reads one camera in a thread of its own, which alone opens, reads and closes it.

    A live stream is read on, whether or not its frames are polled: a camera ends sessions that are not read. The thread
    ends when the camera is stopped, or a file is at its end. `arrived` is notified when frames or states change.

    What a URL gives may turn out to be a recording when it is open. It is read as a file from then on, to its end:
    where its connection breaks, another one goes on behind the last picture.
    """

    def __init__(self, name: str, settings: CameraSettings, arrived: Condition) -> None:
        self.name = name
        self.settings = settings
        self.address = settings.address
        self.live = settings.address.live
        """Whether its pictures come at their own time, as far as that is known."""
        self.health = Health(settings.stall if self.live else 0.0)
        policy = settings.policy_of(live=self.live)
        self.waiting = Waiting(policy, settings.max_frames, settings.max_age, arrived, self._not_run)
        self.connection = 0
        """The number of the present connection; 0: there is none."""
        self.footage: Footage | None = None
        """Keeps its packets for clips; set before it starts."""
        self._arrived = arrived
        self._stop = threading.Event()
        # Numbers begin at the time in milliseconds. A camera gives fewer than 1000 pictures a second, so no number is
        # used again after a restart.
        self._number = int(time.time() * 1000) if self.live else 0
        self._backoff = Backoff(_LEAST_WAIT, _MOST_WAIT)
        self._opening = settings.opening
        self._place: Place | None = None
        self._taker: _Taker | None = None
        self._in_vain = 0
        self.rate = None if settings.fps is None else Rate(settings.fps)
        self.played = 0.0
        """Seconds of a file that were read so far, over all repetitions. For the camera's thread."""
        self.began: float | None = None
        """When a file that is read in real time would have begun, on `time.monotonic`. For the camera's thread."""
        self._thread = threading.Thread(target=self._run, name=f"camera {name}", daemon=True)

    def start(self) -> None:
        """Start the camera's thread, which connects."""
        self._thread.start()

    def stop(self) -> None:
        """Read no more. The thread notices it when libav returns, at the latest after its time limits."""
        self._stop.set()
        with self._arrived:
            self.waiting.close()

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end. Returns whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def policy(self) -> Policy:
        """What happens to pictures that come faster than they are polled."""
        return self.waiting.policy

    @property
    def over(self) -> bool:
        """Whether no picture will come any more, apart from those that wait."""
        return self.health.state in (State.ENDED, State.FAILED)

    def next_number(self) -> int:
        """Reserve the number of the next picture. Called by the camera's thread only."""
        self._number += 1
        return self._number - 1

    def drop(self, cause: Cause, count: int = 1) -> None:
        """Count pictures that were dropped. For the camera's thread: it takes the lock, as other threads count drops
        too."""
        with self._arrived:
            self.health.drop(cause, count)

    def _not_run(self, cause: Cause, frame: Frame) -> None:
        """A frame that waited was dropped. The lock is held."""
        self.health.drop(cause)
        if self.footage is not None:
            self.footage.dropped(frame.facts.number)

    def _run(self) -> None:
        try:
            self._read_until_stopped()
        finally:
            if self.footage is not None:
                self.footage.end()

    def _read_until_stopped(self) -> None:
        while not self._stop.is_set():
            self._becomes(State.CONNECTING)
            before = self.health.pictures
            refused = False
            hopeless = self.address.path is not None
            went_on = self._place is not None
            try:
                self._read_to_the_end()
                trouble = "the camera ended the stream" if self.live else ""
            except CutError as error:
                trouble = str(error)
                if went_on and self.health.pictures == before:
                    _log.warning("camera %s: %s; read again, it is the same: that is its end", self.name, trouble)
                    trouble, self._place = "", None
            except (_StalledError, SilentError) as error:
                trouble = str(error)
                if self.connection:
                    self._becomes(State.STALLED, trouble)
            except VideoError as error:
                trouble, refused = str(error), isinstance(error, RefusedError)
                hopeless = hopeless or isinstance(error, UnfitError) or self._in_vain >= _IN_VAIN
            except Exception as error:  # noqa: BLE001 - no error of one camera may disturb the others
                trouble = self.address.scrubbed(f"{type(error).__name__}: {error}")
            gave_nothing = self.health.pictures == before and not went_on
            if not trouble and gave_nothing and not self._stop.is_set() and self.address.kind is not Kind.FOLDER:
                trouble, hopeless = "it ended without a picture that can be decoded", True
            with self._arrived:
                self.connection = 0
            if not trouble and (gave_nothing or not self.settings.loop):
                self._becomes(State.ENDED)
                return
            if trouble and hopeless:
                _log.error("camera %s: %s: %s", self.name, self.address.shown, trouble)
                self._becomes(State.FAILED, trouble)
                return
            if trouble and not self._stop.is_set():
                self._wait(trouble, self._backoff.longest() if refused else self._backoff.wait())

    def _wait(self, trouble: str, seconds: float) -> None:
        _log.warning("camera %s: %s; connects again in %.1f s", self.name, trouble, seconds)
        self._becomes(State.BACKOFF, trouble)
        self._stop.wait(seconds)

    def _read_to_the_end(self) -> None:
        video = open_video(self.address, self._opening, self.footage, self._place)
        try:
            self._know(video)
            if not self._stop.is_set():
                self._read(video)
        finally:
            self._place = video.place
            # To find it out again would take as long again.
            self._opening = replace(self._opening, format=self._opening.format or video.format)
            video.close()
        self._place = None

    def _know(self, video: Video) -> None:
        """Note whether the open stream is live or a recording."""
        if self.address.may_be_recorded:
            self.settings.check(live=video.live)
        if video.live or not self.live:
            return
        if self.health.connections:
            # The playlist of a live stream is complete when the stream is over.
            raise VideoError("its live stream is over, and what it gives now is the recording; it waits for the next")
        with self._arrived:
            self.live = False
            self.health.stall = 0.0
            self.waiting.choose(self.settings.policy_of(live=False))
            self._number = 0
            if self.footage is not None:
                self.footage.live = False

    def _read(self, video: Video) -> None:
        live = self.live
        generated = self.address.kind is Kind.GENERATED
        # Some test pictures never change.
        watch = Watch(self.settings.stall, 0.0 if generated else self.settings.frozen) if live else None
        if self._taker is None or self._place is None:
            self._taker = _Taker(self, video, paced=self.settings.real_time or generated)
        taker = self._taker
        taker.video = video
        if not live:
            self._in_vain += 1
        corrupt, polled = 0, False
        while not self._stop.is_set():
            pictures = video.read()
            if video.polled and not polled:
                # Each request has a time limit, and there may be long pauses between two.
                polled, watch = True, Watch(0.0, self.settings.frozen)
                self.health.stall = self.settings.stall + 1.0 / (video.rate or RATE)
            if video.corrupt > corrupt:
                self.drop("corrupt", video.corrupt - corrupt)
                corrupt = video.corrupt
            if pictures is None:
                return
            trouble = watch.trouble(corrupt) if watch is not None and not pictures else None
            for picture in pictures:
                if not self.connection:
                    self._connected(video)
                if watch is not None:
                    trouble = trouble or watch.picture(picture.frame)
                taker.take(picture, self._stop)
            if pictures:
                self._in_vain = 0
            if watch.lasts if watch is not None else pictures:
                self._backoff.reset()
            if trouble is not None:
                raise _StalledError(trouble)

    def _connected(self, video: Video) -> None:
        health = self.health
        health.connected(again=bool(health.connections) and (self.live or self._place is not None))
        health.codec, health.size = video.codec, video.size
        if health.reason is not None:
            _log.info("camera %s: pictures come again", self.name)
        with self._arrived:
            self.connection = health.connections
        self._becomes(State.LIVE)

    def _becomes(self, state: State, reason: str | None = None) -> None:
        with self._arrived:
            self.health.becomes(state, reason)
            self.waiting.last = self.over
            self._arrived.notify_all()


class _Taker:
    """Takes the pictures of one connection, or of all that a recording needs: counts them, chooses by rate, scales
    them, and queues them for the source."""

    def __init__(self, camera: Camera, video: Video, *, paced: bool) -> None:
        self._camera = camera
        self.video = video
        self._paced = paced
        self._stamps = Stamps(camera.health, camera.settings.clock_tolerance, live=camera.live)
        self._period = 1.0 / (video.rate or RATE)
        self._before = camera.played
        self._first: float | None = None
        self._latest = 0.0
        self._scaler: object | None = None
        self._measured: tuple[int, int, str] | None = None
        self._byte_count = 0

    def take(self, picture: Picture, stop: threading.Event) -> None:
        """Queue the picture for the source, if it is wanted; a file that is read in real time waits for the picture's
        time."""
        camera = self._camera
        seconds = self._seconds(picture)
        if self._paced and seconds is not None:
            self._wait(seconds, stop)
            picture = picture._replace(receipt=time.time())
        camera.health.picture()
        camera.health.size = self.video.size
        number = camera.next_number()
        timestamp = self._stamps.of(picture, seconds)
        at = time.monotonic() if seconds is None else seconds
        if camera.rate is not None and not self.video.polled and not camera.rate.wants(at):
            camera.drop("rate")
            return
        if camera.footage is not None:
            camera.footage.picture(number, picture.at)
        frame = self._scaled(picture.frame)
        camera.waiting.put(
            Frame(
                frame,
                self._bytes_of(frame),
                Facts(
                    number=number,
                    connection=camera.connection,
                    timestamp=timestamp,
                    receipt=round(picture.receipt * 1000),
                    clock=None if picture.clock is None else round(picture.clock * 1000),
                    pts=picture.seconds,
                ),
            )
        )

    def _seconds(self, picture: Picture) -> float | None:
        """The time of the picture in the stream; of a file that is repeated it goes on with each repetition, and of one
        that was joined from several with each of these."""
        if self._camera.live or picture.seconds is None:
            return picture.seconds
        if self._first is None:
            self._first = picture.seconds
        seconds = self._before + picture.seconds - self._first
        if seconds < self._latest - BACK:
            self._first -= self._latest + self._period - seconds
            seconds = self._latest + self._period
        self._latest = max(self._latest, seconds)
        self._camera.played = max(self._camera.played, seconds + self._period)
        return seconds

    def _wait(self, seconds: float, stop: threading.Event) -> None:
        camera, now = self._camera, time.monotonic()
        if camera.began is None or now - (camera.began + seconds) > 1.0:
            # A reader that has fallen behind goes on at the normal rate from here, and does not rush to catch up.
            camera.began = now - seconds
        left = camera.began + seconds - now
        if left >= _LONG:
            until = time.time() + left
            _log.warning(
                "camera %s: the next picture was recorded %.0f s later, and real_time waits for it, until %s",
                camera.name, left, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(until)),
            )  # fmt: skip
            camera.health.waits_until = until
        stop.wait(max(0.0, left))
        camera.health.waits_until = None

    def _bytes_of(self, frame: av.VideoFrame) -> int:
        """Bytes of the picture in memory; the same for pictures of one size and format."""
        measured = frame.width, frame.height, frame.format.name
        if measured != self._measured:
            self._byte_count = sum(plane.buffer_size for plane in frame.planes)
            self._measured = measured
        return self._byte_count

    def _scaled(self, frame: av.VideoFrame) -> av.VideoFrame:
        size = self._camera.settings.size
        if size is None or size == (frame.width, frame.height):
            return frame
        from av.video.reformatter import Interpolation, VideoReformatter

        if not isinstance(self._scaler, VideoReformatter):
            self._scaler = VideoReformatter()
        # libswscale makes no colours of a palette.
        made = "bgr24" if frame.format.has_palette else None
        # One thread: with more, cameras would compete for the cores.
        return self._scaler.reformat(frame, *size, made, interpolation=Interpolation.FAST_BILINEAR, threads=1)
