"""`AckInbound`: acknowledgements out of the bytes of a connection, many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from connectors.mqtt.protocol.bulk import PacketIds
from connectors.mqtt.protocol.packets import V5, PacketType, Version
from connectors.mqtt.protocol.reading import Reader, Role
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode
from connectors.mqtt.session.inbound import Inbound, Receive

Acknowledged = Callable[[PacketType, ReasonCode, PacketIds], None]
"""Told of acknowledgements of one kind with one reason code that came one after the other; ids are `uint16 (N,)`."""

ROOM = 64 * 1024
"""Bytes that are received at once."""
_KINDS: Final = {0x40: PacketType.PUBACK, 0x50: PacketType.PUBREC, 0x70: PacketType.PUBCOMP}
_PLAIN: Final = {(2, 0), (3, int(ReasonCode.SUCCESS)), (3, int(ReasonCode.NO_MATCHING_SUBSCRIBERS))}
"""Length and reason code of acknowledgements that are taken in bulk; all others one by one."""
_RUN: Final = 64


class AckInbound(Inbound):
    """Hands runs of equal acknowledgements to `acknowledged`, every other packet to the session's `receive`."""

    def __init__(self, max_packet: int, acknowledged: Acknowledged) -> None:
        self._max_packet = max_packet
        self._acknowledged = acknowledged
        self._room = memoryview(bytearray(ROOM))
        self._kept = b""
        self._version: Version = V5
        self._reader: Reader

    def begin(self, version: Version) -> None:
        """See `Inbound.begin`."""
        self._kept = b""
        self._version = version
        self._reader = Reader(Role.CLIENT, version, self._max_packet)

    def room(self) -> memoryview:
        """See `Inbound.room`."""
        return self._room

    def filled(self, count: int, receive: Receive) -> None:
        """See `Inbound.filled`."""
        data = self._kept + self._room[:count]
        self._kept = b""
        at, run = 0, _RUN
        while at < len(data):
            taken = self._take_run(data, at, run)
            if taken:
                # Where many are alike, take many more at once; where few are, look at few.
                run = run * 2 if taken >= run * 4 else _RUN
                at += taken
                continue
            found = self._reader.read(memoryview(data), at, len(data))
            if found is None:
                break
            packet, at = found
            receive(packet)
        self._kept = data[at:]

    def _take_run(self, data: bytes, at: int, most: int) -> int:
        """Take up to `most` acknowledgements that are like the one that begins at `at`; their bytes, 0 for none."""
        kind = _KINDS.get(data[at])
        if kind is None or len(data) - at < 4:
            return 0
        length = data[at + 1]
        stride = length + 2
        rows = min((len(data) - at) // stride, most)
        code = data[at + 4] if rows and length == 3 else 0
        if not rows or (length, code) not in _PLAIN or (length == 3 and self._version != V5):
            return 0
        table = np.frombuffer(data, np.uint8, rows * stride, at).reshape(rows, stride)
        alike = (table[:, 0] == data[at]) & (table[:, 1] == length)
        if length == 3:
            alike &= table[:, 4] == code
        if not alike.all():
            rows = int(alike.argmin())
            table = table[:rows]
        ids: PacketIds = (table[:, 2].astype(np.uint16) << 8 | table[:, 3]).astype(np.uint16)
        if not ids.all():
            raise ProtocolError(ReasonCode.PROTOCOL_ERROR, f"{kind.name}: packet identifier 0")
        self._acknowledged(kind, ReasonCode(code), ids)
        return rows * stride
