"""The pictures of the step pages: `python docs/pictures.py` draws them anew, all our own.

Those that go into examples are drawn here; those that come out are what the examples give.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import cv2
import numpy as np
import numpy.typing as npt
from stepexamples import examples, pictures

from pipelines import Image

PAGES: Final = Path(__file__).parent / "steps"
FOLDER: Final = PAGES / "pictures"
Pixels = npt.NDArray[np.uint8]

# OpenCV's order: blue, green, red.
_SKY, _GRASS, _ROAD, _WHITE, _DARK = (235, 206, 170), (110, 170, 120), (110, 105, 100), (245, 245, 245), (40, 40, 40)
_BLUE, _RED, _SKIN, _ORANGE = (180, 90, 40), (60, 60, 200), (170, 195, 235), (60, 140, 240)


def main() -> int:
    """Write every picture; prints those that change."""
    for name, pixels in (("street.png", street()), ("board.png", board()), ("face.png", face())):
        _write(name, Image(pixels))
    os.chdir(FOLDER)
    for page in sorted(PAGES.glob("*.md")):
        for example in examples(page):
            if example.runs and "Image.open" in (example.output or ""):
                for name, picture in pictures(*example.run(FOLDER)):
                    _write(name, picture)
    return 0


def street() -> Pixels:
    """A street with two cars and somebody beside it, 240 x 160."""
    picture = _canvas(_SKY)
    cv2.circle(picture, (205, 28), 14, (120, 225, 255), -1, cv2.LINE_AA)
    cv2.rectangle(picture, (0, 70), (240, 160), _GRASS, -1)
    cv2.rectangle(picture, (0, 92), (240, 140), _ROAD, -1)
    for x in range(5, 240, 40):
        cv2.rectangle(picture, (x, 115), (x + 20, 117), _WHITE, -1)
    _car(picture, 24, 84, _BLUE)
    _car(picture, 132, 104, _RED)
    cv2.circle(picture, (108, 58), 6, _SKIN, -1, cv2.LINE_AA)
    cv2.rectangle(picture, (102, 65), (114, 80), _ORANGE, -1)
    cv2.rectangle(picture, (103, 80), (107, 95), _DARK, -1)
    cv2.rectangle(picture, (109, 80), (113, 95), _DARK, -1)
    return picture


def board() -> Pixels:
    """A board of three by two coloured fields, seen from the side, 240 x 160."""
    flat = np.full((120, 180, 3), 255, np.uint8)
    colors = [_RED, _ORANGE, (80, 200, 220), _GRASS, _BLUE, (150, 80, 140)]
    for number, color in enumerate(colors):
        x, y = number % 3 * 60, number // 3 * 60
        cv2.rectangle(flat, (x + 3, y + 3), (x + 56, y + 56), color, -1)
        cv2.putText(flat, str(number + 1), (x + 19, y + 42), cv2.FONT_HERSHEY_SIMPLEX, 1.1, _WHITE, 3, cv2.LINE_AA)
    source = np.array([[0, 0], [180, 0], [0, 120], [180, 120]], "f4")
    target = np.array([[70, 20], [200, 40], [25, 125], [220, 145]], "f4")
    matrix = cv2.getPerspectiveTransform(source, target)
    picture = _canvas((90, 110, 130))
    cv2.warpPerspective(flat, matrix, (240, 160), picture, cv2.INTER_LINEAR, cv2.BORDER_TRANSPARENT)
    return picture


def face() -> Pixels:
    """A face, 240 x 160."""
    picture = _canvas(_SKY)
    cv2.ellipse(picture, (120, 84), (46, 60), 0, 0, 360, _SKIN, -1, cv2.LINE_AA)
    cv2.ellipse(picture, (120, 44), (48, 26), 0, 180, 360, (50, 70, 110), -1, cv2.LINE_AA)
    for x in (101, 139):
        cv2.ellipse(picture, (x, 72), (9, 6), 0, 0, 360, _WHITE, -1, cv2.LINE_AA)
        cv2.circle(picture, (x, 72), 3, _DARK, -1, cv2.LINE_AA)
    cv2.line(picture, (120, 80), (114, 98), (120, 150, 200), 2, cv2.LINE_AA)
    cv2.line(picture, (114, 98), (122, 98), (120, 150, 200), 2, cv2.LINE_AA)
    cv2.ellipse(picture, (120, 112), (18, 9), 0, 0, 180, _RED, 2, cv2.LINE_AA)
    return picture


def _canvas(color: tuple[int, int, int]) -> Pixels:
    return np.full((160, 240, 3), color, np.uint8)


def _car(picture: Pixels, x: int, y: int, color: tuple[int, int, int]) -> None:
    cabin: Any = np.array([[x + 14, y], [x + 46, y], [x + 56, y + 13], [x + 6, y + 13]], np.int32)
    cv2.fillPoly(picture, [cabin], color, cv2.LINE_AA)
    cv2.rectangle(picture, (x + 17, y + 3), (x + 44, y + 12), _SKY, -1)
    cv2.rectangle(picture, (x, y + 13), (x + 68, y + 28), color, -1)
    for wheel in (x + 15, x + 53):
        cv2.circle(picture, (wheel, y + 28), 7, _DARK, -1, cv2.LINE_AA)


def _write(name: str, picture: Image) -> None:
    file = FOLDER / name
    encoded = picture.get_as("png")
    if not file.exists() or file.read_bytes() != encoded:
        file.write_bytes(encoded)
        print(name)


if __name__ == "__main__":
    sys.exit(main())
