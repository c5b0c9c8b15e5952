"""Takes acknowledgements, PUBACK to PUBCOMP, out of the bytes of a connection in bulk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from connectors.mqtt.protocol.packets import V5, PacketType, Version
from connectors.mqtt.protocol.reading import LARGEST, read_header
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode
from connectors.mqtt.protocol.scan import MANY, Stopped
from pipelines.data.spans import Bytes


@dataclass(slots=True)
class ScannedAcks:
    """N acknowledgements in the order in which they came, as columns of N."""

    packet_ids: npt.NDArray[np.uint16]
    kinds: npt.NDArray[np.uint8]
    """A `PacketType`: 4 PUBACK, 5 PUBREC, 6 PUBREL, 7 PUBCOMP."""
    reasons: npt.NDArray[np.uint8]
    """A `ReasonCode`; 0 in MQTT 3.1.1."""
    consumed: int
    """Bytes of the packets that were read."""
    stopped: Stopped
    """AGAIN: `max_records` were taken. OTHER_PACKET: a `PacketReader` takes the next packet, or raises its error."""

    def __len__(self) -> int:
        return len(self.packet_ids)


def scan_acks(
    buffer: Bytes,
    version: Version,
    start: int = 0,
    stop: int | None = None,
    max_records: int = MANY,
    max_packet: int = LARGEST,
) -> ScannedAcks:
    """The acknowledgements that `buffer[start:stop]` begins with, as long as they have no properties.

    Packets that break the rules are left to the reader, as are acknowledgements with properties.
    """
    stop = len(buffer) if stop is None else stop
    if not 0 <= start <= stop <= len(buffer):
        raise ValueError(f"bytes {start} to {stop} are not in a buffer of {len(buffer)}")
    rows, end = _rows(buffer.data, start, stop, version, max_records)
    ids = np.array(rows[0], np.uint16)
    kinds, reasons = np.array(rows[1:], np.uint8)
    stopped = Stopped.AGAIN if len(ids) == max_records else _stopped(buffer.data, end, stop, version, max_packet)
    return ScannedAcks(ids, kinds, reasons, end - start, stopped)


def _stopped(raw: memoryview, at: int, stop: int, version: Version, max_packet: int) -> Stopped:
    if at == stop:
        return Stopped.NEED_MORE
    try:
        header = read_header(raw, at, stop, version, max_packet)
    except ProtocolError:
        return Stopped.OTHER_PACKET
    return Stopped.NEED_MORE if header is None or header[1] > stop else Stopped.OTHER_PACKET


_FIRST: Final = {0x40: PacketType.PUBACK, 0x50: PacketType.PUBREC, 0x62: PacketType.PUBREL, 0x70: PacketType.PUBCOMP}
_FAILURES: Final = frozenset(reason for reason in ReasonCode if reason.failed)
_CODES: Final = {
    PacketType.PUBACK: _FAILURES | {0, ReasonCode.NO_MATCHING_SUBSCRIBERS},
    PacketType.PUBREC: _FAILURES | {0, ReasonCode.NO_MATCHING_SUBSCRIBERS},
    PacketType.PUBREL: _FAILURES | {0},
    PacketType.PUBCOMP: _FAILURES | {0},
}


def _rows(
    raw: memoryview, at: int, stop: int, version: Version, most: int
) -> tuple[tuple[list[int], list[int], list[int]], int]:
    """Packet identifiers, kinds and reasons, and the place of the first other packet."""
    ids: list[int] = []
    kinds: list[int] = []
    reasons: list[int] = []
    while at + 4 <= stop and len(ids) < most:
        kind, length = _FIRST.get(raw[at]), raw[at + 1]
        end = at + 2 + length
        packet_id = raw[at + 2] << 8 | raw[at + 3]
        plain = length == 2 or (version == V5 and (length == 3 or length == 4) and end <= stop)
        if kind is None or not plain or not packet_id:
            break
        reason = 0 if length == 2 else raw[at + 4]
        if reason not in _CODES[kind] or (length == 4 and raw[at + 5]):
            break
        ids.append(packet_id)
        kinds.append(kind)
        reasons.append(reason)
        at = end
    return (ids, kinds, reasons), at
