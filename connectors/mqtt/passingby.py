"""`PassingBy`: a message that is too large to be kept, and is discarded while it is received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from connectors.mqtt.protocol.fields import LONGEST, Fields
from connectors.mqtt.protocol.packets import V311, PacketType
from connectors.mqtt.protocol.reading import LARGEST, framed, read_header
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode
from connectors.mqtt.protocol.scan import Scanned, Stopped
from connectors.mqtt.protocol.topictable import TopicTable

_HEAD: Final = LONGEST + 4
"""Bytes at the beginning of a PUBLISH that hold its topic and packet id, at their longest."""


@dataclass(slots=True)
class PassingBy:
    """A PUBLISH of MQTT 3.1.1 of which only the beginning was kept."""

    flags: int
    packet_id: int
    size: int
    """Bytes of its payload."""
    left: int
    """Bytes of it that are still to be discarded."""

    @classmethod
    def of(cls, raw: memoryview) -> Self | None:
        """The packet at the beginning of these bytes; `None` if they do not hold its packet id yet.

        Raises `ProtocolError` if it is no PUBLISH, as no other packet may be so large, or if it breaks the rules.
        """
        header = read_header(raw, 0, len(raw), V311, LARGEST)
        if header is None:
            return None
        body, end = header
        if raw[0] >> 4 != PacketType.PUBLISH:
            name = PacketType(raw[0] >> 4).name
            raise ProtocolError(ReasonCode.PACKET_TOO_LARGE, f"{name}: {end} bytes")
        if len(raw) < min(end, body + _HEAD):
            return None
        message = framed(Fields(raw, body, len(raw), "PUBLISH"), raw[0], V311)
        return cls(raw[0] & 0xF, message.packet_id, end - message.payload, end)

    def passed(self, count: int) -> int:
        """Skip received bytes. Returns how many of them belong to the packet."""
        size = min(count, self.left)
        self.left -= size
        return size

    def row(self) -> Scanned:
        """The message as a block of one, without topic and payload."""
        zero = np.zeros(1, np.int64)
        return Scanned(
            np.zeros(0, np.uint8),
            TopicTable(),
            np.array([self.flags], np.uint8),
            np.array([self.packet_id], np.uint16),
            np.array([-1], np.int32),
            zero,
            zero,
            zero,
            zero,
            0,
            Stopped.AGAIN,
        )
