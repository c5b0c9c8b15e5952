"""Which client speaks to the broker."""

from __future__ import annotations

from typing import Literal

from connectors.mqtt.session.inbound import Inbound
from connectors.mqtt.session.network import NetworkSession
from connectors.mqtt.session.session import Session, SessionClient
from connectors.mqtt.session.settings import Settings


def session(kind: Literal["builtin", "paho"], settings: Settings, client: SessionClient, inbound: Inbound) -> Session:
    """A session that has not begun: the first `turn` connects.

    Raises `ImportError` without paho-mqtt.
    """
    if kind == "paho":
        from connectors.mqtt.session.paho import PahoTransport

        return NetworkSession(settings, client, inbound, PahoTransport)
    return NetworkSession(settings, client, inbound)
