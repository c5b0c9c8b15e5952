"""`Limits`: the resources of a server that its clients may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits for clients. Sizes are in bytes, times in seconds."""

    connections: int = 1000
    """Connections at a time. For a further one the oldest without a CONNECT is closed; without one, it is itself."""
    per_address: int | None = None
    """Connections from one IP address at a time, likewise; by default half of `connections`, and all of them from this
    machine, where a proxy may stand in front of many clients."""
    max_packet: int = 16 * 2**20
    """The largest packet. Announced to clients of MQTT 5; a client that sends a larger one is disconnected (0x95)."""
    unfinished: int = 256 * 2**20
    """Incomplete packets of all clients together; the client that exceeds it is disconnected (0x97)."""
    connect_time: float = 10.0
    """From the connection, TLS included, to the whole CONNECT."""
    packet_time: float = 120.0
    """From the first byte of a packet to its last."""
    unread: int = 8 * 2**20
    """Bytes queued for a client that does not read; beyond that it is disconnected (0x97)."""
