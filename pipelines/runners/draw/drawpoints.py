"""Runs DRAW_POINTS."""

from __future__ import annotations

from typing import ClassVar, Final

from pipelines.data.data import Data
from pipelines.runners.draw.canvas import black, canvas
from pipelines.runners.draw.pointfields import check_fields, points_in_pixels
from pipelines.runners.images.colors import LIME, color
from pipelines.runners.images.opencv import opencv
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.draw.draw import DrawPoints
from pipelines.values import Image

RADIUS: Final = 5
OUTPUT: Final = "image"


class DrawPointsRunner(RowRunner):
    """A picture with the points is added to the record.

    A label without a colour gets that of no label, where Konduit Serving fails. Raises `DefinitionError` when it is
    opened without points, without an image or a size, or with an invalid colour.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False
    keeps_keys: ClassVar[bool] = True

    def __init__(self, step: DrawPoints, context: OpenContext) -> None:
        check_fields(step.points, step.image, step.width, step.height)
        self._step = step
        self._color = color(step.no_class_color, LIME)
        self._colors = {label: color(text, LIME) for label, text in (step.class_colors or {}).items()}

    def run(self, data: Data) -> Data:
        step, cv2 = self._step, opencv()
        picture = black(step.height or 0, step.width or 0) if step.image is None else canvas(data.get_image(step.image))
        height, width = picture.shape[:2]
        radius = RADIUS if step.radius is None else step.radius
        for point in points_in_pixels(data, step.points or (), (height, width), step.image_to_ndarray_config):
            chosen = self._colors.get(point.label or "", self._color)
            cv2.circle(picture, (int(point.x), int(point.y)), radius, chosen, cv2.FILLED, cv2.LINE_AA)
        data[step.output_name or OUTPUT] = Image(picture)
        return data
