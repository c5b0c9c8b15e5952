"""Films of people, cars and cups that move before photos of places, for cameras that nobody has to own.

Where each of them is, is known exactly.

    python film.py            # writes gate.mp4, square.mp4, hall.mp4 and bar.mp4 beside this file
    python film.py FOLDER bar     # only that of the bar, into another folder

It needs av and opencv.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import av
import cv2
import numpy as np

HERE = Path(__file__).parent
FPS, SECONDS = 10, 12
STEPS = 1.7
"""Steps that a person takes in a second."""
SHADOW = 0.4
"""How much darker the ground below a thing is, at most."""


class Place(NamedTuple):
    """Where something is at a moment; between two moments it moves at a steady speed."""

    seconds: float
    x: float
    """The middle of its lower edge, as a fraction of the frame's width."""
    y: float
    """The same as a fraction of the frame's height."""
    high: float
    """Its height as a fraction of the frame's."""


class Box(NamedTuple):
    """Where something is seen: the edges as fractions of the frame, which it may reach beyond."""

    label: str
    x1: float
    y1: float
    x2: float
    y2: float


class Thing(NamedTuple):
    """Something that moves: a picture of it, without what was around it, and its way."""

    picture: str
    label: str
    way: tuple[Place, ...]
    face: tuple[float, float, float, float] | None = None
    """Left, top, right and bottom of the face as fractions of the picture; `None` if there is no face to be seen."""
    shadow: bool = True

    def at(self, seconds: float) -> tuple[Place, bool]:
        """Its place at this time, and whether it moves to the left."""
        for begin, end in zip(self.way, self.way[1:], strict=False):
            if seconds <= end.seconds:
                part = (seconds - begin.seconds) / (end.seconds - begin.seconds)
                x, y, high = (a + (b - a) * part for a, b in zip(begin[1:], end[1:], strict=True))
                if self.label == "person" and end.x != begin.x:
                    y -= 0.012 * high * abs(math.sin(math.pi * STEPS * seconds))
                return Place(seconds, x, y, high), end.x < begin.x
        return self.way[-1], False

    def crossings(self, x: float, seconds: float) -> list[str]:
        """Each time that its middle passes this place of the frame until then: `right` or `left`, where it goes."""
        passed = []
        for begin, end in zip(self.way, self.way[1:], strict=False):
            if (begin.x < x) != (end.x < x):
                when = begin.seconds + (x - begin.x) / (end.x - begin.x) * (end.seconds - begin.seconds)
                if when < seconds:
                    passed.append("right" if begin.x < x else "left")
        return passed


class Scene(NamedTuple):
    """What a camera sees: a photo of the place, and what moves before it, the farthest first."""

    width: int
    height: int
    things: tuple[Thing, ...]


def _across(begin: float, end: float, y: float, high: float, *, back: bool = False) -> tuple[Place, ...]:
    """The way from the left of the frame to its right, or back, out of sight at both ends."""
    left, right = Place(begin, -0.3, y, high), Place(end, 1.3, y, high)
    return (left._replace(x=1.3), right._replace(x=-0.3)) if back else (left, right)


SCENES = {
    "gate": Scene(
        640,
        360,
        (
            Thing("bus", "bus", _across(5.2, 11.8, 0.8, 0.28)),
            Thing("blue-car", "car", _across(0, 5.0, 0.8, 0.25)),
            Thing("green-car", "car", _across(2.0, 8.0, 0.94, 0.27, back=True)),
            Thing("reader", "person", _across(0, 12, 0.99, 0.64), (0.16, 0.02, 0.37, 0.13)),
        ),
    ),
    "square": Scene(
        640,
        480,
        (
            Thing(
                "hiker",
                "person",
                (Place(0, 0.85, 0.74, 0.4), Place(6, 0.6, 0.74, 0.4), Place(12, 0.85, 0.74, 0.4)),
                (0.35, 0.07, 0.47, 0.18),
            ),
            Thing("rucksack", "person", _across(4.5, 12, 0.86, 0.46), (0.51, 0.05, 0.71, 0.16)),
            Thing("gloves", "person", _across(0, 7, 0.97, 0.52, back=True), (0.59, 0.03, 0.73, 0.16)),
        ),
    ),
    "hall": Scene(
        480,
        360,
        (
            Thing(
                "redcap",
                "person",
                (Place(0, 0.5, 0.62, 0.26), Place(8.5, 0.38, 0.97, 0.72), Place(12, -0.25, 0.99, 0.74)),
                (0.45, 0.04, 0.63, 0.17),
            ),
            Thing(
                "blonde",
                "person",
                (Place(0, 1.2, 0.95, 0.64), Place(6, 0.72, 0.93, 0.62), Place(12, 1.2, 0.95, 0.64)),
                (0.39, 0.03, 0.57, 0.16),
            ),
        ),
    ),
    "bar": Scene(
        854,
        480,
        (
            Thing(
                "astronaut",
                "person",
                (
                    Place(0, -0.2, 0.69, 0.62),
                    Place(4, 0.7, 0.69, 0.62),
                    Place(6, 0.7, 0.69, 0.62),
                    Place(12, -0.25, 0.69, 0.62),
                ),
                (0.32, 0.08, 0.51, 0.33),
                shadow=False,
            ),
            Thing(
                "cup",
                "cup",
                (
                    Place(0, 1.15, 0.94, 0.32),
                    Place(4, 0.75, 0.94, 0.32),
                    Place(7, 0.75, 0.94, 0.32),
                    Place(12, -0.1, 0.94, 0.32),
                ),
            ),
        ),
    ),
}
"""What the cameras see, by their names."""
CAMERAS = tuple(SCENES)


