"""`Upright`: pictures that were taken with the camera on its side are turned as their file or stream says."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import av
    from av.filter import Graph

_TURNS: Final = {
    90: ("transpose=cclock",),
    -90: ("transpose=clock",),
    180: ("hflip", "vflip"),
    -180: ("hflip", "vflip"),
}
"""Filters by the degrees, against the clock, by which a picture is to be turned."""


class Upright:
    """Turns the pictures of one stream by multiples of 90 degrees; most streams do not need it.

    Phones record films in the orientation of their sensor, and store the rotation for display beside them. Pictures
    with an orientation in their EXIF data are alike. Players turn them; without that a model would see people lying.
    """

    def __init__(self) -> None:
        self._graph: Graph | None = None
        self._of: tuple[int, int, str, int] | None = None

    def turned(self, frame: av.VideoFrame) -> av.VideoFrame:
        """The frame as it is to be shown: itself, or a turned copy with the same time."""
        rotation = frame.rotation
        if rotation not in _TURNS:
            return frame
        kind = frame.width, frame.height, frame.format.name, rotation
        if self._graph is None or kind != self._of:
            self._graph, self._of = _graph(frame, _TURNS[rotation]), kind
        self._graph.push(frame)
        return self._graph.vpull()


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
