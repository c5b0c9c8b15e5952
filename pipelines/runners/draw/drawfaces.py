"""Runs DRAW_FACE_KEY_POINTS."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from pipelines.data.data import Data
from pipelines.errors import DataError, WrongTypeError
from pipelines.runners.draw.canvas import canvas, check_scale, draw_box, scaled
from pipelines.runners.images.colors import LIME, RED, color
from pipelines.runners.images.cropped import box_in_image, region_of
from pipelines.runners.images.fields import boxes_key, image_key, listed
from pipelines.runners.images.homography import FARTHEST
from pipelines.runners.images.opencv import opencv
from pipelines.runners.models.arrays import only_array_of
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.runners.video.boxrows import corners_of
from pipelines.steps.draw.draw import DrawFaceKeyPoints
from pipelines.values import Image

THICKNESS: Final = 2
OUTPUT: Final = "image"


class DrawFaceKeyPointsRunner(RowRunner):
    """The image with boxes and landmarks; nothing else of the record. Line i of the landmarks belongs to box i.

    (Konduit Serving draws all lines into each box.) Raises `DefinitionError` when it is opened with an invalid
    colour. Fails a row without an image, boxes, or landmarks `[faces, 2 * n]`.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: DrawFaceKeyPoints, context: OpenContext) -> None:
        check_scale(step.scale, step.resize_h, step.resize_w)
        self._step = step
        self._box_color = color(step.face_box_color, LIME)
        self._point_color = color(step.point_color, RED)

    def run(self, data: Data) -> Data:
        step, cv2 = self._step, opencv()
        image = data.get_image(image_key(data, step.image))
        boxes_name = boxes_key(data, step.bbox_name)
        boxes = listed(data[boxes_name])
        corners_of(boxes, boxes_name)  # numbers that can be drawn
        key = step.landmark_array
        faces = _faces(only_array_of(dict(data)) if key is None else data.get_ndarray(key))
        region = region_of(step.image_to_ndarray_config, image.width, image.height)
        picture = scaled(canvas(image), step.scale, step.resize_h, step.resize_w)
        height, width = picture.shape[:2]
        for number, box in enumerate(boxes):
            placed = box_in_image(box, region)
            if step.draw_face_box:
                draw_box(picture, placed, self._box_color, THICKNESS)
            for x, y in faces[number].tolist() if number < len(faces) else ():
                place = (int((placed.x1 + x * placed.width) * width), int((placed.y1 + y * placed.height) * height))
                cv2.circle(picture, place, step.point_size, self._point_color, cv2.FILLED, cv2.LINE_AA)
        return Data({step.output_name or OUTPUT: Image(picture)})


def _faces(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The landmarks as `(faces, n, 2)`, from the array `(faces, 2 * n)`."""
    if array.dtype.kind != "f" or array.ndim != 2 or array.shape[1] % 2:
        raise WrongTypeError(
            f"the landmarks are {array.dtype.name} of the shape {list(array.shape)}; floats [faces, 2 * n] are needed"
        )
    if not (np.abs(array) <= FARTHEST).all():
        raise DataError("the landmarks have numbers that are not finite, or beyond 1e9")
    return array.astype(np.float64).reshape(len(array), array.shape[1] // 2, 2)
