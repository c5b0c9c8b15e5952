"""The states of several steps in one piece of bytes: a version, then each step's name and state with their lengths."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from pipelines.errors import StreamerError

_VERSION = b"\x01"
_LENGTHS = struct.Struct("<IQ")


def packed(states: Mapping[str, bytes]) -> bytes:
    """All states by their step's name; empty for none."""
    if not states:
        return b""
    parts = [_VERSION]
    for name, state in states.items():
        encoded = name.encode()
        parts += [_LENGTHS.pack(len(encoded), len(state)), encoded, state]
    return b"".join(parts)


def unpacked(packet: bytes) -> dict[str, bytes]:
    """The states that `packed` was given. Raises `StreamerError` for other or damaged bytes."""
    if not packet:
        return {}
    if packet[:1] != _VERSION:
        raise StreamerError("the saved state has another format than this version writes; start without it")
    states: dict[str, bytes] = {}
    position = 1
    while position < len(packet):
        head = packet[position : position + _LENGTHS.size]
        if len(head) < _LENGTHS.size:
            raise _truncated()
        name_length, state_length = _LENGTHS.unpack(head)
        start = position + _LENGTHS.size + name_length
        position = start + state_length
        if position > len(packet):
            raise _truncated()
        states[packet[start - name_length : start].decode(errors="replace")] = packet[start:position]
    return states


def _truncated() -> StreamerError:
    return StreamerError("the saved state ends too early; it was not written whole, start without it")
