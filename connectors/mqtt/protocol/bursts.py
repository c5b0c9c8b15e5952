"""`Bursts`: the packets of a client, with messages that were received together as one block."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from connectors.mqtt.protocol.packets import Packet, PacketType
from connectors.mqtt.protocol.reading import PacketReader
from connectors.mqtt.protocol.scan import Scanned, Scanner, Stopped

_LEAST: Final = 1024
"""Bytes above which a scan costs less than the reader: some ten small messages."""
_JOINED: Final = 4096
"""The most bytes of an incomplete packet that are put in front of the next ones; those of a larger packet would be
copied again and again."""


class Bursts:
    """Reads few packets by `reader`, and scans many at once. The results are the same."""

    def __init__(self, reader: PacketReader) -> None:
        self._reader = reader
        self._scanner: Scanner | None = None

    def feed(self, data: bytes) -> Iterator[Packet | Scanned]:
        """As `PacketReader.feed`, but several messages in a row may come as one block.

        Raises `ProtocolError`, as that does; nothing more is to be fed then.
        """
        reader = self._reader
        if len(data) < _LEAST or reader.kept >= _JOINED:
            yield from reader.feed(data)
            return
        data = reader.take_kept() + data
        view, at = memoryview(data), 0
        while at < len(data):
            if len(data) - at >= _LEAST and data[at] >> 4 == PacketType.PUBLISH and reader.version is not None:
                burst = self._scan(data, at)
                if len(burst):
                    at += burst.consumed
                    yield burst
                if burst.stopped is Stopped.NEED_MORE:
                    break
                if len(burst):
                    continue
            packet_and_end = reader.read(view, at, len(data))
            if packet_and_end is None:
                break
            packet, at = packet_and_end
            yield packet
        reader.keep(data[at:])

    def _scan(self, data: bytes, at: int) -> Scanned:
        reader, scanner = self._reader, self._scanner
        if scanner is None:
            assert reader.version is not None
            scanner = self._scanner = Scanner(
                reader.version, reader.max_packet, role=reader.role, aliases=reader.aliases
            )
        return scanner.scan(np.frombuffer(data, np.uint8), at)
