"""Which client speaks to the broker."""

from __future__ import annotations

from typing import Literal

from connectors.mqtt.session.inbound import Inbound
from connectors.mqtt.session.session import Session, SessionClient
from connectors.mqtt.session.settings import Settings
from pipelines.errors import ConnectorError


def session(kind: Literal["builtin", "paho"], settings: Settings, client: SessionClient, inbound: Inbound) -> Session:
    """A session that has not begun: the first `turn` connects. `inbound` is not used by paho, which reads by itself.

    Raises `MissingPackageError` without paho-mqtt, `ConnectorError` for what paho cannot do.
    """
    if kind == "paho":
        raise ConnectorError(f"{settings.name}: client: paho cannot be used yet")
    from connectors.mqtt.session.network import NetworkSession

    return NetworkSession(settings, client, inbound)
