"""`images` and `image_quality` of a codec: which files the images of a result are written as."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.data import Data
from pipelines.described import Described
from pipelines.errors import StreamerError, WireError
from pipelines.values import Image, ValueType
from pipelines.values.conversion.formats import ImageFormat

_MAY_HOLD: Final = (ValueType.IMAGE, ValueType.LIST, ValueType.DATA, None)


class WritesImages(Described):
    """The fields of a codec's configuration for the images in its messages."""

    images: Literal["keep", "png", "jpeg"] = "keep"
    """`keep` writes the file that was read, and PNG for images that a step has drawn and for video frames; `png` and `jpeg` write all images in this format. Konduit Serving reads PNG only."""  # noqa: E501
    image_quality: Annotated[int, Field(ge=1, le=100)] | None = None
    """Quality of the JPEG files that are made here; by default OpenCV's, which is 95. A JPEG file that was read stays as it is."""  # noqa: E501

    @model_validator(mode="after")
    def _quality_of_jpeg(self) -> WritesImages:
        if self.image_quality is not None and self.images != "jpeg":
            raise ValueError("image_quality is for JPEG: add `images: jpeg`, or leave image_quality out")
        return self

    def with_images(self, batch: Batch) -> tuple[Batch, dict[int, Exception]]:
        """The batch with its images, also those in lists and nested `Data`, as the files that are written.

        And position to error of the rows whose image cannot be: they lack it. Columns without images stay as they are.
        """
        if self.images == "keep":
            return batch, {}
        failed: dict[int, Exception] = {}
        changed: dict[str, Column] = {}
        for key, column in batch.columns.items():
            if column.type not in _MAY_HOLD:
                continue
            values: list[Any] = [MISSING] * batch.size
            same = True
            for row, value in column.cells(failed):
                try:
                    values[row] = self._written(value)
                except StreamerError as error:
                    failed.setdefault(row, WireError.within(key, error, "written"))
                same = same and values[row] is value
            if not same:
                changed[key] = Column.of(values)
        return batch.with_columns(changed), failed

    def _written(self, value: Any) -> Any:
        if isinstance(value, Image):
            if value.format == self.images.upper() or (value.format is None and value.encoded is not None):
                return value
            return Image(value.get_as(ImageFormat(self.images, quality=self.image_quality)))
        if isinstance(value, list):
            items = [self._written(item) for item in value]
            return value if all(map(operator.is_, items, value)) else items
        if isinstance(value, Data):
            entries = {key: self._written(item) for key, item in value.items()}
            same = all(entries[key] is item for key, item in value.items())
            return value if same else Data(entries, metadata=value.metadata)
        return value
