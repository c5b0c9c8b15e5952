"""Chooses the client library of a session."""

from __future__ import annotations

from typing import Literal

from connectors.mqtt.session.inbound import Inbound
from connectors.mqtt.session.session import Session, SessionClient
from connectors.mqtt.session.settings import Settings
from pipelines.plugins.requirements import Package


def session(kind: Literal["builtin", "paho"], settings: Settings, client: SessionClient, inbound: Inbound) -> Session:
    """A session that has not begun: the first `turn` connects.

    Raises `MissingPackageError` without paho-mqtt.
    """
    from connectors.mqtt.session.network import NetworkSession

    if kind == "builtin":
        return NetworkSession(settings, client, inbound)
    Package("paho", "mqtt").check(f"{settings.name} (client: paho)")
    from connectors.mqtt.session.paholink import PahoLink

    return NetworkSession(settings, client, inbound, PahoLink)
