"""`CameraBrowser`: opens cameras to check their pictures, for `streamer check --connect`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NoReturn

from connectors.browser import Browser, TopicReader
from connectors.camera.address import Kind
from connectors.camera.camera import CameraSettings
from connectors.camera.config import CameraSourceConfig
from connectors.camera.errors import VideoError
from connectors.camera.upright import Picture
from connectors.camera.video import open_video
from connectors.sink import Sink
from pipelines.errors import ConnectorError

_LOOK: Final = 3.0
"""Seconds of pictures that are looked at of a live camera: RTCP sender reports come about once a second."""
_MOST_AT_ONCE: Final = 8


class CameraBrowser(Browser):
    """The cameras of a source."""

    lists_topics = False

    def __init__(self, config: CameraSourceConfig, client: Mapping[str, Any]) -> None:
        """`client` is ignored: a camera has no client library."""
        self._name = config.label
        self._cameras = config.settings

    @property
    def address(self) -> str:
        return ", ".join(settings.address.shown for settings in self._cameras.values())

    def topics(self) -> dict[str, int]:
        """The cameras, each one lane."""
        return dict.fromkeys(self._cameras, 1)

    def checked(self, wanted: Sequence[str]) -> str:
        """Codec, size, rate and clock of each camera. Raises `ConnectorError` if one of them gives no picture."""
        # Unlike a camera's own thread, the process waits for these to end.
        with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(self._cameras))) as pool:
            looks = dict(zip(self._cameras, pool.map(_seen, self._cameras.values()), strict=True))
        wrong = [f"{name}: {look}" for name, (good, look) in looks.items() if not good]
        right = [f"{name}: {look}" for name, (good, look) in looks.items() if good]
        if wrong:
            # Failures come first, to be found among a hundred cameras.
            raise ConnectorError("; ".join([*wrong, *([f"in order are {'; '.join(right)}"] if right else [])]))
        return "; ".join(right)

    def reader(self, topic: str, group: str) -> TopicReader:
        """Raises `ConnectorError`: there is nothing to read again."""
        self._refuse()

    def sink(self, topic: str, name: str) -> Sink:
        """Raises `ConnectorError`: nothing can be sent to a camera."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ConnectorError(f"{self._name}: the pictures of a camera can be seen by a service only")


def _seen(settings: CameraSettings) -> tuple[bool, str]:
    """Whether the camera gives pictures, and a text with its codec, size, rate and clock, or the failure."""
    began = time.monotonic()
    camera = settings.address.live and settings.address.kind is not Kind.GENERATED
    recorded = False
    try:
        video = open_video(settings.address, settings.opening)
        try:
            if settings.address.may_be_recorded:
                settings.check(live=video.live)
                recorded = not video.live
                camera = camera and video.live
            pictures: list[Picture] = []
            until = time.monotonic() + (_LOOK if camera else 0.0)
            patience = time.monotonic() + max(_LOOK, settings.opening.wait + settings.stall)
            needed = 1 if camera or video.rate else 3
            while time.monotonic() < (until if len(pictures) >= needed else patience):
                read = video.read()
                if read is None:
                    break
                pictures += read
            codec, announced = video.codec, video.rate
        finally:
            video.close()
    except VideoError as error:
        return False, str(error)
    if not pictures:
        within = f" within {time.monotonic() - began:.0f} s" if camera else " that can be decoded"
        return False, f"it opens, but gives no picture{within}"
    last = pictures[-1]
    rate = _rate(pictures) or announced
    said = [f"{codec} {last.frame.width}x{last.frame.height}", f"{rate:.0f} fps" if rate else "rate not known"]
    if camera:
        said.append(_clock(last, settings.clock_tolerance))
    if recorded:
        said.append("a recording, which is read once")
    return True, ", ".join(said)


def _rate(pictures: Sequence[Picture]) -> float | None:
    """Pictures a second, by their times in the stream, or by their receipt where the stream has no times."""
    times = [picture.seconds for picture in pictures if picture.seconds is not None] or [
        picture.receipt for picture in pictures
    ]
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 2 and times[-1] > times[0] else None


def _clock(picture: Picture, tolerance: float) -> str:
    if picture.clock is None:
        return "tells no time: pictures have that of their receipt"
    skew = picture.receipt - picture.clock
    if abs(skew) <= tolerance:
        return f"clock of the camera, {skew * 1000:.0f} ms before the receipt"
    return f"note: its clock is {skew:.0f} s behind and is ignored; set it by NTP"
