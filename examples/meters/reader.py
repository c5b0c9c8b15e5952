"""Reads the number that a meter shows, by the models of PP-OCR in the package rapidocr."""

from __future__ import annotations

import re
from typing import Any

from pipelines import BoundingBox, Data

_NUMBER = re.compile(r"\d{3,}")


class Reader:
    """Puts beside `image` what its meter shows: `reading`, how sure the model is, and the box of the number.

    Of several numbers the tallest counts. A record in whose picture there is none fails. `least` is how sure the model
    has to be, from 0 to 1.
    """

    def __init__(self, least: float = 0.8) -> None:
        self._least = least
        self._models: Any = None

    def open(self) -> None:
        """Load the models, which are in the package: nothing is downloaded."""
        from rapidocr import RapidOCR

        threads = {f"EngineConfig.onnxruntime.{kind}_op_num_threads": 1 for kind in ("intra", "inter")}
        # Pictures are made smaller, and never larger, before text is looked for in them.
        size = {"Det.limit_type": "max", "Det.limit_side_len": 480}
        self._models = RapidOCR(params={"Global.log_level": "error", **threads, **size})

    def close(self) -> None:
        """Let the models go."""
        self._models = None

    def __call__(self, data: Data) -> Data:
        """Meters hang upright: the model that turns text around is left out."""
        image = data["image"]
        found = self._models(image.get_as("numpy"), use_cls=False)
        numbers = [
            (corners, text, float(score))
            for corners, text, score in zip(found.boxes, found.txts, found.scores, strict=True)
            if _NUMBER.fullmatch(text) and score >= self._least
        ] if found.txts else []  # fmt: skip
        if not numbers:
            raise ValueError(f"no number can be read; what is there: {', '.join(found.txts or ()) or 'no text'}")
        corners, text, score = max(numbers, key=lambda one: float(one[0][:, 1].max() - one[0][:, 1].min()))
        left, top = corners.min(axis=0) / (image.width, image.height)
        right, bottom = corners.max(axis=0) / (image.width, image.height)
        data["reading"] = int(text)
        data["probability"] = score
        data["display"] = BoundingBox.corners(*map(float, (left, right, top, bottom)), text, score)
        return data
