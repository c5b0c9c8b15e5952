"""Pictures of meters, for cameras that nobody has to own: what each meter shows is known exactly.

python drawmeters.py        # writes folders of pictures, power, water and heat, beside this file; needs opencv
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import cv2
import numpy as np

HERE = Path(__file__).parent
COUNT: Final = 6
"""Pictures of each meter."""
WIDTH, HEIGHT = 480, 360


class Meter(NamedTuple):
    """A meter, and how its display looks; colours are blue, green, red."""

    unit: str
    first: int
    """What it shows in its first picture."""
    step: int
    """How much more it shows in each of the next."""
    plate: tuple[int, int, int]
    display: tuple[int, int, int]
    digits: tuple[int, int, int]


METERS: Final = {
    "power": Meter("kWh", 48213, 17, (205, 205, 200), (35, 35, 35), (240, 240, 240)),
    "water": Meter("m3", 731, 1, (190, 150, 110), (235, 235, 235), (25, 25, 25)),
    "heat": Meter("MWh", 905, 3, (215, 220, 225), (150, 185, 165), (30, 40, 30)),
}


def reading_of(name: str, number: int) -> int:
    """What this meter shows in its picture of this number."""
    meter = METERS[name]
    return meter.first + number * meter.step


def picture(name: str, number: int) -> np.ndarray:
    """`uint8 (360, 480, 3)`, blue, green, red: taken askew, in changing light, with a camera's noise."""
    meter, random = METERS[name], np.random.default_rng([list(METERS).index(name), number])
    plate = np.full((HEIGHT, WIDTH, 3), meter.plate, np.uint8)
    cv2.circle(plate, (WIDTH // 2, HEIGHT // 2), 168, tuple(int(part * 0.85) for part in meter.plate), -1)
    cv2.circle(plate, (WIDTH // 2, HEIGHT // 2), 168, (60, 60, 60), 4)
    cv2.rectangle(plate, (120, 130), (360, 200), meter.display, -1)
    cv2.rectangle(plate, (120, 130), (360, 200), (70, 70, 70), 2)
    text = f"{reading_of(name, number):07d}"
    (width, height), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_DUPLEX, 1.6, 2)
    place = (240 - width // 2, 165 + height // 2)
    cv2.putText(plate, text, place, cv2.FONT_HERSHEY_DUPLEX, 1.6, meter.digits, 2, cv2.LINE_AA)
    cv2.putText(plate, meter.unit, (300, 240), cv2.FONT_HERSHEY_SIMPLEX, 0.9, (30, 30, 30), 2, cv2.LINE_AA)
    turned = cv2.getRotationMatrix2D((WIDTH / 2, HEIGHT / 2), random.uniform(-4, 4), random.uniform(0.9, 1.1))
    turned[:, 2] += random.uniform(-15, 15, 2)
    seen = cv2.warpAffine(plate, turned, (WIDTH, HEIGHT), borderValue=(90, 95, 100))
    light = np.linspace(random.uniform(0.7, 1.1), random.uniform(0.7, 1.1), WIDTH)[None, :, None]
    noise = random.normal(0, 5, seen.shape)
    blurred = cv2.GaussianBlur(np.clip(seen * light + noise, 0, 255).astype(np.uint8), (0, 0), 0.8)
    return np.asarray(blurred)


def write(folder: Path, count: int = COUNT) -> None:
    """A folder of each meter, with its pictures in the order of their names."""
    for name in METERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            cv2.imwrite(str(folder / name / f"{number:04d}.jpg"), picture(name, number), [cv2.IMWRITE_JPEG_QUALITY, 88])


if __name__ == "__main__":
    write(HERE)
