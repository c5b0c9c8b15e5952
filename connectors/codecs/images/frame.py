"""`frame`: the payload is a picture that a camera's source has decoded."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from connectors.camera.frame import Frame
from connectors.codec import Encoded
from connectors.codecs.config import CodecConfig, PayloadFields
from connectors.codecs.images.image import ImageConfig, ImageFile
from connectors.codecs.rows import encode_values
from pipelines.data.batch import Batch
from pipelines.errors import WireError
from pipelines.steps.config import Key
from pipelines.values import Image, type_of


class FrameConfig(CodecConfig):
    """Decoded pictures of cameras, not copied. It reads image files too, which dead letters of pictures are."""

    built_by: ClassVar[str] = "connectors.codecs.images.frame:FrameCodec"

    carries: ClassVar[Literal["bytes", "objects"]] = "objects"

    type: Literal["frame"] = "frame"
    """The type of codec."""
    key: Key = "image"
    """The key of the picture. If a result has only one value, that is written whatever its key."""

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """The key of the picture."""
        return PayloadFields(frozenset([self.key]), images=frozenset([self.key]))


class FrameCodec(ImageFile):
    """One column of images. A payload that is neither a picture nor the file of one fails."""

    opens_images: ClassVar[bool] = False
    name: ClassVar[str] = "frame"

    def __init__(self, config: FrameConfig) -> None:
        # Files are dead letters of pictures, for which the source had its own limit.
        super().__init__(ImageConfig(key=config.key, max_pixels=Image.max_pixels))

    def image_of(self, payload: object) -> Image:
        """The image of a camera's frame, of an `Image`, or of an image file. Raises `WireError`, `DataError`."""
        if isinstance(payload, Frame):
            return payload.image
        return payload if isinstance(payload, Image) else super().image_of(payload)

    def encode(self, batch: Batch) -> Encoded:
        """Each row's `Image`, unchanged."""
        return encode_values(batch, self._config.key, self.name, _image)


def _image(value: object, key: str) -> Any:
    if isinstance(value, Image):
        return value
    raise WireError(
        f'the frame codec gives an image, but "{key}" is of type {type_of(value).name}; '
        "use another codec, or another value (keys: [NAME])"
    )
