"""An image that is decoded and encoded only when somebody asks."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any, ClassVar, overload

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, MissingPackageError, WrongTypeError
from pipelines.values.imageheader import Header, check_png_chunks, read_header, sniff

Pixels = npt.NDArray[np.uint8]


class Image:
    """One picture: the bytes of an image file, an array of pixels, or both.

    `Image(source)` takes the bytes of a PNG, JPEG, BMP or GIF file, a path to one, or a uint8 array in the order
    height, width, channels: blue, green, red; or gray with one channel or none. Alpha is dropped. Bytes are not
    looked at before something is asked of them; the format is told by the content, whatever a label says.
    The picture does not change: arrays given out are read-only, and one given in must not be written to later.

    Two images are equal if their PNG bytes are. Decoding and encoding need OpenCV (extra `image`).
    """

    __slots__ = ("_encoded", "_header", "_pixels", "_png")

    max_pixels: ClassVar[int] = 100_000_000
    """Images of more pixels are refused before they are decoded: a small file can claim a huge picture."""

    def __init__(self, source: bytes | bytearray | memoryview | npt.NDArray[Any] | str | Path) -> None:
        self._encoded: bytes | None = None
        self._pixels: Pixels | None = None
        self._png: bytes | None = None
        self._header: Header | None = None
        if type(source) is bytes:
            self._encoded = source
        elif isinstance(source, np.ndarray):
            self._pixels = _as_pixels(source)
        elif isinstance(source, (str, os.PathLike)):
            self._encoded = Path(source).read_bytes()
        elif isinstance(source, (bytes, bytearray, memoryview)):
            self._encoded = bytes(source)
        else:
            raise WrongTypeError(f"an Image is made of bytes, an array or a path, not of {type(source).__name__}")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Image:
        """The image in the file at `path`. `OSError` if it cannot be read, `DataError` if it is no image."""
        image = cls(Path(path))
        if image.format is None:
            raise DataError(f"{path} is no PNG, JPEG, BMP or GIF file")
        return image

    @property
    def encoded(self) -> bytes | None:
        """The bytes of the image file it was made of; `None` if it was made of an array."""
        return self._encoded

    @property
    def format(self) -> str | None:
        """`"PNG"`, `"JPEG"`, `"BMP"` or `"GIF"` by the content of `encoded`; `None` if there is none of these."""
        return None if self._encoded is None else sniff(self._encoded)

    @property
    def width(self) -> int:
        """Pixels across. `DataError` if the bytes are no image."""
        return self._size().width

    @property
    def height(self) -> int:
        """Pixels down. `DataError` if the bytes are no image."""
        return self._size().height

    @property
    def channels(self) -> int:
        """3 (blue, green, red) or 1 (gray): those of `get_as("numpy")`. `DataError` if the bytes are no image."""
        return self._size().channels

    @overload
    def get_as(self, target: type[np.ndarray[Any, Any]]) -> Pixels: ...
    @overload
    def get_as(self, target: type[bytes]) -> bytes: ...
    @overload
    def get_as(self, target: str) -> Any: ...
    def get_as(self, target: Any) -> Any:
        """The image as something else.

        `"numpy"` or `numpy.ndarray`: read-only uint8 array of shape (height, width, channels), BGR or gray.
        `"png"`, `"jpeg"`, `"bmp"`, `"gif"`: bytes of such a file; those it was made of, if they are one.
        `"bytes"` or `bytes`: the bytes it was made of, else PNG.
        Raises `DataError` for bytes that cannot be decoded and for any other target.
        """
        name = _CLASS_TARGETS.get(target) if isinstance(target, type) else str(target).lower()
        if name in ("numpy", "ndarray"):
            return self._decoded()
        if name == "bytes":
            return self._encoded if self._encoded is not None else self._as_file("PNG")
        image_format = _FORMATS.get(name or "")
        if image_format is None:
            raise DataError(
                f"No converter found from Image to {target!r}; there are numpy, png, jpeg, bmp, gif and bytes"
            )
        return self._as_file(image_format)

    def to_wire(self) -> bytes:
        """What a message carries: a PNG file. PNG bytes pass untouched, as do bytes of no known format.

        Konduit Serving does not look at image bytes on their way either, so a step that nobody asks to decode an
        image does not fail for it.
        """
        if self._encoded is not None and self.format in (None, "PNG"):
            return self._encoded
        return self._as_file("PNG")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Image):
            return NotImplemented
        if self._encoded is not None and self._encoded == other._encoded:
            return True
        if self._encoded is None and other._encoded is None:
            return np.array_equal(self._decoded(), other._decoded())
        return self.to_wire() == other.to_wire()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = "array" if self._encoded is None else self.format or "unknown format"
        try:
            return f"Image({kind}, {self.width}x{self.height}x{self.channels})"
        except DataError:
            return f"Image({kind}, {len(self._encoded or b'')} bytes)"

    def _repr_html_(self) -> str:
        try:
            encoded = self.get_as(bytes)
        except MissingPackageError:
            return f"<code>{self!r}</code>"
        kind = (sniff(encoded) or "PNG").lower()
        return f'<img alt="{self!r}" src="data:image/{kind};base64,{base64.b64encode(encoded).decode()}">'

    def _size(self) -> Header:
        if self._header is None:
            if self._pixels is not None:
                height, width, channels = self._pixels.shape
                self._header = Header(width, height, channels)
            else:
                self._header = read_header(self._encoded or b"")
        return self._header

    def _decoded(self) -> Pixels:
        if self._pixels is None:
            self._pixels = _decode(self._encoded or b"", self._size(), self.max_pixels)
        return self._pixels

    def _as_file(self, image_format: str) -> bytes:
        if self._encoded is not None and self.format == image_format:
            return self._encoded
        if image_format != "PNG":
            return _encode(self._decoded(), image_format)
        if self._png is None:
            self._png = _encode(self._decoded(), image_format)
        return self._png


def _as_pixels(array: npt.NDArray[Any]) -> Pixels:
    if array.dtype != np.uint8:
        raise WrongTypeError(f"an Image is made of an array of uint8 (0 to 255), not of {array.dtype}")
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        raise WrongTypeError(
            f"an Image is made of an array of the shape (height, width, 1 or 3 channels), not {array.shape}"
        )
    pixels = array[:, :, :3] if array.shape[2] == 4 else array.view()
    pixels.flags.writeable = False
    return pixels


def _decode(encoded: bytes, header: Header, max_pixels: int) -> Pixels:
    if header.width * header.height > max_pixels:
        raise DataError(
            f"the image has {header.width} x {header.height} pixels, more than Image.max_pixels = {max_pixels}; "
            "raise that if such images are expected"
        )
    if sniff(encoded) == "PNG":
        check_png_chunks(encoded)
    cv2 = _opencv()
    # Gray stays gray, and the file's own orientation mark is not applied, as in Konduit Serving.
    flag = cv2.IMREAD_GRAYSCALE if header.channels == 1 else cv2.IMREAD_COLOR
    try:
        read = cv2.imdecode(np.frombuffer(encoded, np.uint8), flag | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        raise DataError(f"the {sniff(encoded)} image cannot be decoded: {error}") from None
    if read is None:
        raise DataError(f"the {sniff(encoded)} image cannot be decoded; the file is damaged or cut short")
    pixels = _as_pixels(read)
    if pixels.shape != (header.height, header.width, header.channels):
        raise DataError(
            f"the {sniff(encoded)} image decodes to the shape {pixels.shape}, but its header says "
            f"{(header.height, header.width, header.channels)}; the file is damaged"
        )
    return pixels


def _encode(pixels: Pixels, image_format: str) -> bytes:
    cv2 = _opencv()
    try:
        done, encoded = cv2.imencode(_EXTENSIONS[image_format], pixels)
    except cv2.error as error:
        raise DataError(f"the image cannot be written as {image_format}: {error}") from None
    if not done:
        raise DataError(f"the image cannot be written as {image_format}")
    return bytes(encoded.tobytes())


def _opencv() -> Any:
    try:
        import cv2
    except ImportError:
        raise MissingPackageError("opencv-python-headless", "image", "decoding or encoding an image") from None
    return cv2


_CLASS_TARGETS: dict[type[Any], str] = {np.ndarray: "numpy", bytes: "bytes"}
_FORMATS = {"png": "PNG", "jpeg": "JPEG", "jpg": "JPEG", "bmp": "BMP", "gif": "GIF"}
_EXTENSIONS = {"PNG": ".png", "JPEG": ".jpg", "BMP": ".bmp", "GIF": ".gif"}
