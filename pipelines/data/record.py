"""`RecordContext`: topic, partition, offset, key and headers of the record that a `Data` came from."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordContext:
    """The record of a bus that a `Data` was decoded from. Never serialised."""

    source: str
    """Name of the source in the service, for example `kafka`."""
    topic: str
    """The topic, or for other buses its counterpart (an MQTT topic, a camera's name)."""
    partition: int = 0
    offset: int = 0
    """Position in the partition; grows, and may have gaps."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    """Milliseconds since 1970-01-01 UTC."""
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Properties that only records of this type of source have, by name, such as `qos` of MQTT; native values."""
    lane: Hashable = field(default=None, repr=False)
    """The sequence that positions count: one partition during one assignment, a session, one connection of a camera.

    State that belongs to a stream of records is kept by lane: `StatefulRunner.forget` is given the lanes that have
    ended. `None` where the record's source has none.
    """
