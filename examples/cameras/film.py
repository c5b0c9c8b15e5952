"""Films of faces that move over a photo, for cameras that nobody has to own: where each face is, is known exactly.

python film.py        # writes gate.mp4, dock.mp4, hall.mp4 and yard.mp4 beside this file; needs av and opencv
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import av
import cv2
import numpy as np

HERE = Path(__file__).parent
CAMERAS = ("gate", "dock", "hall", "yard")
WIDTH, HEIGHT, FPS, SECONDS = 640, 360, 10, 8

_FACE = (58 / 260, 71 / 230, 178 / 260, 160 / 230)
"""Where the face is in `face.jpg`: top, left, bottom and right, as parts of its height and width."""


class Box(NamedTuple):
    """A face: parts of the picture's width and height, from 0 to 1."""

    x1: float
    y1: float
    x2: float
    y2: float


def faces_at(camera: int, seconds: float) -> list[tuple[int, int, int]]:
    """Left, top and height in pixels of each picture of a face that this camera sees at this time."""
    found = []
    for face in range(1 + camera % 2):
        height = 150 + 20 * face
        across = 0.5 + 0.45 * math.sin(0.7 * seconds + 1.3 * camera + 3.1 * face)
        down = 0.5 + 0.4 * math.sin(0.4 * seconds + camera + 2.0 * face)
        # Two faces stay in their halves, so that they do not hide one another.
        room = WIDTH / (1 + camera % 2) - height
        found.append((round(face * WIDTH / 2 + across * room), round(down * (HEIGHT - height)), height))
    return found


def boxes_at(camera: int, seconds: float) -> list[Box]:
    """Where the faces are, exactly."""
    face = cv2.imread(str(HERE / "face.jpg"))
    boxes = []
    for left, top, height in faces_at(camera, seconds):
        width = height * face.shape[1] / face.shape[0]
        y1, x1, y2, x2 = _FACE
        boxes.append(
            Box(
                (left + x1 * width) / WIDTH,
                (top + y1 * height) / HEIGHT,
                (left + x2 * width) / WIDTH,
                (top + y2 * height) / HEIGHT,
            )
        )
    return boxes


def write(path: Path, camera: int, seconds: float = SECONDS) -> None:
    """A film of what this camera sees, as H.264."""
    face = cv2.imread(str(HERE / "face.jpg"))
    table = cv2.resize(cv2.imread(str(HERE / "table.jpg")), (WIDTH, HEIGHT))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=FPS, options={"preset": "veryfast", "g": str(FPS)})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(round(seconds * FPS)):
            picture = table.copy()
            for left, top, height in faces_at(camera, number / FPS):
                _paste(picture, face, left, top, height)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")))
        container.mux(stream.encode(None))


def _paste(picture: np.ndarray, face: np.ndarray, left: int, top: int, height: int) -> None:
    small = cv2.resize(face, (round(height * face.shape[1] / face.shape[0]), height), interpolation=cv2.INTER_AREA)
    mask = np.zeros(small.shape[:2], np.float32)
    centre = (small.shape[1] // 2, small.shape[0] // 2)
    cv2.ellipse(mask, centre, (int(small.shape[1] * 0.42), int(small.shape[0] * 0.44)), 0, 0, 360, 1.0, -1)
    mask = cv2.GaussianBlur(mask, (0, 0), 5)[:, :, None]
    place = picture[top : top + height, left : left + small.shape[1]]
    place[:] = (small * mask + place * (1 - mask)).astype(np.uint8)


if __name__ == "__main__":
    for at, name in enumerate(CAMERAS):
        write(HERE / f"{name}.mp4", at)
