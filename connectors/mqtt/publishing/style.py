"""`Style`: the properties that all messages of a sink share."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.mqtt.protocol.packets import Publish


@dataclass(frozen=True, slots=True)
class Style:
    """How messages are published. `properties` are those of every message, encoded, without their length in front."""

    topic: str
    qos: int = 1
    retain: bool = False
    properties: bytes = b""
    content_type: bool = False
    """Whether a content type is among `properties`."""
    headers: bool = True
    """Whether headers become user properties."""
    letters: bool = False
    """Whether messages are dead letters, whose headers have to arrive even without user properties."""
    birth: Publish | None = None
    """Published whenever a connection begins."""
    leaving: Publish | None = None
    """Published when the sink disconnects; when the connection is lost the broker publishes it as the will."""
