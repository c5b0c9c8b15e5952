"""`Frame`: a picture of a camera on its way to a record."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

from pipelines.values import Image

COLUMNS: Final = ("pts", "clock", "receipt", "epoch", "drops")
"""Properties of a frame besides its camera, number and timestamp; also the names of its headers."""


@dataclass(slots=True)
class Facts:
    """The metadata of a picture. They may outlive the picture itself."""

    number: int
    """The number of the picture of its camera, which counts dropped pictures too. No number is used twice."""
    connection: int
    """The number of the connection to the camera, from 1."""
    timestamp: int
    """Milliseconds since 1970: by the camera's clock if it can be believed, else when it was received."""
    receipt: int
    """When its data were received, in milliseconds since 1970."""
    clock: int | None
    """When the camera took it, by its own clock, in milliseconds since 1970."""
    pts: float | None
    """Presentation time, seconds from the beginning of the stream."""
    drops: int = 0
    """Pictures of this camera that were dropped since the previous delivered picture."""


@dataclass(slots=True)
class Frame:
    """A picture with its metadata."""

    picture: Any
    """The decoded picture, or another form of a picture that an `Image` can be made of."""
    byte_count: int
    facts: Facts
    at: float = field(default_factory=time.monotonic)
    """When it was decoded, on `time.monotonic`."""
    _image: Image | None = field(default=None, init=False, repr=False)

    @property
    def image(self) -> Image:
        """The picture as an image, which copies nothing before a step asks for pixels.

        Made on first access: a frame that a newer one replaces needs none.
        """
        if self._image is None:
            self._image = Image.create(self.picture)
        return self._image

    def payload(self) -> bytes:
        """The picture as a JPEG file, for dead letters. Raises `MissingPackageError` without OpenCV."""
        return self.image.get_as("jpeg")
