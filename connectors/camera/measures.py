"""The metrics of cameras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, get_args

from connectors.camera.health import Health, State
from connectors.camera.waiting import Cause
from connectors.measures import Measure

_CAUSES: Final = get_args(Cause)


def measures_of(cameras: Mapping[str, Health]) -> Sequence[Measure]:
    """The measures of these cameras, each with the label `camera`."""
    return [measure for name, health in cameras.items() for measure in _of(health, {"camera": name})]


def _of(health: Health, camera: Mapping[str, str]) -> Iterator[Measure]:
    now = health.now
    for state in State:
        text = "1 for the state that the camera is in"
        yield Measure("state", text, now is state, "gauge", {**camera, "state": state.value})
    yield Measure("fps", "Pictures a second, over the last five seconds", health.fps, "gauge", camera)
    yield Measure("pictures", "Pictures that were decoded", health.pictures, labels=camera)
    yield Measure("delivered", "Pictures that became records", health.delivered, labels=camera)
    for cause in _CAUSES:
        text = "Pictures that were not run, by cause"
        yield Measure("dropped", text, health.drops[cause], labels={**camera, "cause": cause})
    yield Measure("reconnects", "Connections after the first", health.reconnects, labels=camera)
    yield Measure("stalls", "Connections that were up and gave no pictures", health.stalls, labels=camera)
    if health.skew is not None:
        text = "Seconds by which the camera's clock is behind the receipt of its pictures"
        yield Measure("skew_seconds", text, health.skew, "gauge", camera)
