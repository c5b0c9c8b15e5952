"""Runs PERSPECTIVE_TRANSFORM."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from pipelines.data.data import Data
from pipelines.errors import DataError, DefinitionError, WrongTypeError
from pipelines.runners.images.fields import each, holds, listed
from pipelines.runners.images.fitting import rounded
from pipelines.runners.images.homography import Corners, Homography, corners_of, frame, homography, mapped, upright
from pipelines.runners.images.opencv import opencv
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.images.geometry import PerspectiveTransform
from pipelines.values import BoundingBox, Image, Point, ValueType, type_of

MOST: Final = 4096
"""Pixels that a transformed image has at most in each direction, as in Konduit Serving."""
KINDS: Final = (ValueType.IMAGE, ValueType.BOUNDING_BOX, ValueType.POINT)

log = logging.getLogger(__name__)


class PerspectiveTransformRunner(RowRunner):
    """Points are mapped; of a box the centre, its size stays; an image is warped (bilinear, black around).

    Relative points are made absolute by the reference size if there is one. Raises `DefinitionError` when it is
    opened with two sorts of source or target points, or without source points.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: PerspectiveTransform, context: OpenContext) -> None:
        if (step.source_points is None) == (step.source_points_name is None):
            raise DefinitionError("exactly one of sourcePoints and sourcePointsName must be given")
        if step.target_points is not None and step.target_points_name is not None:
            raise DefinitionError("only one of targetPoints and targetPointsName may be given")
        if step.input_names and step.output_names and len(step.input_names) != len(step.output_names):
            raise DefinitionError("inputNames and outputNames must be equally many")
        self._step = step
        self._source = None if step.source_points is None else _fixed(step.source_points, "sourcePoints")
        self._target = None if step.target_points is None else _fixed(step.target_points, "targetPoints")

    def run(self, data: Data) -> Data:
        step = self._step
        size = self._reference(data)
        matrix = self._matrix(data, size)
        names = self._inputs(data)
        results = step.output_names or tuple(names)
        if len(results) != len(names):
            raise DataError(f"outputNames has {len(results)} names for {len(names)} inputs: {', '.join(names)}")
        transform = partial(_transformed, matrix=matrix, size=size)
        made = [each(data[name], transform, ValueType.NONE) if data[name] != [] else data[name] for name in names]
        for key in names if step.keep_other_fields else list(data):
            del data[key]
        data.update(zip(results, made, strict=True))
        return data

    def _inputs(self, data: Data) -> list[str]:
        step = self._step
        if step.input_names:
            for name in step.input_names:
                if not any(holds(data[name], kind) for kind in KINDS):
                    raise WrongTypeError(
                        f'Value has wrong type for key "{name}": an image, box, point or a list of them is needed, '
                        f"not {type_of(data[name]).name}"
                    )
            return list(step.input_names)
        points = (step.source_points_name, step.target_points_name)
        keys = [key for key, value in data.items() if key not in points and any(holds(value, kind) for kind in KINDS)]
        if not keys:
            raise DataError("there is nothing to transform: no image, box or point, and no inputNames")
        return keys

    def _reference(self, data: Data) -> tuple[int, int] | None:
        step = self._step
        if step.reference_image is not None:
            images = listed(data[step.reference_image])
            if not images or not isinstance(images[0], Image):
                raise WrongTypeError(f'Value has wrong type for key "{step.reference_image}": an image is needed')
            return images[0].width, images[0].height
        if step.reference_width is not None and step.reference_height is not None:
            return step.reference_width, step.reference_height
        return None

    def _matrix(self, data: Data, size: tuple[int, int] | None) -> Homography:
        step = self._step
        source = self._source
        if source is None:
            source = corners_of(data.get_list(step.source_points_name or ""), f'the points "{step.source_points_name}"')
        target = self._target
        if step.target_points_name is not None:
            target = corners_of(data.get_list(step.target_points_name), f'the points "{step.target_points_name}"')
        if target is None:
            target = upright(source)
        matrix = homography(source, target)
        if size is None:
            return matrix
        return homography(source, target - mapped(matrix, frame(*size)).min(axis=0))


def _fixed(points: tuple[Any, ...], what: str) -> Corners:
    try:
        return corners_of([point.value for point in points], f"{what}")
    except DataError as error:
        raise DefinitionError(str(error)) from None


def _transformed(value: Any, matrix: Homography, size: tuple[int, int] | None) -> Any:
    if isinstance(value, Image):
        return _warped(value, matrix)
    if isinstance(value, BoundingBox):
        ((x, y),) = mapped(matrix, np.array([[value.cx, value.cy]])).tolist()
        return BoundingBox.center(x, y, value.height, value.width, value.label, value.probability)
    if value.dimensions != 2:
        raise DataError(f"a point with two coordinates is needed, not with {value.dimensions}")
    absolute = value if size is None else value.to_absolute(*size)
    ((x, y),) = mapped(matrix, np.array([absolute.coords])).tolist()
    return Point((x, y), value.label, value.probability)


def _warped(image: Image, matrix: Homography) -> Image:
    corners = mapped(matrix, frame(image.width, image.height))
    extent = corners.max(axis=0) - corners.min(axis=0)
    width, height = (max(rounded(length), 1) for length in extent.tolist())
    if max(width, height) > MOST:
        log.warning("a transformed image would have %d x %d pixels; it is cut to %d", width, height, MOST)
    cv2 = opencv()
    return Image(cv2.warpPerspective(image.get_as("numpy"), matrix, (min(width, MOST), min(height, MOST))))
