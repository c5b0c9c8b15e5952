"""How much of a server its clients may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What strangers are held to. Sizes are in bytes, times in seconds."""

    connections: int = 1000
    """Connections at a time; more are closed as they come."""
    max_packet: int = 16 * 2**20
    """The largest packet; a client of MQTT 5 is told, who sends a larger one is disconnected (0x95)."""
    unfinished: int = 256 * 2**20
    """Of packets that have begun and are not whole yet, of all clients; who exceeds it is disconnected (0x97)."""
    connect_time: float = 10.0
    """From the connection, TLS included, to the whole CONNECT."""
    packet_time: float = 120.0
    """From the first byte of a packet to its last."""
    unread: int = 8 * 2**20
    """What waits for a client that does not read; beyond that it is disconnected (0x97)."""
