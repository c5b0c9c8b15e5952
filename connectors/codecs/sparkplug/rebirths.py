"""`Rebirths`: requests to edge nodes to send their births again, limited in rate."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from connectors.codec import Request
from connectors.codecs.sparkplug.topics import SparkplugTopic, command_topic
from protos import sparkplug_pb2 as pb

_BOOLEAN: Final = 11
"""The datatype of a metric that is true or false."""
_MOST: Final = 10_000
"""The most edge nodes for which the time of the last request is kept."""
_MOST_WAITING: Final = 100
"""The most requests that wait to be published, so that a client that sends under ever new names does not cause a
flood."""


class Rebirths:
    """Collects requests to edge nodes, each at most once in `every` seconds."""

    def __init__(self, every: float) -> None:
        self.asked = 0
        """Requests so far."""
        self._every = every
        self._asked_at: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._waiting: list[Request] = []

    def ask(self, place: SparkplugTopic) -> None:
        """Request the births of this edge node: they, or one of its messages, are missing."""
        now = time.monotonic()
        asked = self._asked_at.get(place.node)
        if (asked is not None and now - asked < self._every) or len(self._waiting) >= _MOST_WAITING:
            return
        if asked is None and len(self._asked_at) >= _MOST:
            oldest = next(iter(self._asked_at.values()))
            if now - oldest < self._every:
                return
            self._asked_at.popitem(last=False)
        self._asked_at[place.node] = now
        self._asked_at.move_to_end(place.node)
        self.asked += 1
        self._waiting.append(Request(command_topic(place), _rebirth()))

    def take(self) -> Sequence[Request]:
        """The requests since the last call."""
        if not self._waiting:
            return ()
        requests, self._waiting = self._waiting, []
        return requests


def _rebirth() -> bytes:
    message = pb.Payload(timestamp=time.time_ns() // 1_000_000)
    message.metrics.add(name="Node Control/Rebirth", datatype=_BOOLEAN, boolean_value=True)
    written: bytes = message.SerializeToString()
    return written
