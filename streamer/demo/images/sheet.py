"""The contact sheet: a picture of images with the digits that the model took them for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.errors import MissingPackageError, StreamerError
from streamer.demo.images.example import Bytes, Digits

COLUMNS: Final = 12
SAMPLE_ROWS: Final = 5
MISTAKE_ROWS: Final = 4

_SIDE: Final = 72
"""Width and height of an image on the sheet in pixels: nine for each of its eight."""
_CAPTION: Final = 26
_GAP: Final = 14
_MARGIN: Final = 40
_HEAD: Final = 92
_SECTION: Final = 48

_PAPER: Final = (250, 250, 247)
_INK: Final = (32, 34, 40)
_FAINT: Final = (120, 124, 132)
_RIGHT: Final = (26, 137, 78)
_WRONG: Final = (201, 44, 44)


def contact_sheet(digits: Digits, predictions: npt.NDArray[np.int8], path: Path) -> Path:
    """Write a PNG: a sample of the images with their predictions, then the mistakes.

    `predictions` is `int8 (N,)`, the digit that each image was taken for, -1 where there is none. Right ones are
    green, wrong ones red with the true digit. Raises `MissingPackageError` without Pillow, `StreamerError` if the
    file cannot be written.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise MissingPackageError("pillow", "demo", "The contact sheet") from error
    seen = np.flatnonzero(predictions >= 0)
    wrong = seen[predictions[seen] != digits.labels[seen]]
    sample, mistakes = _sample(seen), wrong[: MISTAKE_ROWS * COLUMNS]
    sections = [("A sample", sample)]
    if len(mistakes):
        shown = "" if len(mistakes) == len(wrong) else f", the first {len(mistakes)} of them"
        sections.append((f"Mistakes: {len(wrong)}{shown}; the prediction, and the right digit", mistakes))
    width = 2 * _MARGIN + COLUMNS * (_SIDE + _GAP) - _GAP
    height = _HEAD + sum(_SECTION + _rows(numbers) * _row() for _, numbers in sections) + _MARGIN
    picture = Image.new("RGB", (width, height), _PAPER)
    draw = ImageDraw.Draw(picture)
    right = len(seen) - len(wrong)
    share = f"{right / len(seen):.1%}" if len(seen) else "none"
    draw.text((_MARGIN, 30), "Digits, as the model read them", _INK, _font(26))
    draw.text((_MARGIN, 64), f"{len(seen)} images, {right} right: {share}", _FAINT, _font(16))
    top = _HEAD
    for title, numbers in sections:
        draw.text((_MARGIN, top + 16), title, _INK, _font(18))
        top += _SECTION
        for place, number in enumerate(numbers.tolist()):
            left = _MARGIN + place % COLUMNS * (_SIDE + _GAP)
            at = (left, top + place // COLUMNS * _row())
            _cell(picture, draw, at, digits.images[number], int(digits.labels[number]), int(predictions[number]))
        top += _rows(numbers) * _row()
    try:
        picture.save(path, format="PNG")
    except OSError as error:
        why = error.strerror or error
        raise StreamerError(f"{path.absolute()} cannot be written ({why}); name another place with --sheet") from error
    return path


def _sample(seen: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    count = min(COLUMNS * SAMPLE_ROWS, len(seen))
    return np.sort(np.random.default_rng(7).choice(seen, count, replace=False)) if count else seen


def _cell(picture: Any, draw: Any, at: tuple[int, int], image: Bytes, label: int, prediction: int) -> None:
    from PIL import Image

    left, top = at
    colour = _RIGHT if prediction == label else _WRONG
    ink = 255 - np.minimum(image.astype(np.int32) * 16, 255).astype(np.uint8)
    scaled = Image.fromarray(ink).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    picture.paste(scaled.convert("RGB"), at)
    draw.rectangle(
        (left - 1, top - 1, left + _SIDE, top + _SIDE), outline=colour, width=1 if prediction == label else 3
    )
    text = str(prediction) if prediction == label else f"{prediction}, is {label}"
    draw.text((left + _SIDE / 2, top + _SIDE + _CAPTION / 2 + 2), text, colour, _font(18), anchor="mm")


def _rows(numbers: npt.NDArray[np.intp]) -> int:
    return -(-len(numbers) // COLUMNS)


def _row() -> int:
    return _SIDE + _CAPTION + _GAP


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)
