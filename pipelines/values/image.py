"""An image that is decoded or encoded when its pixels or bytes are first asked for."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np

from pipelines.errors import DataError, MissingPackageError, WrongTypeError
from pipelines.late import late
from pipelines.values.conversion.convert import Conversions
from pipelines.values.conversion.formats import ImageFormat
from pipelines.values.frames import Plane, Rect, frame_planes
from pipelines.values.imageheader import FORMATS, Header, read_header, sniff
from pipelines.values.orientation import LYING, UPRIGHT, orientation, turned
from pipelines.values.pixels import Pixels, as_pixels, check_size, decode, encode, gray_of, merged, resized, split

T = TypeVar("T")


class Image:
    """One picture: the bytes of an image file, an array of pixels, or an object that another library made.

    `Image(source)` takes the bytes of a PNG, JPEG, BMP, GIF, WebP, TIFF, PGM or PPM file, a path to one, or a uint8
    array in the order height, width, channels: blue, green, red; or gray with one channel or none. Alpha is dropped.
    Bytes are decoded only when pixels or size are needed; the format is found by the content, not by a label. Of a TIFF
    file with several pages it is the first; an animated WebP is refused. It also takes a Pillow
    image, a PyAV video frame, and the forms of plug-ins (`pipelines.values.conversion.convert`): those are kept, and
    converted when another form is first needed; a PNG made of a Pillow image has its alpha. The picture does not
    change: arrays that it gives are read-only, and an array that it was made of must not be written to later.

    With `upright=True` pixels and size are those of the image as it is shown: turned and mirrored as the EXIF data of
    its file say, which phones write. `encoded` is never changed. By default they are ignored, as in Konduit Serving.

    Two images are equal if their PNG bytes are. Decoding and encoding need OpenCV (extra `image`).
    """

    __slots__ = ("_encoded", "_foreign", "_form", "_header", "_pixels", "_png", "_upright")

    max_pixels: ClassVar[int] = 100_000_000
    """Images of more pixels are refused before they are decoded: a small file can claim a huge picture."""

    def __init__(self, source: Any, *, upright: bool = False) -> None:
        self._upright = upright
        self._encoded: bytes | None = None
        self._pixels: Pixels | None = None
        self._png: bytes | None = None
        self._header: Header | None = None
        self._foreign: Any = None
        self._form: str | None = None
        if type(source) is bytes:
            self._encoded = source
        elif isinstance(source, np.ndarray):
            self._pixels = as_pixels(source)
        elif isinstance(source, (str, os.PathLike)):
            self._encoded = Path(source).read_bytes()
        elif isinstance(source, (bytes, bytearray, memoryview)):
            self._encoded = bytes(source)
        else:
            self._foreign, self._form = source, _form_of(source)

    @classmethod
    def create(cls, source: Any) -> Image:
        """The image of `source`, which is kept as it is; an `Image` is itself."""
        return source if isinstance(source, Image) else cls(source)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Image:
        """The image in the file at `path`. `OSError` if it cannot be read, `DataError` if it is not an image."""
        image = cls(Path(path))
        if image.format is None:
            raise DataError(f"{path} is not a {FORMATS} file")
        return image

    @property
    def encoded(self) -> bytes | None:
        """The bytes of the image file it was made of; `None` if it was made of an array."""
        return self._encoded

    @property
    def format(self) -> str | None:
        """`"PNG"`, `"JPEG"`, `"BMP"`, `"GIF"`, `"WEBP"`, `"TIFF"`, `"PGM"` or `"PPM"` by the content of `encoded`.

        `None` if it is none of these.
        """
        return None if self._encoded is None else sniff(self._encoded)

    @property
    def width(self) -> int:
        """Pixels across. `DataError` if the bytes are not an image."""
        return self._size().width

    @property
    def height(self) -> int:
        """Pixels down. `DataError` if the bytes are not an image."""
        return self._size().height

    @property
    def channels(self) -> int:
        """3 (blue, green, red) or 1 (gray): as in `get_as("numpy")`. `DataError` if the bytes are not an image."""
        return self._size().channels

    @overload
    def get_as(self, target: type[np.ndarray[Any, Any]] | Literal["numpy"]) -> Pixels: ...
    @overload
    def get_as(self, target: type[bytes] | Literal["bytes", "png", "jpeg", "bmp", "gif"]) -> bytes: ...
    @overload
    def get_as(self, target: type[T]) -> T: ...
    @overload
    def get_as(self, target: str | ImageFormat) -> Any: ...
    def get_as(self, target: Any) -> Any:
        """The image as something else.

        `"numpy"` or `numpy.ndarray`: read-only uint8 array of shape (height, width, channels), BGR or gray.
        `"png"`, `"jpeg"`, `"bmp"`, `"gif"`: bytes of such a file; those it was made of, if they are one.
        `"bytes"` or `bytes`: the bytes it was made of, else PNG.
        `"pil"` or `PIL.Image.Image`, `"frame"` or `av.VideoFrame`, and the forms of plug-ins; it may be the object that
        it was made of. With details: `"JPEG quality 80"`, `"PNG compression 9"`, `"numpy RGB"`, or an `ImageFormat`.
        Raises `DataError` for bytes that cannot be decoded and for any other target.
        """
        name = _CLASS_TARGETS.get(target) if isinstance(target, type) else str(target).lower()
        if name in ("numpy", "ndarray"):
            return self._decoded()
        if name == "bytes":
            return self._encoded if self._encoded is not None else self._as_file("PNG")
        image_format = _FORMATS.get(name or "")
        return self._converted(target) if image_format is None else self._as_file(image_format)

    @property
    def is_frame(self) -> bool:
        """Whether it was made of a video frame: `scaled` then converts only as many pixels as are wanted."""
        return self._form == "frame"

    def scaled(self, width: int, height: int, channels: int | None = None, part: Rect | None = None) -> Pixels:
        """The pixels in another size: read-only uint8 `(height, width, channels)`, as `get_as("numpy")` has them.

        `channels` is 3 (blue, green, red) or 1 (gray), by default those of the image; three of gray are equal.
        `part` is the part of the picture to take, `(x, y, width, height)` in its pixels, by default all of it.
        A video frame, or a part of it whose numbers are even, is scaled and converted in one go from its own planes (a
        smaller pixel is the mean of those that it covers). Other images are resized (bilinear), then made gray.
        Raises `DataError` for more than `max_pixels` and for bytes that are not an image.
        """
        if not self._scales_planes(part):
            x, y, wide, high = part or (0, 0, self.width, self.height)
            pixels = resized(self._decoded()[y : y + high, x : x + wide], height, width, self.max_pixels)
            if pixels.shape[2] == (channels or pixels.shape[2]):
                return as_pixels(pixels)
            return gray_of(pixels) if channels == 1 else as_pixels(np.repeat(pixels, 3, axis=2))
        if self._is_whole(part) and (width, height, channels or self.channels) == self._size():
            return self._decoded()
        return merged(self.scaled_planes(width, height, channels, part))

    def scaled_planes(
        self, width: int, height: int, channels: int | None = None, part: Rect | None = None
    ) -> tuple[Plane, ...]:
        """The channels of `scaled` one by one, each `(height, width)`: a video frame has them without interleaving."""
        if not self._scales_planes(part):
            return split(self.scaled(width, height, channels, part))
        check_size(self.width, self.height, self.max_pixels)
        check_size(width, height, self.max_pixels)
        return frame_planes(self._foreign, width, height, channels or self.channels, part)

    def to_wire(self) -> bytes:
        """The bytes in a message: the file that it was made of, untouched; a PNG file of anything else.

        As in Konduit Serving, the bytes are not checked: a broken image fails only where it is decoded.
        """
        return self._encoded if self._encoded is not None else self._as_file("PNG")

    @property
    def wire_format(self) -> str:
        """The format of `to_wire` by its content, as `format`; PNG for bytes of none that is known."""
        return self.format or "PNG"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Image):
            return NotImplemented
        if self._encoded is not None and self._encoded == other._encoded:
            return True
        if self._encoded is None and other._encoded is None:
            return np.array_equal(self._decoded(), other._decoded())
        return self._png_or_unknown() == other._png_or_unknown()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kind = self._form or ("array" if self._encoded is None else self.format or "unknown format")
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

    def _scales_planes(self, part: Rect | None) -> bool:
        # Colours often have one sample for two by two pixels: a part that cuts through them is taken from the pixels.
        return self.is_frame and (self._is_whole(part) or not any(number % 2 for number in part or ()))

    def _is_whole(self, part: Rect | None) -> bool:
        return part is None or part == (0, 0, self.width, self.height)

    def _png_or_unknown(self) -> bytes:
        unknown = self._encoded is not None and self.format is None
        return self._encoded or b"" if unknown else self._as_file("PNG")

    def _size(self) -> Header:
        if self._header is None:
            if self._pixels is not None:
                height, width, channels = self._pixels.shape
                self._header = Header(width, height, channels)
            elif self._form is not None:
                height, width, channels = self._measured(self._form)
                self._header = Header(width, height, channels)
            else:
                self._header = read_header(self._encoded or b"")
                if self._orientation in LYING:
                    self._header = self._header._replace(width=self._header.height, height=self._header.width)
        return self._header

    def _decoded(self) -> Pixels:
        if self._pixels is None:
            if self._form is not None:
                self._pixels = as_pixels(_conversions().convert(self._foreign, self._form, ImageFormat()))
            elif self._orientation != UPRIGHT:
                lying = decode(self._encoded or b"", read_header(self._encoded or b""), self.max_pixels)
                self._pixels = as_pixels(turned(lying, self._orientation))
            else:
                self._pixels = decode(self._encoded or b"", self._size(), self.max_pixels)
        return self._pixels

    @property
    def _orientation(self) -> int:
        """The EXIF orientation that is applied to the pixels; `UPRIGHT` without `upright=True`."""
        return orientation(self._encoded or b"") if self._upright else UPRIGHT

    def _as_file(self, image_format: str) -> bytes:
        if self._encoded is not None and self.format == image_format:
            return self._encoded
        wanted = ImageFormat(image_format.lower())
        if image_format != "PNG":
            return encode(self._decoded(), wanted)
        if self._png is None:
            if self._form is not None:
                self._png = _conversions().convert(self._foreign, self._form, wanted)
            else:
                self._png = encode(self._decoded(), wanted)
        return self._png

    def _converted(self, target: Any) -> Any:
        conversions = _conversions()
        wanted = conversions.wanted(target)
        plain = _FORMATS.get(wanted.form, wanted.form)
        if not wanted.details and plain in ("numpy", *_FORMATS.values()):
            return self._decoded() if plain == "numpy" else self._as_file(plain)
        source, form = self._source()
        return conversions.convert(source, form, wanted)

    def _source(self) -> tuple[Any, str]:
        if self._form is not None:
            return self._foreign, self._form
        if self._encoded is None or self._orientation != UPRIGHT:
            return self._decoded(), "numpy"
        if self.format is None:
            # Raises the error that names the fault of the bytes.
            read_header(self._encoded)
        return self._encoded, (self.format or "").lower()

    def _measured(self, form: str) -> tuple[int, ...]:
        measure = _conversions().factories.named(form).measure
        return self._decoded().shape if measure is None else measure(self._foreign)


def _form_of(source: object) -> str:
    factory = _conversions().factories.of(source)
    if factory is None:
        raise WrongTypeError(
            "an Image is made of bytes, an array, a path, a Pillow image or a video frame, "
            f"not of {type(source).__name__}"
        )
    return factory.form


_conversions: Callable[[], Conversions[ImageFormat]] = late(
    "pipelines.values.conversion.imageconverters:image_conversions"
)


_CLASS_TARGETS: dict[type[Any], str] = {np.ndarray: "numpy", bytes: "bytes"}
_FORMATS = {"png": "PNG", "jpeg": "JPEG", "jpg": "JPEG", "bmp": "BMP", "gif": "GIF"}
