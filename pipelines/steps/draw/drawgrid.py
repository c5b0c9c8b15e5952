"""DRAW_GRID, DRAW_FIXED_GRID: lines of a grid in a quadrilateral of an image."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Int
from pipelines.steps.shapes import PointField


class DrawGrid(Step):
    """Draws a quadrilateral with a grid into an image.

    The corners come in the order top left, top right, bottom left, bottom right.
    """

    type_name: ClassVar[str] = "DRAW_GRID"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawgrid:DrawGridRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; default: the record's only image."""
    points_name: str | None = None
    """Key of the list of the four corners; default, or if empty: the record's only list of points."""
    grid_x: Annotated[Int, Field(ge=0)] = 0
    """Number of columns."""
    grid_y: Annotated[Int, Field(ge=0)] = 0
    """Number of rows."""
    coords_are_pixels: bool = False
    """Whether the corners are in pixels; otherwise they are in fractions of the image."""
    border_color: str | None = None
    """Colour of the border; default: lime."""
    grid_color: str | None = None
    """Colour of the lines inside; default: the border's colour."""
    border_thickness: Int = 1
    """Thickness of the border in pixels, at least 1."""
    grid_thickness: Int | None = None
    """Thickness of the lines inside in pixels; default: the border's."""


class DrawFixedGrid(Step):
    """As `DRAW_GRID`, with corners that the definition gives, the same for all records."""

    type_name: ClassVar[str] = "DRAW_FIXED_GRID"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawgrid:DrawGridRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; default: the record's only image."""
    points: tuple[PointField, ...] | None = None
    """The four corners: top left, top right, bottom left, bottom right."""
    grid_x: Annotated[Int, Field(ge=0)] = 0
    """Number of columns."""
    grid_y: Annotated[Int, Field(ge=0)] = 0
    """Number of rows."""
    coords_are_pixels: bool = False
    """Whether the corners are in pixels; otherwise they are in fractions of the image."""
    border_color: str | None = None
    """Colour of the border; default: lime."""
    grid_color: str | None = None
    """Colour of the lines inside; default: the border's colour."""
    border_thickness: Int = 1
    """Thickness of the border in pixels, at least 1."""
    grid_thickness: Int | None = None
    """Thickness of the lines inside in pixels; default: the border's."""
