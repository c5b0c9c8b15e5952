"""Runs SHOW_IMAGE."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, ClassVar, Protocol

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.errors import DataError, RowsFailed
from pipelines.runners.images.imagecolumns import image_values, only_image_keys, over_parts
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.images.images import ShowImage
from pipelines.values import Image

SMALLEST = 64
"""Least width and height of a window that fits its image."""


class Screen(Protocol):
    """Interface to a desktop: opens windows with images and closes them."""

    def show(self, title: str, image: Image, width: int, height: int) -> None:
        """Show the image in the window with this title, which is opened if need be, and set the window's size."""

    def close(self) -> None:
        """Close the windows."""


class ShowImageRunner(Runner):
    """Shows images in windows and passes the batch on as it is.

    Without a display, or with an OpenCV that has no windows (`opencv-python-headless`), it warns once when it opens
    and ignores all rows. Fails a row that has no image, or a list of other than one without `allowMultiple`.
    """

    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True
    carried: ClassVar[bool] = True
    alone = True

    def __init__(self, step: ShowImage, context: OpenContext, screen: Screen | None = None) -> None:
        self._step = step
        self._screen = screen
        if screen is not None:
            return
        if reason := no_windows():
            warnings.warn(f"SHOW_IMAGE shows nothing and passes records on: {reason}", RuntimeWarning, stacklevel=2)
        else:
            self._screen = OpenCVScreen()

    @property
    def reads(self) -> frozenset[str] | None:
        if self._screen is None:
            return frozenset()
        return None if self._step.image_name is None else frozenset([self._step.image_name])

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset()

    def run_batch(self, batch: Batch) -> Result:
        if self._screen is None:
            return Result(batch)
        return Result(over_parts(batch, only_image_keys(batch, self._step.image_name), self._shown))

    def close(self) -> None:
        if self._screen is not None:
            self._screen.close()

    def _shown(self, batch: Batch, key: str) -> Batch:
        values = image_values(batch, key)
        if not self._step.allow_multiple:
            self._check_single(values, key)
        for value in values:
            if isinstance(value, Image):
                self._show(self._step.display_name, value)
                continue
            for number, image in enumerate(value):
                self._show(f"{self._step.display_name}_{number}", image)
        return batch

    def _check_single(self, values: list[Any], key: str) -> None:
        failures: dict[int, Exception] = {
            row: DataError(f'"{key}" is a list of {len(value)} images; set "allowMultiple" to show them')
            for row, value in enumerate(values)
            if not isinstance(value, Image) and len(value) != 1
        }
        if failures:
            raise RowsFailed(failures)

    def _show(self, title: str, image: Image) -> None:
        assert self._screen is not None
        width = self._step.width or max(image.width, SMALLEST)
        height = self._step.height or max(image.height, SMALLEST)
        self._screen.show(title, image, width, height)


class OpenCVScreen:
    """Windows of OpenCV's highgui."""

    def __init__(self) -> None:
        import cv2

        self._cv2 = cv2
        self._titles: set[str] = set()

    def show(self, title: str, image: Image, width: int, height: int) -> None:
        """Show the image in the window with this title."""
        if title not in self._titles:
            self._cv2.namedWindow(title, self._cv2.WINDOW_NORMAL)
            self._titles.add(title)
        self._cv2.resizeWindow(title, width, height)
        self._cv2.imshow(title, image.get_as("numpy"))
        # Windows are painted while OpenCV waits for a key.
        self._cv2.waitKey(1)

    def close(self) -> None:
        """Close the windows."""
        for title in self._titles:
            self._cv2.destroyWindow(title)


def no_windows() -> str:
    """Why no window can be opened here; empty if one can."""
    # Asked for first: where there is no display, some builds of OpenCV end the process instead of raising.
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no display (DISPLAY is not set)"
    try:
        import cv2
    except ImportError:
        return "OpenCV is not installed (pip install opencv-python)"
    try:
        cv2.destroyAllWindows()
    except cv2.error:
        return "this OpenCV has no windows (opencv-python has, opencv-python-headless has not)"
    return ""
