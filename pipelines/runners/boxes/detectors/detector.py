"""`Detector`, what the outputs of a detection model mean, and `Candidates`, the boxes that were read from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Activation: TypeAlias = Literal["NONE", "SIGMOID", "SOFTMAX"]
BoxForm: TypeAlias = Literal["x1y1x2y2", "y1x1y2x2", "cxcywh", "xywh"]
Unit: TypeAlias = Literal["pixels", "fractions"]
Task: TypeAlias = Literal["detect", "segment", "pose", "obb"]


@dataclass(frozen=True, slots=True)
class Detector:
    """How the outputs of a model are read as boxes."""

    layout: str
    """The name of the layout, which the registry of layouts finds the decoder by: `yolo8`, `detr`, ..."""
    outputs: tuple[int, ...]
    """Positions of the model's outputs that the decoder reads, in the decoder's order."""
    because: str = ""
    """What it was recognised by, for people: `by its metadata (task detect)`, `by the names of its outputs`."""
    wide: int | None = None
    """Width of the model's input in pixels; `None` where it is open and nothing names one."""
    high: int | None = None
    """Height of the model's input in pixels, or `None`."""
    classes: int | None = None
    """Number of classes; `None` where class numbers are given by the model and their count is not known."""
    labels: tuple[str, ...] | None = None
    """Label of each class; `None`: class numbers are written as text."""
    first_class: int = 0
    """The number by which the model names the class of `labels[0]`."""
    box: BoxForm = "cxcywh"
    """What the four numbers of a box are, in the model's order."""
    unit: Unit = "pixels"
    """Whether they are in pixels of the model's input, or in fractions of it."""
    activation: Activation = "NONE"
    """What makes probabilities of the model's scores."""
    suppress: bool = True
    """Whether several boxes of one object are to be expected, so that non-maximum suppression is needed."""
    task: Task = "detect"
    """What a box has besides its corners: the outline of a mask, keypoints, an angle."""
    extra: int = 0
    """How many further numbers each box has: mask coefficients, keypoints' numbers, an angle."""
    keypoints: tuple[int, int] | None = None
    """How many keypoints a box has, and numbers of each (2: x, y; 3: and visibility)."""
    transposed: bool = False
    """Whether the axes of boxes and of their numbers are exchanged against the layout's usual order."""
    raw: bool | None = None
    """Layout `yolox`: whether boxes are still relative to their cells; `None`: a trial has to show it."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Boxes of all pictures of a batch, n of them, picture after picture: `owner` never falls."""

    owner: npt.NDArray[np.int64]
    """`(n,)`: the picture's position in the batch."""
    corners: npt.NDArray[np.float64]
    """`(n, 4)`: x1, y1, x2, y2 in pixels of the model's input."""
    score: npt.NDArray[np.float32]
    """`(n,)`: probability of the class, 0 to 1."""
    number: npt.NDArray[np.int64]
    """`(n,)`: class, counted from 0: the position of its label."""
    extra: npt.NDArray[np.float32]
    """`(n, E)`: further numbers of each box."""
    left_out: int = 0
    """How many boxes above the threshold were left out, as they are not finite or have no area."""

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, index: npt.NDArray[Any], *, left_out: int = 0) -> Candidates:
        """Those at these positions, or where a mask is true; `left_out` is added to how many were left out."""
        return Candidates(
            self.owner[index],
            self.corners[index],
            self.score[index],
            self.number[index],
            self.extra[index],
            self.left_out + left_out,
        )
