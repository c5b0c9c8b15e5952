"""Writes messages and acknowledgements by the batch, as one `bytes` to be sent at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from connectors.mqtt.protocol.fields import MOST, written_varint
from connectors.mqtt.protocol.packets import V5, PacketType, Version
from connectors.mqtt.protocol.writing import topic_field
from pipelines.data.spans import Ints, Spans

Codes: TypeAlias = npt.NDArray[np.int32]
PacketIds: TypeAlias = npt.NDArray[np.uint16]
Payloads: TypeAlias = Spans | Sequence[bytes | None]
EncodedProperties: TypeAlias = bytes | Sequence[bytes | None] | None
"""Properties as `properties.encode_properties` returns them: one for all messages, or one for each; `None`: none."""

_ACKNOWLEDGEMENTS: Final = {
    PacketType.PUBACK: 0x40,
    PacketType.PUBREC: 0x50,
    PacketType.PUBREL: 0x62,
    PacketType.PUBCOMP: 0x70,
}


def encode_acks(kind: PacketType, packet_ids: PacketIds) -> bytes:
    """An acknowledgement, PUBACK to PUBCOMP, for each of these ids, in their order. It is the same in 3.1.1 and 5.

    `packet_ids` are `uint16 (N,)`. Raises `ValueError` for an id of 0 and for another kind of packet.
    """
    first = _ACKNOWLEDGEMENTS.get(kind)
    if first is None:
        raise ValueError(f"{kind.name} is not an acknowledgement: it must be PUBACK, PUBREC, PUBREL or PUBCOMP")
    ids = np.ascontiguousarray(packet_ids, np.uint16)
    if not ids.all():
        raise ValueError(f"{kind.name}: packet identifier 0")
    out = np.empty((len(ids), 4), np.uint8)
    out[:, 0], out[:, 1], out[:, 2], out[:, 3] = first, 2, ids >> 8, ids & 0xFF
    return out.tobytes()


def encode_publishes(
    version: Version,
    topics: Sequence[str],
    payloads: Payloads,
    *,
    codes: Codes | None = None,
    packet_ids: PacketIds | None = None,
    qos: int | npt.NDArray[Any] = 0,
    retain: bool | npt.NDArray[np.bool_] = False,
    dup: bool | npt.NDArray[np.bool_] = False,
    properties: EncodedProperties = None,
) -> bytes:
    """A PUBLISH for each of the N payloads, in their order.

    Message i goes to `topics[codes[i]]` (else to the first topic); a null payload is an empty one. `packet_ids` are
    `uint16 (N,)`, looked at where the QoS is not 0. `qos`, `retain`, `dup` are of all messages or `(N,)`. Raises
    `ValueError`, and writes nothing, for a topic name with wildcards, a packet identifier that is 0, columns that do
    not fit together, and a message that is too large for MQTT.
    """
    fields = [topic_field(topic) for topic in topics]
    count = len(payloads)
    flags, ids = _flags(count, qos, retain, dup), _ids(count, packet_ids, qos)
    bodies = _bodies(version, fields, payloads, codes, qos, properties)
    if len(bodies) and bodies.max() > MOST:
        row = int(bodies.argmax())
        raise ValueError(f"PUBLISH: the message at position {row} has {bodies[row]} bytes: MQTT takes at most {MOST}")
    parts: list[bytes] = []
    write = parts.append
    chosen = [0] * count if codes is None else codes.tolist()
    columns = zip(
        chosen, payloads, flags.tolist(), ids, bodies.tolist(), _each(version, properties, count), strict=True
    )
    for code, payload, flag, packet_id, body, extra in columns:
        write(_HEADS[flag])
        write(_SHORT[body] if body < 128 else written_varint(body))
        write(fields[code])
        if flag & 6:
            write(packet_id.to_bytes(2, "big"))
        write(extra)
        if payload:
            write(payload)
    return b"".join(parts)


_HEADS: Final = [bytes([PacketType.PUBLISH << 4 | flags]) for flags in range(16)]
_SHORT: Final = [bytes([length]) for length in range(128)]


def _flags(count: int, qos: Any, retain: Any, dup: Any) -> npt.NDArray[np.uint8]:
    level = np.asarray(qos, np.int64)
    if level.size and not ((level >= 0) & (level <= 2)).all():
        raise ValueError(f"PUBLISH: QoS {level.max()}: it must be 0, 1 or 2")
    repeated = np.asarray(dup, np.bool_)
    if (repeated & (level == 0)).any():
        raise ValueError("PUBLISH: the flag DUP at QoS 0")
    flags = repeated * 8 + level * 2 + np.asarray(retain, np.bool_)
    return np.broadcast_to(flags, count).astype(np.uint8)


def _ids(count: int, packet_ids: PacketIds | None, qos: Any) -> list[int]:
    numbered = np.broadcast_to(np.asarray(qos) > 0, count)
    if packet_ids is None:
        if numbered.any():
            raise ValueError("PUBLISH: messages of QoS 1 and 2 need packet identifiers")
        return [0] * count
    ids = np.asarray(packet_ids, np.uint16)
    if ids.shape != (count,) or (numbered & (ids == 0)).any():
        raise ValueError(f"PUBLISH: packet identifiers must be {count}, and not 0")
    listed: list[int] = ids.tolist()
    return listed


def _bodies(
    version: Version, fields: list[bytes], payloads: Payloads, codes: Codes | None, qos: Any, properties: Any
) -> Ints:
    """The remaining length of each message."""
    count = len(payloads)
    sizes = np.array([len(field) for field in fields], np.int64)
    if codes is None:
        if not fields:
            raise ValueError("PUBLISH: no topic")
        bodies = np.full(count, sizes[0])
    elif codes.shape != (count,) or (count and (codes.min() < 0 or codes.max() >= len(fields))):
        raise ValueError(f"PUBLISH: there must be {count} codes of topics, each less than {len(fields)}")
    else:
        bodies = sizes[codes]
    bodies = np.asarray(bodies + 2 * (np.asarray(qos) > 0))
    if isinstance(payloads, Spans):
        bodies += np.maximum(payloads.lengths, 0)
    else:
        bodies += np.fromiter((len(payload or b"") for payload in payloads), np.int64, count)
    if version == V5 or properties is not None:
        bodies += np.fromiter(map(len, _each(version, properties, count)), np.int64, count)
    return bodies


def _each(version: Version, properties: EncodedProperties, count: int) -> list[bytes]:
    """The encoded properties of each message."""
    if version != V5:
        if properties is not None:
            raise ValueError("PUBLISH: MQTT 3.1.1 has no properties")
        return [b""] * count
    if properties is None or isinstance(properties, bytes):
        return [properties or b"\0"] * count
    if len(properties) != count:
        raise ValueError(f"PUBLISH: there must be properties of {count} messages, not {len(properties)}")
    return [property_bytes or b"\0" for property_bytes in properties]
