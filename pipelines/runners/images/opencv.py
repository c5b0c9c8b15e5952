"""OpenCV, imported when it is needed."""

from __future__ import annotations

from typing import Any

from pipelines.errors import MissingPackageError


def opencv() -> Any:
    """The module `cv2`. `MissingPackageError` if it is not installed."""
    try:
        import cv2
    except ImportError:
        raise MissingPackageError("opencv-python-headless", "image", "working on the pixels of images") from None
    return cv2
