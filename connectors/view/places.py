"""What a page has to know of a pipeline: its zones and lines, and whether it hides something in pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pipelines import Blur, Zones
from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.walk import walk
from pipelines.errors import StreamerError
from pipelines.steps import Typed
from pipelines.steps.video.zones import Place

MOST_PLACES: Final = 200
"""The most zones and lines that are drawn."""
MOST_POINTS: Final = 10_000
"""The most corners of all zones together."""


def places_of(pipeline: Pipeline | None) -> list[dict[str, Any]]:
    """The zones and lines of all ZONES steps, those of pipelines inside it included, as JSON values.

    Each has `name`, `kind` (`zone` or `line`), `points` in the unit of the boxes, and `cameras` (`None`: all).
    """
    steps = [step for step in _steps(pipeline) or () if isinstance(step, Zones)]
    places = [
        place
        for step in steps
        for place in (
            *(_place(name, "zone", zone, zone.points) for name, zone in step.zones.items()),
            *(_place(name, "line", line, (line.start, line.end)) for name, line in step.lines.items()),
        )
    ]
    drawn, points = [], 0
    for place in places[:MOST_PLACES]:
        points += len(place["points"])
        if points > MOST_POINTS:
            break
        drawn.append(place)
    return drawn


def hides_something(pipeline: Pipeline | None) -> bool:
    """Whether a step of the pipeline blurs what is in boxes, or not all of its steps can be read."""
    steps = _steps(pipeline)
    return steps is None or any(isinstance(step, Blur) for step in steps)


def _steps(pipeline: Pipeline | None) -> list[Typed] | None:
    """The steps of the pipeline, those of pipelines inside it included; `None` if a part cannot be read."""
    try:
        return [] if pipeline is None else [part.what for part in walk(pipeline)]
    except StreamerError:
        # The pipeline itself reports it, when it opens.
        return None


def _place(name: str, kind: str, place: Place, points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    cameras = None if place.cameras is None else list(place.cameras)
    return {"name": name, "kind": kind, "points": [list(point) for point in points], "cameras": cameras}
