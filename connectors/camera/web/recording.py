"""`RecordingReading`: the pictures of a recording that the network sends, over all the connections that it needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from connectors.camera.errors import CutError

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.stream import VideoStream

    from connectors.camera.upright import Picture

RATE: Final = 25.0
"""Pictures a second of recordings that hold no times."""
_SHORT: Final = 1.0
"""Seconds by which the pictures of a whole recording may end before it does, as its sound may be longer."""
_GAP: Final = 0.25
"""Seconds without a picture in HLS that may be a part that could not be loaded, which libav passes over."""


class Place(NamedTuple):
    """How far a recording was read, to go on from there on another connection."""

    pictures: int
    """The number of pictures that were read."""
    seconds: float | None
    """The time of the last one in the stream; `None` if its pictures cannot be found again by their times."""
    own_gaps: bool = False
    """Whether pauses between pictures belong to the recording: they were there at a second reading, too."""


class RecordingReading:
    """A connection to a recording. It goes on behind `after`, where an earlier connection was cut."""

    def __init__(
        self, container: InputContainer, stream: VideoStream, after: Place | None, *, keyframes_only: bool
    ) -> None:
        self.place = after
        """How far it was read."""
        self.begun = after is None
        """Whether pictures come that were not read before."""
        self._after = after
        self._container = container
        self._stream = stream
        self._period = 1.0 / float(stream.average_rate or RATE)
        self._sought = False
        self._passed = 0
        self._cut: CutError | None = None
        self._looks_for_gaps = is_playlist(container) and not keyframes_only

    def seek(self) -> bool:
        """Go to the key frame before the last picture that was read; whether that can be done."""
        import av

        after = self._after
        if after is None or after.seconds is None or self._stream.time_base is None:
            return False
        try:
            self._container.seek(round(after.seconds / self._stream.time_base), stream=self._stream)
        except (av.FFmpegError, OSError, ValueError):
            return False
        self._sought = True
        return True

    def missed(self, first: Picture | None) -> bool:
        """Whether `seek` led behind the place: libav may miss it where there is no index. `first`: the first picture
        that came, if one did."""
        after = self._after
        if not self._sought or self.begun or self._passed or after is None or after.seconds is None:
            return False
        return first is None or first.seconds is None or first.seconds > after.seconds

    def unread(self, pictures: Sequence[Picture]) -> Sequence[Picture]:
        """The pictures that were not read on an earlier connection, up to a gap, which `check` reports."""
        new: list[Picture] = []
        for picture in pictures:
            if not self.begun and self._was_read(picture):
                self._passed += 1
            elif self._cut is None and self._goes_on_with(picture):
                new.append(picture)
        return new

    def check(self) -> None:
        """Raise `CutError` if pictures are missing behind the last one."""
        if self._cut is not None:
            raise self._cut

    def check_end(self) -> None:
        """Raise `CutError` if the recording goes on behind the last picture."""
        end = self._end()
        reached = None if self.place is None else self.place.seconds
        if end is not None and reached is not None and reached + self._period + _SHORT < end:
            raise CutError(f"the recording breaks off {end - reached:.0f} s before its end")

    def _was_read(self, picture: Picture) -> bool:
        after = self._after
        if after is None:
            return False
        if self._sought and after.seconds is not None and picture.seconds is not None:
            return picture.seconds <= after.seconds
        return self._passed < after.pictures

    def _goes_on_with(self, picture: Picture) -> bool:
        """Note the picture as read, unless some are missing before it."""
        before, seconds = self.place, picture.seconds
        last = -math.inf if before is None else before.seconds
        own_gaps = before is not None and before.own_gaps
        rise = 0.0 if seconds is None or last is None else seconds - last
        if before is not None and not own_gaps and self._looks_for_gaps and rise > max(_GAP, 3 * self._period):
            if self.begun:
                self._cut = CutError(f"{rise:.1f} s of the recording are missing")
                return False
            # Another connection has the same pause.
            own_gaps = True
        self.begun = True
        self.place = Place(1 if before is None else before.pictures + 1, seconds if rise > 0 else None, own_gaps)
        return True

    def _end(self) -> float | None:
        """When the pictures of the recording end, in seconds of the stream; `None` if it does not say so."""
        stream, container = self._stream, self._container
        if stream.duration is not None and stream.time_base is not None:
            return float(((stream.start_time or 0) + stream.duration) * stream.time_base)
        return None if container.duration is None else ((container.start_time or 0) + container.duration) / 1e6


def has_end(container: InputContainer) -> bool:
    """Whether what the network sends is a recording: a file of known length, or a playlist that is complete.

    Streams of JPEG pictures are none: some cameras make up a length for theirs. A fragmented MP4 file tells the
    duration of its first part only, as live streams in that form do.
    """
    name = container.format.name
    if shows_pictures(name):
        return False
    if container.size > 0 and not is_playlist(container):
        return True
    video = container.streams.video
    return bool(container.duration) and ("mp4" not in name or bool(video and video[0].frames))


def shows_pictures(format: str) -> bool:
    """Whether libav reads pictures' files with this format: a single one, or one after the other."""
    return format.endswith("_pipe") or format in ("mpjpeg", "mjpeg", "image2")


def is_playlist(container: InputContainer) -> bool:
    """Whether it is HLS, whose duration is known once the playlist is complete (`#EXT-X-ENDLIST`)."""
    return container.format.name == "hls"
