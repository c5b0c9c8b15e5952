"""Scenes of boxes that move: the true place of each object, and the boxes of a detector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

WIDTH, HEIGHT = 1920, 1080
SEEDS: Final = 5
"""Sequences of each scene."""


class Frame(NamedTuple):
    """A frame: objects that are there, and boxes that a detector found, which lie in no order."""

    time: float
    """Seconds."""
    objects: Ints
    """Which objects are in the picture, `(T,)`."""
    truth: Doubles
    """Where they are: `x1, y1, x2, y2` in pixels, `(T, 4)`."""
    boxes: Doubles
    """The boxes found, `(N, 4)`."""
    scores: Doubles
    """How sure the detector is of each box, `(N,)`."""


@dataclass(frozen=True, slots=True)
class Detector:
    """The errors of a detector."""

    rate: float = 30.0
    """Frames a second."""
    lost: float = 0.0
    """The part of the frames that never come."""
    missed: float = 0.05
    """The part of the objects that it does not find in a frame."""
    jitter: float = 0.02
    """Standard deviation of a centre and of a size, as a part of the object's size."""
    made_up: float = 0.0
    """Boxes a frame, on average, where nothing is."""
    hidden: float = 0.0
    """The part of the time that an object is hidden: half (a low score), and now and then wholly (no box)."""


Motion: TypeAlias = Callable[[np.random.Generator, Doubles], tuple[Doubles, npt.NDArray[np.bool_]]]
"""From times `(F,)` to boxes `(objects, F, 4)` and whether each is there."""


def scenes() -> dict[str, Callable[[int], list[Frame]]]:
    """Each scene's name and the frames of one of its sequences, by seed."""
    kinds: dict[str, tuple[Motion, float, Detector]] = {
        "crossings": (crossings, 8.0, Detector()),
        "the same, 10 fps, a tenth of the frames lost": (crossings, 8.0, Detector(rate=10.0, lost=0.1)),
        "false positives": (crossings, 8.0, Detector(made_up=2.0)),
        "coming and going": (walkers, 12.0, Detector(made_up=0.5)),
        "hidden for a while": (walkers, 12.0, Detector(hidden=0.15)),
        "turning": (wanderers, 10.0, Detector(jitter=0.03)),
        "all of it, 15 fps": (walkers, 12.0, Detector(15.0, 0.05, 0.05, 0.03, 1.0, 0.1)),
    }

    def made(name: str, motion: Motion, seconds: float, detector: Detector) -> Callable[[int], list[Frame]]:
        number = list(kinds).index(name)
        return lambda seed: list(_seen(motion, seconds, detector, np.random.default_rng([number, seed])))

    return {name: made(name, *kind) for name, kind in kinds.items()}


def crossings(random: np.random.Generator, times: Doubles) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """Eight objects on straight ways that meet near the middle."""
    count = 8
    angle, speed = random.uniform(0, 2 * np.pi, count), random.uniform(60, 300, (count, 1))
    way = np.column_stack([np.cos(angle), np.sin(angle)]) * speed
    middle = random.uniform([800, 450], [1120, 630], (count, 2))
    met = random.uniform(0.3, 0.7, (count, 1, 1)) * times[-1]
    centre = middle[:, None] + way[:, None] * (times[None, :, None] - met)
    return _boxes(centre, _sizes(random, count)), np.ones(centre.shape[:2], np.bool_)


def walkers(random: np.random.Generator, times: Doubles) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """Twenty objects that come in on one side, and leave on the other."""
    count = 20
    speed = random.uniform(150, 400, (count, 1)) * random.choice([-1, 1], (count, 1))
    begin = random.uniform(-4, times[-1] - 1, (count, 1))
    across = np.where(speed > 0, 0.0, WIDTH) + speed * (times[None, :] - begin)
    height = random.uniform(250, 830, (count, 1))
    sway = 15 * np.sin(random.uniform(0, 6, (count, 1)) + times[None, :] * random.uniform(1, 3, (count, 1)))
    there = (times[None, :] >= begin) & (across >= 0) & (across <= WIDTH)
    return _boxes(np.stack([across, height + sway], axis=2), _sizes(random, count)), there


def wanderers(random: np.random.Generator, times: Doubles) -> tuple[Doubles, npt.NDArray[np.bool_]]:
    """Ten objects that speed up, slow down and turn."""
    count, step = 10, float(times[1] - times[0])
    place = random.uniform([300, 200], [1620, 880], (count, 2))
    way = random.normal(0, 120, (count, 2))
    places = np.empty((count, len(times), 2))
    for at in range(len(times)):
        way += random.normal(0, 260, way.shape) * np.sqrt(step)
        # Back from the edges, as if in a room.
        way = np.where((place < 150) & (way < 0) | (place > [WIDTH - 150, HEIGHT - 150]) & (way > 0), -way, way)
        way *= np.minimum(1.0, 350 / np.linalg.norm(way, axis=1, keepdims=True))
        place = place + way * step
        places[:, at] = place
    return _boxes(places, _sizes(random, count)), np.ones(places.shape[:2], np.bool_)


def _seen(motion: Motion, seconds: float, detector: Detector, random: np.random.Generator) -> Iterator[Frame]:
    times = np.arange(0, seconds, 1 / detector.rate)
    truth, there = motion(random, times)
    hidden = _spells(random, truth.shape[:2], detector.hidden, 0.8 * detector.rate)
    wholly = _spells(random, truth.shape[:2], detector.hidden / 3, 0.4 * detector.rate)
    for at, time in enumerate(times.tolist()):
        if random.random() < detector.lost:
            continue
        objects = np.flatnonzero(there[:, at])
        real = truth[objects, at]
        found = random.permutation(
            np.flatnonzero((random.random(len(objects)) >= detector.missed) & ~wholly[objects, at])
        )
        size = real[found, 2:] - real[found, :2]
        centre = (real[found, :2] + real[found, 2:]) / 2 + random.normal(0, detector.jitter, size.shape) * size
        size = size * (1 + random.normal(0, detector.jitter, size.shape))
        scores = np.where(hidden[objects[found], at], random.uniform(0.15, 0.45, len(found)), 0.0)
        scores = np.where(scores > 0, scores, random.uniform(0.72, 0.98, len(found)))
        wrong = random.poisson(detector.made_up)
        noise = _boxes(random.uniform([0, 0], [WIDTH, HEIGHT], (wrong, 1, 2)), _sizes(random, wrong))[:, 0]
        boxes = np.concatenate([np.hstack([centre - size / 2, centre + size / 2]), noise])
        yield Frame(time, objects, real, boxes, np.concatenate([scores, random.uniform(0.1, 0.8, wrong)]))


def _sizes(random: np.random.Generator, count: int) -> Doubles:
    return random.uniform(70, 160, (count, 1)) * random.uniform([0.6, 1.2], [0.9, 2.0], (count, 2))


def _boxes(centres: Doubles, sizes: Doubles) -> Doubles:
    """Boxes `(objects, frames, 4)` of centres `(objects, frames, 2)` and sizes `(objects, 2)`."""
    half = sizes[:, None] / 2
    return np.concatenate([centres - half, centres + half], axis=2)


def _spells(random: np.random.Generator, shape: tuple[int, ...], part: float, length: float) -> npt.NDArray[np.bool_]:
    """Which objects are hidden in which frames `(objects, frames)`: spells of `length` frames, `part` of the time."""
    begun = random.random(shape) < part / length
    found = np.zeros(shape, np.bool_)
    for after in range(round(length)):
        found[:, after:] |= begun[:, : shape[1] - after]
    return found
