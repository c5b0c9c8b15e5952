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
    """Draws boxes, which are in fractions of the image, as rectangles. The result has the picture only."""

    type_name: ClassVar[str] = "DRAW_BOUNDING_BOX"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawbox:DrawBoundingBoxRunner", ("cv2",), extra="image"
    )

    image_name: str | None = None
    """Key of the image, and of the picture in the result; default: the record's only image."""
    bbox_name: str | None = None
    """Key of the box or list of boxes; default: the record's only one."""
    draw_label: bool = False
    """Whether to write the label above the box."""
    draw_probability: bool = False
    """Whether to write the probability above the box."""
    class_colors: dict[str, str] | None = None
    """The colour for each label."""
    color: str | None = None
    """Colour of boxes whose label is not in `classColors`; default: lime."""
    line_thickness: Int = 1
    """Thickness of the lines in pixels, at least 1."""
    scale: Scale = "NONE"
    """Before drawing, `AT_LEAST` enlarges the image to at least `resizeW` x `resizeH` pixels, `AT_MOST` shrinks it to
    at most that; the proportions stay."""
    resize_h: Annotated[Int, Field(ge=0)] = 0
    """Height in pixels for `scale`."""
    resize_w: Annotated[Int, Field(ge=0)] = 0
    """Width in pixels for `scale`."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """The `config` of the `IMAGE_TO_NDARRAY` step that made the network's input, if boxes are fractions of that input:
    they are converted to fractions of the image."""
    draw_crop_region: bool = False
    """Whether to draw a frame around the part of the image that was the network's input, by `imageToNDArrayConfig`."""
    crop_region_color: str | None = None
    """Colour of that frame; default: blue."""
    ids_name: Annotated[str | None, EXTENSION] = None
    """Key of the boxes' ids, as `TRACK` gives them. An id is written above its box, and gives the box its colour unless
    `classColors` has one. A box with the id 0 (no confirmed track) is drawn with a thin line."""
    zones: Annotated[dict[Key, Zone], EXTENSION] = Field(default_factory=dict)
    """Zones to draw, in the form of the step `ZONES`, in fractions of the image; those of other cameras are left
    out."""
    lines: Annotated[dict[Key, Line], EXTENSION] = Field(default_factory=dict)
    """Lines to draw, in the form of the step `ZONES`, with an arrow in the direction that counts as `in`."""
    counts_name: Annotated[str | None, EXTENSION] = None
    """Key of the counts that `ZONES` made: they are written beside the names of zones and lines."""
    zone_color: Annotated[str | None, EXTENSION] = None
    """Colour of zones and lines; default: aqua."""


