"""The trackers of the package trackers. Reads sequences as JSON, writes the ids that each tracker gave to their boxes.

In: `{"trackers": [[class, arguments], ...], "sequences": [[{time, boxes, scores}, ...], ...]}`, times in seconds. Out:
for each tracker, sequence and frame the id of each box, counted from 1; 0 without a track.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import supervision
import trackers


def main() -> None:
    """Answer one request."""
    asked = json.load(sys.stdin)
    found = [
        [_tracked(getattr(trackers, name)(**given), frames) for frames in asked["sequences"]]
        for name, given in asked["trackers"]
    ]
    json.dump(found, sys.stdout)


def _tracked(tracker: Any, frames: list[dict[str, Any]]) -> list[list[int]]:
    found = []
    for frame in frames:
        count = len(frame["boxes"])
        detections = supervision.Detections(
            xyxy=np.array(frame["boxes"], np.float32).reshape(count, 4),
            confidence=np.array(frame["scores"], np.float32),
            # It may put the boxes into another order.
            data={"place": np.arange(count)},
        )
        seen = tracker.update(detections, timestamp=frame["time"])
        ids = np.zeros(count, np.int64)
        if len(seen):
            ids[seen.data["place"]] = seen.tracker_id + 1
        found.append(ids.tolist())
    return found


if __name__ == "__main__":
    main()
