"""`PictureFolder`: the pictures of a folder as a video."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from connectors.camera.address import Address
from connectors.camera.errors import VideoError, reason
from connectors.camera.upright import Picture, Upright
from connectors.camera.video import Opening, Video, check_size, decoder_options, pyav
from connectors.camera.web.recording import RATE
from pipelines.values.imageheader import SUFFIXES

_log = logging.getLogger(__name__)


def pictures(folder: Path) -> list[Path]:
    """The files of the folder that have a picture's suffix, in the order of names; hidden ones are left out."""
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and not file.is_dir()
    )


class PictureFolder(Video):
    """Each file that has a picture's suffix is a picture, in the order of names; hidden files are left out.

    Raises `VideoError` for a folder that has none. A file that is no picture, or too large a one, is counted as corrupt
    and passed over.
    """

    codec = "pictures"
    size = (0, 0)
    rate = None

    def __init__(self, address: Address, opening: Opening) -> None:
        self._address = address
        self._opening = opening
        self._files = pictures(Path(address.target))
        self._next = 0
        self._upright = Upright()
        if not self._files:
            raise VideoError(
                f"there is no picture in {address.shown}, no file that ends with {' '.join(sorted(SUFFIXES))}"
            )

    def read(self) -> Sequence[Picture] | None:
        """As `Video.read`: the picture of the next file."""
        if self._next == len(self._files):
            return None
        file = self._files[self._next]
        self._next += 1
        try:
            return [self._picture(file)]
        except VideoError as error:
            self.corrupt += 1
            _log.warning("%s is passed over: %s", file, error)
            return []

    def close(self) -> None:
        """Does nothing: no file is open between two reads."""

    def _picture(self, file: Path) -> Picture:
        av = pyav()
        try:
            with av.open(str(file)) as container:
                stream = container.streams.video[0]
                stream.codec_context.options = decoder_options(stream.codec_context.name, self._opening, live=False)
                frame = next(container.decode(stream))
            check_size(frame.width, frame.height, self._opening.max_pixels)
            frame = self._upright.turned(frame, file.read_bytes)
        except (av.FFmpegError, OSError, ValueError, IndexError, StopIteration) as error:
            raise reason(error, self._address, 0.0, "picture") from None
        self.size = frame.width, frame.height
        return Picture(frame, (self._next - 1) / RATE, None, time.time())
