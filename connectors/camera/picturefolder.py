"""`PictureFolder`: the pictures of a folder as a video."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from connectors.camera.address import Address
from connectors.camera.video import Opening, Picture, Video, VideoError, check_size, pyav, reason

SUFFIXES: Final = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
"""What counts as a picture."""
RATE: Final = 25.0
"""Pictures a second that the times in the stream are made of."""


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
        self._files = sorted(
            file
            for file in Path(address.target).iterdir()
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
        )
        self._next = 0
        if not self._files:
            raise VideoError(f"there is no picture in {address.shown}: {', '.join(sorted(SUFFIXES))}")

    def read(self) -> Sequence[Picture] | None:
        """As `Video.read`: the picture of the next file."""
        if self._next == len(self._files):
            return None
        file = self._files[self._next]
        self._next += 1
        try:
            return [self._picture(file)]
        except VideoError:
            self.corrupt += 1
            return []

    def close(self) -> None:
        """Nothing is open between two files."""

    def _picture(self, file: Path) -> Picture:
        av = pyav()
        try:
            with av.open(str(file)) as container:
                stream = container.streams.video[0]
                stream.codec_context.options = {"max_pixels": str(self._opening.max_pixels)}
                frame = next(container.decode(stream))
        except (av.FFmpegError, OSError, ValueError, IndexError, StopIteration) as error:
            raise reason(error, self._address, 0.0, "picture") from None
        self.size = frame.width, frame.height
        check_size(*self.size, self._opening.max_pixels)
        return Picture(frame, (self._next - 1) / RATE, None, time.time())
