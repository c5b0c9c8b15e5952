"""What a batch saves in each step: `python -m benchmarks.steps`.

Wall-clock microseconds a record through an executor, a batch of 32 (`run_batch`) against one record at a time (`run`),
the best of many runs. Images are decoded already unless the case says otherwise; OpenCV may use several cores.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import pipelines
from pipelines import (
    Batch,
    BoundingBox,
    Data,
    GrayScale,
    Image,
    ImageCrop,
    ImageResize,
    ImageToNDArray,
    ImageToNDArrayConfig,
    Step,
)

ROWS = 32
SECONDS = 0.5
"""How long each form of each case is measured."""


class Case(NamedTuple):
    """A step, and the records that it is given."""

    name: str
    step: Step
    record: Callable[[int], Data]
    """A record by its number; what it costs to make is not measured."""


def image(width: int, height: int, encoded: str | None = None) -> Callable[[int], Data]:
    """Records with a picture of noise under `image`, all different; `encoded` as `png` or `jpeg`, not yet decoded."""

    def record(number: int) -> Data:
        pixels = np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8)
        made = Image(pixels)
        return Data({"image": made if encoded is None else Image(made.get_as(encoded)), "id": number})

    return record


def to_array(**config: Any) -> Step:
    """IMAGE_TO_NDARRAY with this configuration."""
    return ImageToNDArray(config=ImageToNDArrayConfig(**config))


CASES = [
    Case("IMAGE_TO_NDARRAY 28x28", to_array(), image(28, 28)),
    Case("IMAGE_TO_NDARRAY 28x28 uint8", to_array(data_type="UINT8", normalization=None), image(28, 28)),
    Case("IMAGE_TO_NDARRAY 224x224", to_array(), image(224, 224)),
    Case("IMAGE_TO_NDARRAY 640x480 to 224x224", to_array(height=224, width=224), image(640, 480)),
    Case("IMAGE_TO_NDARRAY 640x480 JPEG to 224x224", to_array(height=224, width=224), image(640, 480, "jpeg")),
    Case("IMAGE_RESIZE 56x56 to 28x28", ImageResize(height=28, width=28), image(56, 56)),
    Case("IMAGE_RESIZE 640x480 to 320x240", ImageResize(width=320), image(640, 480)),
    Case("IMAGE_CROP 56x56, half", ImageCrop(crop_box=BoundingBox.corners(0, 0.5, 0, 1)), image(56, 56)),
    Case("IMAGE_CROP 640x480, half", ImageCrop(crop_box=BoundingBox.corners(0, 0.5, 0, 1)), image(640, 480)),
    Case("GRAY_SCALE 28x28", GrayScale(), image(28, 28)),
    Case("GRAY_SCALE 640x480", GrayScale(), image(640, 480)),
]


def main() -> None:
    """Print a table, a case a line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each form of each case is measured")
    seconds = parser.parse_args().seconds
    width = max(len(case.name) for case in CASES)
    print("us a record".ljust(width), "one by one", f"batch of {ROWS}", "times", sep="  ")
    for case in CASES:
        alone, together = measured(case, seconds)
        print(case.name.ljust(width), f"{alone:10.1f}  {together:11.1f}  {alone / together:5.1f}", sep="  ", flush=True)


def measured(case: Case, seconds: float) -> tuple[float, float]:
    """Microseconds a record: one by one, and in a batch."""
    with pipelines.Sequence([case.step]).open() as executor:

        def one_by_one(datas: list[Data]) -> None:
            for data in datas:
                executor.run(data)

        def at_once(datas: list[Data]) -> None:
            executor.run_batch(Batch.of(datas))

        return _best(one_by_one, case, seconds), _best(at_once, case, seconds)


def _best(run: Callable[[list[Data]], None], case: Case, seconds: float) -> float:
    made = [case.record(number) for number in range(ROWS)]
    best = float("inf")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # Fresh images: one that is decoded keeps its pixels.
        datas = [Data({key: _fresh(value) for key, value in data.items()}) for data in made]
        began = time.perf_counter_ns()
        run(datas)
        best = min(best, time.perf_counter_ns() - began)
    return best / ROWS / 1000


def _fresh(value: Any) -> Any:
    if isinstance(value, Image):
        return Image(value.encoded if value.encoded is not None else value.get_as("numpy"))
    return value


if __name__ == "__main__":
    main()
