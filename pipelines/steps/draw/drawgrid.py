"""DRAW_GRID, DRAW_FIXED_GRID: lines of a grid in a quadrilateral of an image."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int
from pipelines.steps.shapes import PointField


class DrawGrid(Step):
    """A quadrilateral and the grid in it are drawn into the image.

    The corners come in the order top left, top right, bottom left, bottom right.
    """

    type_name: ClassVar[str] = "DRAW_GRID"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawgrid:DrawGridRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; none: the only one."""
    points_name: str | None = None
    """Key of the list of the four corners; none or empty: the only list of points."""
    grid_x: Annotated[Int, Field(ge=0)] = 0
    """Number of columns."""
    grid_y: Annotated[Int, Field(ge=0)] = 0
    """Number of lines."""
    coords_are_pixels: bool = False
    """Whether the corners are pixels; otherwise fractions of the image."""
    border_color: str | None = None
    """Colour of the border; none: lime."""
    grid_color: str | None = None
    """Colour of the lines inside; none: that of the border."""
    border_thickness: Int = 1
    """Pixels, at least 1."""
    grid_thickness: Int | None = None
    """Pixels; none: that of the border."""


class DrawFixedGrid(Step):
    """As `DRAW_GRID`, with corners that are the same for all records."""

    type_name: ClassVar[str] = "DRAW_FIXED_GRID"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawgrid:DrawGridRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; none: the only one."""
    points: tuple[PointField, ...] | None = None
    """The four corners."""
    grid_x: Annotated[Int, Field(ge=0)] = 0
    """Number of columns."""
    grid_y: Annotated[Int, Field(ge=0)] = 0
    """Number of lines."""
    coords_are_pixels: bool = False
    """Whether the corners are pixels; otherwise fractions of the image."""
    border_color: str | None = None
    """Colour of the border; none: lime."""
    grid_color: str | None = None
    """Colour of the lines inside; none: that of the border."""
    border_thickness: Int = 1
    """Pixels, at least 1."""
    grid_thickness: Int | None = None
    """Pixels; none: that of the border."""
