"""DRAW_BOUNDING_BOX, DRAW_POINTS, DRAW_HEATMAP, DRAW_SEGMENTATION, DRAW_FACE_KEY_POINTS: results drawn into pictures.

A colour is one of the 16 names of HTML 4 (`red`, `lime`, ...), `rgb(255,0,0)` or `#FF0000`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Int, Key, Spelling
from pipelines.steps.images.imagetondarray import ImageToNDArrayConfig
from pipelines.steps.video.zones import Line, Zone

Scale = Literal["NONE", "AT_LEAST", "AT_MOST"]
"""Whether a picture is enlarged or shrunk before something is drawn."""


class DrawBoundingBox(Step):
    """Rectangles for boxes, which are fractions of the image. The result has the picture only."""

    type_name: ClassVar[str] = "DRAW_BOUNDING_BOX"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawbox:DrawBoundingBoxRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image; none: the only one. Also that of the picture."""
    bbox_name: str | None = None
    """Key of the box or list of boxes; none: the only one."""
    draw_label: bool = False
    """Whether to write the label above the box."""
    draw_probability: bool = False
    """Whether to write the probability above the box."""
    class_colors: dict[str, str] | None = None
    """Label to colour."""
    color: str | None = None
    """Colour of other labels; none: lime."""
    line_thickness: Int = 1
    """Pixels, at least 1."""
    scale: Scale = "NONE"
    """`AT_LEAST` enlarges, `AT_MOST` shrinks to `resizeH` and `resizeW` before drawing; the proportions stay."""
    resize_h: Annotated[Int, Field(ge=0)] = 0
    """Height for `scale`."""
    resize_w: Annotated[Int, Field(ge=0)] = 0
    """Width for `scale`."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """How the image was made a network's input, if the boxes are fractions of that: its crop is accounted for."""
    draw_crop_region: bool = False
    """Whether to draw the part of the image that the network saw."""
    crop_region_color: str | None = None
    """Colour of that; none: blue."""
    ids_name: Annotated[str | None, EXTENSION] = None
    """Key of the boxes' ids, as `TRACK` gives them: written above the box, and each id has a colour of its own where its label has none. A box with the id 0 is drawn thin."""  # noqa: E501
    zones: Annotated[dict[Key, Zone], EXTENSION] = Field(default_factory=dict)
    """Zones to draw, as `ZONES` has them, in fractions of the image; those of other cameras are left out."""
    lines: Annotated[dict[Key, Line], EXTENSION] = Field(default_factory=dict)
    """Lines to draw, as `ZONES` has them, with an arrow to the side that is `in`."""
    counts_name: Annotated[str | None, EXTENSION] = None
    """Key of the counts, as `ZONES` gives them: written beside the names of zones and lines."""
    zone_color: Annotated[str | None, EXTENSION] = None
    """Colour of zones and lines; none: aqua."""


class DrawPoints(Step):
    """Filled circles for points, into an image or onto black."""

    type_name: ClassVar[str] = "DRAW_POINTS"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawpoints:DrawPointsRunner", ("cv2",), extra="image"
    )

    no_class_color: str | None = None
    """Colour of points without a label, or whose label has none; none: lime."""
    class_colors: dict[str, str] | None = None
    """Label to colour."""
    points: tuple[str, ...] | None = None
    """Keys of the points or lists of points, at least one."""
    radius: Annotated[Int, Field(ge=0)] | None = None
    """Radius in pixels; none: 5."""
    image: str | None = None
    """Key of the image; none: a black picture of `width` and `height`."""
    width: Annotated[Int, Field(gt=0)] | None = None
    """Width of the black picture."""
    height: Annotated[Int, Field(gt=0)] | None = None
    """Height of the black picture."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """How the image was made a network's input, if the points are fractions of that: its crop is accounted for."""
    output_name: Key | None = None
    """Key of the picture; none: `image`."""


class DrawHeatmap(Step):
    """Where points were seen, over time, as colours. All records of the step add to one map."""

    type_name: ClassVar[str] = "DRAW_HEATMAP"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawheatmap:DrawHeatmapRunner", ("cv2",), extra="image"
    )

    points: tuple[str, ...] | None = None
    """Keys of the points or lists of points, at least one."""
    radius: Annotated[Int, Field(gt=0)] | None = None
    """Standard deviation of a point's spot, in pixels; none: 15."""
    fading_factor: Annotated[float, Field(ge=0, le=1)] | None = None
    """Factor by which earlier points fade at each record: 0 removes them, 1 keeps them in full; none: 0.9."""
    image: str | None = None
    """Key of the image to draw over; none: a picture of `width` and `height`."""
    opacity: Annotated[float, Field(ge=0)] | None = None
    """Strength of the colours over an image; none: 0.5."""
    width: Annotated[Int, Field(gt=0)] | None = None
    """Width, where there is no image."""
    height: Annotated[Int, Field(gt=0)] | None = None
    """Height, where there is no image."""
    output_name: Key | None = None
    """Key of the picture; none: `image`."""
    keep_other_values: bool = True
    """Whether to keep the other keys of the record."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """How the image was made a network's input, if the points are fractions of that: its crop is accounted for."""


class DrawSegmentation(Step):
    """Each pixel in the colour of its class, alone or over an image. The result has the picture only."""

    type_name: ClassVar[str] = "DRAW_SEGMENTATION"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawsegmentation:DrawSegmentationRunner", ("cv2",), extra="image"
    )

    class_colors: tuple[str, ...] | None = None
    """Colours by class number, from 0; classes beyond have colours of their own."""
    segment_array: str | None = None
    """Key of the class numbers, integers `[1, H, W]`; none: the only array."""
    image: str | None = None
    """Key of the image to draw over; none: black."""
    output_name: Key | None = None
    """Key of the picture; none: `image`."""
    opacity: Annotated[float, Field(ge=0, le=1)] | None = None
    """Strength of the colours over an image; none: 0.5."""
    background_class: Int | None = None
    """Class whose pixels are left as they are."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """How the image was made a network's input, whose classes these are; none: the whole image, stretched."""


class DrawFaceKeyPoints(Step):
    """Boxes of faces and their landmarks. The result has the picture only."""

    type_name: ClassVar[str] = "DRAW_FACE_KEY_POINTS"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawfaces:DrawFaceKeyPointsRunner", ("cv2",), extra="image"
    )

    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """How the image was made a network's input, if the boxes are fractions of that: its crop is accounted for."""
    resize_h: Annotated[Int, Field(ge=0)] = 0
    """Height for `scale`."""
    resize_w: Annotated[Int, Field(ge=0)] = 0
    """Width for `scale`."""
    draw_face_box: bool = True
    """Whether to draw the boxes."""
    face_box_color: str | None = None
    """Colour of the boxes; none: lime."""
    point_color: str | None = None
    """Colour of the landmarks; none: red."""
    point_size: Annotated[Int, Field(ge=0)] = 1
    """Radius of a landmark in pixels."""
    scale: Scale = "NONE"
    """`AT_LEAST` enlarges, `AT_MOST` shrinks to `resizeH` and `resizeW` before drawing; the proportions stay."""
    landmark_array: str | None = None
    """Key of the landmarks, floats `[faces, 2 * n]`: x, y, ... as fractions of the face's box; none: the only array."""
    image: str | None = None
    """Key of the image; none: the only one."""
    output_name: Key | None = None
    """Key of the picture; none: `image`."""
    bbox_name: Annotated[str, EXTENSION] = "img_bbox"
    """Key of the box or list of boxes, one a face; fixed in Konduit."""
