"""Runs RELATIVE_TO_ABSOLUTE."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from pipelines.data.data import Data
from pipelines.errors import DefinitionError, WrongTypeError
from pipelines.runners.images.cropped import box_in_image, point_in_pixels, region_of
from pipelines.runners.images.fields import each, holds
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.images.geometry import RelativeToAbsolute
from pipelines.values import BoundingBox, Point, ValueType, type_of


class RelativeToAbsoluteRunner(RowRunner):
    """Points and boxes in pixels of the image, boxes by their centre; labels and probabilities stay.

    A point is relative if all its coordinates are in [0, 1], a box if its centre is below 1; with an
    `imageToNDArrayConfig` all are. (Konduit Serving scales some points twice; here each is scaled once.)
    Raises `DefinitionError` when it is opened without an image or a size.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False
    keeps_keys: ClassVar[bool] = True

    def __init__(self, step: RelativeToAbsolute, context: OpenContext) -> None:
        if step.image_name is None and (step.image_h is None or step.image_w is None):
            raise DefinitionError("imageName, or both imageH and imageW must be given")
        self._step = step

    def run(self, data: Data) -> Data:
        width, height = self._size(data)
        region = region_of(self._step.image_to_ndarray_config, width, height)
        convert = partial(_converted, region=region, width=width, height=height)
        for key in self._step.to_convert or list(data):
            value = data[key]
            if holds(value, ValueType.POINT) or holds(value, ValueType.BOUNDING_BOX):
                if value != []:
                    data[key] = each(value, convert, ValueType.NONE)
            elif self._step.to_convert:
                raise WrongTypeError(
                    f'Value has wrong type for key "{key}": a point, a box or a list of them is needed, '
                    f"not {type_of(value).name}"
                )
        return data

    def _size(self, data: Data) -> tuple[int, int]:
        step = self._step
        if step.image_name is None:
            return step.image_w or 0, step.image_h or 0
        image = data.get_image(step.image_name)
        return image.width, image.height


def _converted(value: Any, region: BoundingBox | None, width: int, height: int) -> Point | BoundingBox:
    if isinstance(value, Point):
        return point_in_pixels(value, region, width, height)
    box: BoundingBox = box_in_image(value, region)
    if region is None and not (box.cx < 1 and box.cy < 1):
        return box
    made = BoundingBox.center(
        box.cx * width, box.cy * height, box.height * height, box.width * width, box.label, box.probability
    )
    # The probability is the same number.
    made.narrow = box.narrow
    return made
