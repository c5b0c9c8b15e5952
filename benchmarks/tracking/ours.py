"""TRACK on a sequence, as a pipeline runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import pipelines
from benchmarks.tracking.scenes import Frame, Ints
from pipelines import BoundingBox, Data, StepError, Track
from pipelines.data.record import RecordContext
from pipelines.executors.executor import Outcome


def tracked(frames: Sequence[Frame], **fields: Any) -> list[Ints]:
    """The id of each box of each frame, `TRACK` having these fields; 0 without a confirmed track.

    Raises the `StepError` of a frame that fails: to score the others alone would be another sequence.
    """
    records = [Data({"boxes": _boxes(frame)}, record=_record(frame)) for frame in frames]
    with pipelines.Sequence([Track(bbox_name="boxes", **fields)]).open() as executor:
        found = executor.run_many(records)
    return [_ids(one) for one in found]


def _ids(found: Outcome) -> Ints:
    if isinstance(found, StepError):
        raise found
    assert isinstance(found, Data), "TRACK gives one result for each record"
    return np.array(found["ids"], np.int64)


def _boxes(frame: Frame) -> list[BoundingBox]:
    pairs = zip(frame.boxes.tolist(), frame.scores.tolist(), strict=True)
    return [BoundingBox.corners(x1, x2, y1, y2, None, score) for (x1, y1, x2, y2), score in pairs]


def _record(frame: Frame) -> RecordContext:
    return RecordContext("cameras", "scene", timestamp=round(frame.time * 1000), lane="scene")
