"""`image`: the payload is the file of one image, as cameras and phones send it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig, PayloadFields
from connectors.codecs.rows import decoded_column, encode_values, payload_bytes
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.errors import DataError, MissingPackageError, WireError
from pipelines.plugins.requirements import Package, Requires
from pipelines.steps.config import Key
from pipelines.values import Image, type_of


class ImageConfig(CodecConfig):
    """Payloads that are image files (PNG, JPEG, BMP, GIF, WebP, TIFF, PGM, PPM), decoded when a step needs pixels."""

    built_by: ClassVar[str] = "connectors.codecs.images.image:ImageFile"

    requires: ClassVar[Requires] = Package("cv2", "image")

    type: Literal["image"] = "image"
    """The type of codec."""
    key: Key = "image"
    """The key of the image. If a result has only one value, that is written whatever its key."""
    max_pixels: Annotated[int, Field(gt=0)] = 40_000_000
    """The largest image that is accepted, width times height: a small file can claim a huge picture, and decoding it takes a second and 300 MB for 100 million pixels. More than that are not decoded."""  # noqa: E501
    upright: bool = True
    """Whether images are turned and mirrored as their files say they are shown (the orientation in EXIF data, as phones write it); else pixels are taken as they are stored. The file itself goes on as it came."""  # noqa: E501
    format: Literal["jpeg", "png", "bmp"] | None = None
    """The format in which images are written; by default the file that was read, and PNG for images that a step has
    drawn."""
    quality: Annotated[int, Field(ge=1, le=100)] | None = None
    """Quality of the JPEG files that are made here, 1 to 100; by default OpenCV's, which is 95."""

    @model_validator(mode="after")
    def _quality_of_jpeg(self) -> ImageConfig:
        if self.quality is not None and self.format != "jpeg":
            raise ValueError("quality is for jpeg: add `format: jpeg`, or leave quality out")
        return self

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """The key of the image."""
        return PayloadFields(frozenset([self.key]), images=frozenset([self.key]))


class ImageFile(Codec):
    """One column of images; a payload that is not an image of a known format, or is too large, fails."""

    name: ClassVar[str] = "image"

    def __init__(self, config: ImageConfig | None = None) -> None:
        self._config = config or ImageConfig()

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """The images, not decoded: format and size are read from their first bytes."""
        images, rows = [], []
        failed: dict[int, Exception] = {}
        for row, payload in enumerate(records.values):
            if payload is None:
                continue
            try:
                images.append(self.image_of(payload))
            except (WireError, DataError) as error:
                failed[row] = error
            else:
                rows.append(row)
        return decoded_column(records, first, self._config.key, Column.of(images), rows, failed)

    def encode(self, batch: Batch) -> Encoded:
        """The file of each row's image."""
        return encode_values(batch, self._config.key, self.name, self._file)

    def image_of(self, payload: object) -> Image:
        """The image of one payload. Raises `WireError` and `DataError`."""
        image = Image(payload_bytes(payload, self.name), upright=self._config.upright)
        pixels = image.width * image.height
        if pixels > self._config.max_pixels:
            raise WireError(
                f"the image has {image.width} x {image.height} pixels, more than {self._config.max_pixels}; "
                "raise max_pixels of the codec if such images are expected"
            )
        return image

    def _file(self, value: Any, key: str) -> bytes:
        if not isinstance(value, Image):
            raise WireError(
                f'the {self.name} codec writes an image, but "{key}" is of type {type_of(value).name}; '
                "use the codec protodata or json, or another value (keys: [NAME])"
            )
        wanted = self._config.format
        if wanted is None or self._config.quality is None or value.format == "JPEG":
            return value.get_as(wanted or bytes)
        return _jpeg(value, self._config.quality)


def _jpeg(image: Image, quality: int) -> bytes:
    pixels = image.get_as("numpy")
    try:
        import cv2
    except ImportError:
        raise MissingPackageError("opencv-python-headless", "image", "writing JPEG images") from None
    done, encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not done:
        raise WireError("the image cannot be written as JPEG")
    return bytes(encoded.tobytes())
