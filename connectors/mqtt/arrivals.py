"""`Arrivals`: the bytes of a connection as blocks of messages, read in bulk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from connectors.mqtt.protocol.packets import Version
from connectors.mqtt.protocol.reading import Reader, Role
from connectors.mqtt.protocol.scan import Scanned, Scanner, Stopped
from connectors.mqtt.session.inbound import Inbound, Receive
from pipelines.data.spans import Bytes

_BUFFER = 1 << 20
_LEAST_ROOM = 64 * 1024


class Arrivals(Inbound):
    """Scans what comes; `arrived` gets each block of messages, and `receive` what stands between them, in order.

    What a block points to is never written again. `max_packet` is in bytes.
    """

    def __init__(self, max_packet: int, arrived: Callable[[Scanned], None]) -> None:
        self._max_packet = max_packet
        self._arrived = arrived
        self._scanner: Scanner
        self._reader: Reader
        self._buffer: Bytes = np.empty(0, np.uint8)
        self._start = self._end = 0
        self._needed = 0

    @property
    def held(self) -> int:
        """Bytes that came and belong to no packet yet that is whole."""
        return self._end - self._start

    def begin(self, version: Version) -> None:
        self._scanner = Scanner(version, self._max_packet, strict=False)
        self._reader = Reader(Role.CLIENT, version, self._max_packet)
        self._start = self._end
        self._needed = 0

    def room(self) -> memoryview:
        rest = self._end - self._start
        if len(self._buffer) - self._end < max(_LEAST_ROOM, self._needed - rest):
            fresh = np.empty(max(_BUFFER, self._needed + _LEAST_ROOM), np.uint8)
            fresh[:rest] = self._buffer[self._start : self._end]
            self._buffer, self._start, self._end = fresh, 0, rest
        return self._buffer.data[self._end :]

    def filled(self, count: int, receive: Receive) -> None:
        self._end += count
        if self._needed > self._end - self._start:
            return
        while self._start < self._end:
            scanned = self._scanner.scan(self._buffer, self._start, self._end)
            self._start += scanned.consumed
            self._needed = scanned.needed
            if len(scanned):
                self._arrived(scanned)
            if scanned.stopped is Stopped.NEED_MORE:
                return
            if scanned.stopped is Stopped.OTHER_PACKET:
                raw = self._buffer.data[self._start : self._start + scanned.needed]
                self._start += scanned.needed
                self._needed = 0
                for packet in self._reader.feed(raw):
                    receive(packet)