def boxes_at(camera: str, seconds: float) -> list[Box]:
    """Where everything is that this camera sees at this time, also what is partly out of the frame or hidden."""
    scene = SCENES[camera]
    boxes = []
    for thing in scene.things:
        place, _ = thing.at(seconds)
        high, wide, _ = _picture(thing.picture).shape
        half = place.high * scene.height * wide / high / scene.width / 2
        box = Box(thing.label, place.x - half, place.y - place.high, place.x + half, place.y)
        if box.x2 > 0 and box.x1 < 1:
            boxes.append(box)
    return boxes


def faces_at(camera: str, seconds: float) -> list[Box]:
    """Where the faces are."""
    scene = SCENES[camera]
    faces = []
    for thing in scene.things:
        if thing.face is None:
            continue
        place, mirrored = thing.at(seconds)
        left, top, right, bottom = thing.face
        if mirrored:
            left, right = 1 - right, 1 - left
        high, wide, _ = _picture(thing.picture).shape
        broad = place.high * scene.height * wide / high / scene.width
        x, y = place.x - broad / 2, place.y - place.high
        faces.append(Box("face", x + left * broad, y + top * place.high, x + right * broad, y + bottom * place.high))
    return faces


def write(path: Path, camera: str, seconds: float = SECONDS) -> None:
    """A film of what this camera sees, as H.264."""
    scene = SCENES[camera]
    photo = cv2.imread(str(HERE / "scenes" / f"{camera}.jpg"))
    photo = cv2.resize(photo, (scene.width, scene.height), interpolation=cv2.INTER_CUBIC)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"preset": "veryfast", "g": str(FPS)})
        stream.width, stream.height, stream.pix_fmt = scene.width, scene.height, "yuv420p"
        for number in range(round(seconds * FPS)):
            picture = photo.copy()
            for thing in scene.things:
                place, mirrored = thing.at(number / FPS)
                _paste(picture, thing, place, mirrored)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")))
        container.mux(stream.encode(None))


def _paste(picture: np.ndarray, thing: Thing, place: Place, mirrored: bool) -> None:
    height, width = picture.shape[:2]
    colours, opacity = _scaled(thing.picture, round(place.high * height), mirrored)
    high, wide = opacity.shape[:2]
    left, top = round(place.x * width - wide / 2), round(place.y * height) - high
    if thing.shadow:
        shadow = _shadow(wide, max(high // 8, 8))
        _blend(picture, np.zeros(1, np.float32), shadow, left, top + high - len(shadow) // 2)
    _blend(picture, colours, opacity, left, top)


def _blend(picture: np.ndarray, colours: np.ndarray, opacity: np.ndarray, left: int, top: int) -> None:
    """Paint over the picture there, as much of it as is inside."""
    inner = np.s_[max(top, 0) : top + len(opacity), max(left, 0) : max(left + opacity.shape[1], 0)]
    place = picture[inner]
    y, x = max(-top, 0), max(-left, 0)
    part = np.s_[y : y + place.shape[0], x : x + place.shape[1]]
    over = colours[part] if colours.ndim == 3 else colours
    place[:] = (place + (over - place) * opacity[part]).astype(np.uint8)


@cache
def _picture(name: str) -> np.ndarray:
    return cv2.imread(str(HERE / "scenes" / f"{name}.webp"), cv2.IMREAD_UNCHANGED)


@cache
def _scaled(name: str, high: int, mirrored: bool) -> tuple[np.ndarray, np.ndarray]:
    picture = _picture(name)
    size = (round(high * picture.shape[1] / picture.shape[0]), high)
    smaller = high < picture.shape[0]
    picture = cv2.resize(picture, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC)
    if mirrored:
        picture = picture[:, ::-1]
    return picture[:, :, :3].astype(np.float32), picture[:, :, 3:].astype(np.float32) / 255


@cache
def _shadow(wide: int, high: int) -> np.ndarray:
    dark = np.zeros((high, wide), np.float32)
    cv2.ellipse(dark, (wide // 2, high // 2), (round(wide * 0.42), high // 4), 0, 0, 360, SHADOW, -1)
    return cv2.GaussianBlur(dark, (0, 0), high / 6)[:, :, None]


def main(arguments: Sequence[str]) -> None:
    """Write the films of these cameras, or of all, into the folder named first."""
    folder = Path(arguments[0]) if arguments else HERE
    for name in arguments[1:] or CAMERAS:
        write(folder / f"{name}.mp4", name)


if __name__ == "__main__":
    main(sys.argv[1:])