class DrawPoints(Step):
    """Draws points as filled circles, into an image or onto a black picture."""

    type_name: ClassVar[str] = "DRAW_POINTS"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawpoints:DrawPointsRunner", ("cv2",), extra="image"
    )

    no_class_color: str | None = None
    """Colour of points without a label, or whose label is not in `classColors`; default: lime."""
    class_colors: dict[str, str] | None = None
    """The colour for each label."""
    points: tuple[str, ...] | None = None
    """Keys of the points or lists of points; at least one is needed."""
    radius: Annotated[Int, Field(ge=0)] | None = None
    """Radius of a circle in pixels; default: 5."""
    image: str | None = None
    """Key of the image; default: a black picture of `width` and `height`."""
    width: Annotated[Int, Field(gt=0)] | None = None
    """Width of the black picture in pixels, if there is no `image`."""
    height: Annotated[Int, Field(gt=0)] | None = None
    """Height of the black picture in pixels, if there is no `image`."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """The `config` of the `IMAGE_TO_NDARRAY` step that made the network's input, if points are fractions of that input:
    they are converted to fractions of the image."""
    output_name: Key | None = None
    """Key of the picture; default: `image`."""


class DrawHeatmap(Step):
    """Draws a heat map of where points were seen over time. All records of the step add to one map."""

    type_name: ClassVar[str] = "DRAW_HEATMAP"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawheatmap:DrawHeatmapRunner", ("cv2",), extra="image"
    )

    points: tuple[str, ...] | None = None
    """Keys of the points or lists of points; at least one is needed."""
    radius: Annotated[Int, Field(gt=0)] | None = None
    """Size of a point's spot: the standard deviation of its Gaussian in pixels; default: 15."""
    fading_factor: Annotated[float, Field(ge=0, le=1)] | None = None
    """By what earlier points are multiplied at each record: 0 removes them, 1 keeps them in full; default: 0.9."""
    image: str | None = None
    """Key of the image to draw over; default: none, the picture has `width` and `height`."""
    opacity: Annotated[float, Field(ge=0)] | None = None
    """Strength of the colours over an image; default: 0.5."""
    width: Annotated[Int, Field(gt=0)] | None = None
    """Width of the picture in pixels, if there is no `image`."""
    height: Annotated[Int, Field(gt=0)] | None = None
    """Height of the picture in pixels, if there is no `image`."""
    output_name: Key | None = None
    """Key of the picture; default: `image`."""
    keep_other_values: bool = True
    """Whether to keep the other keys of the record."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """The `config` of the `IMAGE_TO_NDARRAY` step that made the network's input, if points are fractions of that input:
    they are converted to fractions of the image."""


class DrawSegmentation(Step):
    """Draws each pixel of a segmentation in the colour of its class, alone or over an image.

    The result has the picture only.
    """

    type_name: ClassVar[str] = "DRAW_SEGMENTATION"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawsegmentation:DrawSegmentationRunner", ("cv2",), extra="image"
    )

    class_colors: tuple[str, ...] | None = None
    """Colours of the classes 0, 1, ...; further classes get random colours, the same in each run."""
    segment_array: str | None = None
    """Key of the class numbers, integers `[1, H, W]`, or with `activation` of the classes' scores; default: the
    record's only array."""
    image: str | None = None
    """Key of the image to draw over; default: none, the background is black."""
    output_name: Key | None = None
    """Key of the picture; default: `image`."""
    opacity: Annotated[float, Field(ge=0, le=1)] | None = None
    """Strength of the colours over an image; default: 0.5."""
    background_class: Int | None = None
    """Class that is not drawn: its pixels stay those of the image, or black; default: all classes are drawn."""
    activation: Annotated[Literal["NONE", "ARGMAX"], EXTENSION] = "NONE"
    """What makes class numbers of the array: nothing, as it has them; `ARGMAX` of the scores of C classes
    `[1, C, H, W]`, the class with the highest score at each pixel."""
    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """The `config` of the `IMAGE_TO_NDARRAY` step that made the network's input: classes are drawn where that input was
    cut from; default: they are stretched over the whole image."""


class DrawFaceKeyPoints(Step):
    """Draws faces' boxes and landmarks (eyes, nose, ...). The result has the picture only."""

    type_name: ClassVar[str] = "DRAW_FACE_KEY_POINTS"
    run_by: ClassVar[RunBy | None] = RunBy(
        "opencv", "pipelines.runners.draw.drawfaces:DrawFaceKeyPointsRunner", ("cv2",), extra="image"
    )

    image_to_ndarray_config: Annotated[ImageToNDArrayConfig | None, Spelling(yaml="image_to_ndarray_config")] = Field(
        default=None, alias="imageToNDArrayConfig"
    )
    """The `config` of the `IMAGE_TO_NDARRAY` step that made the network's input, if boxes are fractions of that input:
    they are converted to fractions of the image."""
    resize_h: Annotated[Int, Field(ge=0)] = 0
    """Height in pixels for `scale`."""
    resize_w: Annotated[Int, Field(ge=0)] = 0
    """Width in pixels for `scale`."""
    draw_face_box: bool = True
    """Whether to draw the faces' boxes."""
    face_box_color: str | None = None
    """Colour of the boxes; default: lime."""
    point_color: str | None = None
    """Colour of the landmarks; default: red."""
    point_size: Annotated[Int, Field(ge=0)] = 1
    """Radius of a landmark in pixels."""
    scale: Scale = "NONE"
    """Before drawing, `AT_LEAST` enlarges the image to at least `resizeW` x `resizeH` pixels, `AT_MOST` shrinks it to
    at most that; the proportions stay."""
    landmark_array: str | None = None
    """Key of the landmarks, an array of floats `[faces, 2 * n]`: x, y, x, y, ... in fractions of the face's box;
    default: the record's only array."""
    image: str | None = None
    """Key of the image; default: the record's only image."""
    output_name: Key | None = None
    """Key of the picture; default: `image`."""
    bbox_name: Annotated[str, EXTENSION] = "img_bbox"
    """Key of the box or list of boxes, one for each face; Konduit Serving always reads `img_bbox`."""
