"""`Picture`, one decoded picture, and `Upright`, which turns those that were taken with the camera on its side."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipelines.values.orientation import UPRIGHT, orientation

if TYPE_CHECKING:
    import av
    from av.filter import Graph

_FILTERS: Final[Mapping[int, tuple[str, ...]]] = {
    2: ("hflip",),
    3: ("hflip", "vflip"),
    4: ("vflip",),
    5: ("transpose=cclock_flip",),
    6: ("transpose=clock",),
    7: ("transpose=clock_flip",),
    8: ("transpose=cclock",),
}
"""Filters by the orientation, as EXIF numbers it."""
_OF_MATRIX: Final[Mapping[tuple[int, int, int, int], int]] = {
    (-1, 0, 0, 1): 2,
    (-1, 0, 0, -1): 3,
    (1, 0, 0, -1): 4,
    (0, 1, 1, 0): 5,
    (0, 1, -1, 0): 6,
    (0, -1, -1, 0): 7,
    (0, -1, 1, 0): 8,
}
"""The orientation by a, b, c and d, rounded, of the matrix that says how a picture is shown: x' = ax + cy,
y' = bx + dy. Other matrices turn by a part of a right angle, or not at all."""
_OF_ROTATION: Final[Mapping[int, int]] = {90: 8, -90: 6, 180: 3, -180: 3}
"""The orientation by degrees against the clock."""
_TINY: Final = "scale=2:2"
"""A filter that shrinks a picture to a few pixels and keeps its side data."""


class Picture(NamedTuple):
    """One decoded picture."""

    frame: av.VideoFrame
    seconds: float | None
    """Its time in the stream; `None` if the stream has no times, or libav made them up."""
    clock: float | None
    """When the camera took it, by its own clock, in seconds since 1970; `None` if the camera does not send its time."""
    receipt: float
    """When its data were received, in seconds since 1970."""
    at: float = 0.0
    """When its data were received, on the line of time of `Footage`; 0 without footage."""


class Upright:
    """Turns the pictures of one stream by multiples of 90 degrees, and mirrors them; most streams do not need it.

    Phones record films in the orientation of their sensor, and store the rotation for display beside them. Pictures
    with an orientation in their EXIF data are alike. Players turn them; without that a model would see people lying.
    """

    def __init__(self) -> None:
        self._orientation: int | None = None
        self._rotation = 0
        self._graph: Graph | None = None
        self._of: tuple[int, int, str, int] | None = None

    def turned(self, frame: av.VideoFrame, file: Callable[[], bytes] | None = None) -> av.VideoFrame:
        """The frame as it is to be shown: itself, or a turned copy with the same time.

        `file` gives the image file that it was read from, if it was.
        """
        if file is not None:
            self._orientation = orientation(file())
        # The rotation is quickly read, but does not tell a mirror, which is looked for when a stream begins or turns.
        elif self._orientation is None or frame.rotation != self._rotation:
            self._orientation, self._rotation = _orientation(frame), frame.rotation
        if self._orientation not in _FILTERS:
            return frame
        kind = frame.width, frame.height, frame.format.name, self._orientation
        if self._graph is None or kind != self._of:
            self._graph, self._of = _graph(frame, _FILTERS[self._orientation]), kind
        self._graph.push(frame)
        return self._graph.vpull()


def _orientation(frame: av.VideoFrame) -> int:
    # Reading `side_data` makes a reference cycle with its frame, which keeps the pixels in memory until the garbage
    # collector runs: the side data is read from a tiny copy of the frame.
    graph = _graph(frame, (_TINY,))
    graph.push(frame)
    try:
        matrix: Any = graph.vpull().side_data.get("DISPLAYMATRIX")
    except ValueError:
        # PyAV reads no side data of frames that have some it does not know, as EXIF.
        return _OF_ROTATION.get(frame.rotation, UPRIGHT)
    if matrix is None:
        return UPRIGHT
    a, b, _, c, d, *_ = struct.unpack("=9i", bytes(matrix))
    return _OF_MATRIX.get((_sign(a), _sign(b), _sign(c), _sign(d)), UPRIGHT)


def _sign(part: int) -> int:
    """-1, 0 or 1, of a number with 16 bits behind the point."""
    return max(-1, min(1, round(part / 65536)))


def _graph(frame: av.VideoFrame, filters: tuple[str, ...]) -> Graph:
    from av.filter import Graph

    graph = Graph()
    nodes = [
        graph.add_buffer(
            width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base or Fraction(1, 1000)
        )
    ]
    nodes += [graph.add(*text.split("=")) for text in filters]
    graph.link_nodes(*nodes, graph.add("buffersink")).configure()
    return graph
