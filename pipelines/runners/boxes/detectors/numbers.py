"""How many of a box's numbers are classes, and what the others are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipelines.runners.boxes.detectors.detector import Task
from pipelines.runners.boxes.detectors.given import Given
from pipelines.runners.boxes.detectors.layout import Misfit

_FEWEST: Final = 5
"""A pose has at least so many keypoints, those of a face; fewer numbers are taken for classes."""


@dataclass(frozen=True, slots=True)
class Division:
    """The numbers of a box after its corners (and objectness)."""

    classes: int
    extra: int
    task: Task
    keypoints: tuple[int, int] | None = None


def divided(given: Given, count: int) -> Division | Misfit:
    """How `count` numbers of a box divide into probabilities of classes and further numbers.

    The metadata's task, a second output with prototypes of masks, and keypoints that are named decide. Where they say
    nothing, a count that may be a pose as well as classes is a `Misfit`: it is not guessed.
    """
    task, keypoints = _task(given), given.keypoints
    extra = {"detect": 0, "segment": _prototypes(given) or 0, "obb": 1, "pose": 0}[task]
    if task == "pose":
        if keypoints is None:
            return Misfit("the model finds poses, and says not of how many keypoints: give keypoints: [count, 3]")
        extra = keypoints[0] * keypoints[1]
    if task == "segment" and not extra:
        return Misfit("it has no output [N, 32, H / 4, W / 4] with the prototypes of masks")
    classes, labels = count - extra, given.labels
    if labels is not None and len(labels) != classes:
        return Misfit(_other_count(count, extra, len(labels), task))
    if classes < 1:
        return Misfit(f"a box has {count} numbers beside its corners, fewer than its {extra} further numbers")
    if labels is None and task == "detect" and given.metadata.task is None and _may_be_pose(classes):
        return Misfit(
            f"{classes} numbers of a box may be {classes} classes, or a pose of one class with {(classes - 1) // 3} "
            f"keypoints: give labels, or keypoints: [{(classes - 1) // 3}, 3]"
        )
    return Division(classes, extra, task, keypoints if task == "pose" else None)


def _task(given: Given) -> Task:
    if given.asked.keypoints is not None:
        return "pose"
    written = given.metadata.task
    if written == "segment" or (written is None and _prototypes(given)):
        return "segment"
    if written == "pose":
        return "pose"
    return "obb" if written == "obb" else "detect"


def _prototypes(given: Given) -> int | None:
    """How many prototypes of masks a second output `[N, 32, H / 4, W / 4]` has; `None` if there is none."""
    place = prototypes_at(given)
    shape = None if place is None else given.shapes[place]
    return None if shape is None else shape[1]


def prototypes_at(given: Given) -> int | None:
    """The position of the output with the prototypes of masks; `None` if there is none."""
    places = (place for place, shape in enumerate(given.shapes) if place and shape is not None and len(shape) == 4)
    return next(places, None)


def _may_be_pose(count: int) -> bool:
    return count > 3 * _FEWEST and (count - 1) % 3 == 0


def _other_count(count: int, extra: int, labels: int, task: Task) -> str:
    text = f"there are {labels} labels, and the model has {count - extra} classes"
    left = count - labels
    if task == "detect" and left >= 2 * _FEWEST:
        for numbers in (3, 2):
            if left % numbers == 0:
                return f"{text}, or {left} numbers are keypoints: [{left // numbers}, {numbers}]"
    return text
