"""`ReceiveBuffer`: memory for the received bytes of a connection, from which packets are taken."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.mqtt.protocol.acknowledgements import ScannedAcks, scan_acks
from connectors.mqtt.protocol.packets import Packet, Version
from connectors.mqtt.protocol.reading import LARGEST, PacketReader, Role, read_header
from connectors.mqtt.protocol.reasons import ProtocolError
from connectors.mqtt.protocol.scan import MANY, Scanned, Scanner
from pipelines.data.spans import Bytes

BLOCK: Final = 256 << 10
"""Bytes of one block of memory for received bytes."""
LEAST_ROOM: Final = 16 << 10
"""Free bytes of a block below which another one is begun."""


class ReceiveBuffer:
    """Receives the bytes of one connection, and takes packets out of them.

    A socket writes into `writable()`, `filled(n)` tells how many bytes, and `scan`, `acks` and `packet` take complete
    packets, in the order of arrival. Columns that were returned stay unchanged as long as they are in use: later bytes
    are written after them, then into another block.

    `role`, `version`, `max_packet` and `strict` are those of `PacketReader` and `Scanner`.
    """

    def __init__(
        self,
        role: Role,
        version: Version | None = None,
        max_packet: int = LARGEST,
        *,
        strict: bool = True,
        block: int = BLOCK,
    ) -> None:
        self.reader = PacketReader(role, version, max_packet)
        self._strict = strict
        self._scanner: Scanner | None = None
        self._block = block
        self._bytes: Bytes = np.empty(block, np.uint8)
        self._at = 0
        self._filled = 0

    @property
    def pending(self) -> int:
        """Bytes that were received and not read."""
        return self._filled - self._at

    @property
    def version(self) -> Version | None:
        """The version of MQTT; a server learns it from the CONNECT."""
        return self.reader.version

    def writable(self) -> memoryview:
        """Memory for the next bytes, at least one; it is valid until the next call of another method."""
        room = len(self._bytes) - self._filled
        missing = self._missing() if self.pending else 0
        if missing > room or (room < LEAST_ROOM and not 0 < missing <= room):
            self._begin(missing)
        return self._bytes.data[self._filled :]

    def filled(self, count: int) -> None:
        """Note that this many bytes were written at the beginning of `writable()`."""
        if not 0 <= count <= len(self._bytes) - self._filled:
            raise ValueError(f"{count} bytes do not fit into a room of {len(self._bytes) - self._filled}")
        self._filled += count

    def scan(self, max_records: int = MANY) -> Scanned:
        """Take messages, as `Scanner.scan` does; `packet` takes the others. Raises `ProtocolError`."""
        version = self.reader.version
        if version is None:
            raise ValueError("the CONNECT has to be taken first: the version of MQTT is not known")
        scanner = self._scanner
        if scanner is None:
            reader = self.reader
            scanner = self._scanner = Scanner(
                version,
                reader.max_packet,
                role=reader.role,
                aliases=reader.aliases,
                strict=self._strict,
            )
        burst = scanner.scan(self._view(), self._at, max_records=max_records)
        self._at += burst.consumed
        return burst

    def acks(self, max_records: int = MANY) -> ScannedAcks:
        """Take acknowledgements, as `scan_acks` does; `packet` takes other packets, and raises errors."""
        version = self.reader.version
        if version is None:
            raise ValueError("the CONNECT has to be taken first: the version of MQTT is not known")
        limit = self.reader.max_packet
        burst = scan_acks(self._view(), version, self._at, None, max_records, limit)
        self._at += burst.consumed
        return burst

    def packet(self) -> Packet | None:
        """Take the next packet, of any type; `None` if it is incomplete. Raises `ProtocolError`."""
        packet_and_end = self.reader.read(self._bytes.data, self._at, self._filled)
        if packet_and_end is None:
            return None
        packet, self._at = packet_and_end
        return packet

    def unread(self) -> memoryview:
        """The bytes that were received and not taken. Valid until the next call of another method."""
        return self._bytes.data[self._at : self._filled].toreadonly()

    def drop(self, count: int) -> None:
        """Discard the next bytes. The rest of their packet cannot be read then."""
        if not 0 <= count <= self.pending:
            raise ValueError(f"{count} bytes are to be dropped, and {self.pending} came")
        self._at += count

    def _view(self) -> Bytes:
        """The received bytes of the block. The rest of it may be written to meanwhile, so it is not included."""
        view = self._bytes[: self._filled]
        view.flags.writeable = False
        return view

    def _missing(self) -> int:
        """The number of bytes that the next packet lacks; 0 if it is complete or its length is not known."""
        reader = self.reader
        try:
            header = read_header(self._bytes.data, self._at, self._filled, reader.version, reader.max_packet)
        except ProtocolError:
            return 0
        return 0 if header is None else max(0, header[1] - self._filled)

    def _begin(self, missing: int) -> None:
        """Begin another block with the bytes that were not taken."""
        pending = self.pending
        # Memory grows with the received bytes, not with the length that a header announces.
        size = min(pending + missing, 4 * max(pending, self._block))
        block = np.empty(max(self._block, size, pending + LEAST_ROOM if not missing else 0), np.uint8)
        block[:pending] = self._bytes[self._at : self._filled]
        self._bytes, self._at, self._filled = block, 0, pending
