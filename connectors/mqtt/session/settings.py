"""`Settings` that a client requests from a broker, and `Granted`, the broker's answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ssl import SSLContext

from connectors.mqtt.address import BrokerAddress
from connectors.mqtt.protocol.packets import V311, Connack, Subscription, Version, Will
from connectors.mqtt.protocol.reading import LARGEST
from connectors.mqtt.session.login import Login

NEVER = 0xFFFF_FFFF
"""The session expiry that means that the session is kept for good."""
SUBSCRIBE_ID = 65_535
"""The packet id of SUBSCRIBE and UNSUBSCRIBE; messages that are published use 1 to 65,534."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one client. Times are in seconds.

    `name` is the prefix of log lines and errors: `source factory`. `tls` makes a new context for each connection, so
    that renewed certificates are read. `version` `None` tries MQTT 5, then 3.1.1. `expiry` says how long the broker
    keeps the session after the connection is lost: 0 not at all, `NEVER` for good; a broker of 3.1.1 knows only 0 and
    for good. `receive_maximum` bounds the messages of QoS 1 and 2 that the broker sends ahead of their
    acknowledgements, and `max_packet` the bytes of a packet that it sends (MQTT 5 tells both to the broker).
    `subscriptions` are sent on each connection that needs them. `takes_over` `False`: the first connection begins a new
    session, as the state of an earlier process's session is not known; later ones resume it. `lasts` `False`: the
    session ends when the client closes it, even before `expiry`.
    """

    name: str
    address: BrokerAddress
    client_id: str
    login: Login = field(default_factory=Login)
    tls: Callable[[], SSLContext] | None = None
    server_name: str | None = None
    version: Version | None = None
    expiry: int = 0
    keep_alive: int = 30
    receive_maximum: int = 65_535
    max_packet: int = LARGEST
    subscriptions: tuple[Subscription, ...] = ()
    will: Will | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    takes_over: bool = True
    lasts: bool = True


@dataclass(frozen=True, slots=True)
class Granted:
    """The broker's grants for a connection; for MQTT 3.1.1 the values that it implies. Times are in seconds."""

    version: Version
    session_present: bool
    """Whether the broker has kept the session: unacknowledged messages come again."""
    client_id: str
    expiry: int
    """How long it keeps the session after the connection is lost."""
    keep_alive: int
    """The keep-alive in seconds; 0: none."""
    receive_maximum: int
    """How many messages of QoS 1 and 2 it accepts ahead of its acknowledgements."""
    max_packet: int
    """Bytes of the largest packet that it accepts."""
    max_qos: int
    """The highest QoS of messages that it accepts."""
    retain: bool
    wildcards: bool
    """Whether topic filters may have wildcards."""
    shared: bool
    """Whether there are shared subscriptions."""
    reply_topic_prefix: str | None
    """The topic prefix for this client's answers, if the broker announces a prefix (Response Information)."""

    @classmethod
    def of(cls, connack: Connack, settings: Settings, version: Version) -> Granted:
        """The grants of this CONNACK for a client with these settings."""
        said = connack.properties

        def or_else(value: bool | None) -> bool:
            return True if value is None else value

        return cls(
            version=version,
            session_present=connack.session_present,
            client_id=said.assigned_client_identifier or settings.client_id,
            expiry=_expiry(settings, said.session_expiry_interval, version),
            keep_alive=settings.keep_alive if said.server_keep_alive is None else said.server_keep_alive,
            receive_maximum=said.receive_maximum or 65_535,
            max_packet=said.maximum_packet_size or LARGEST,
            max_qos=2 if said.maximum_qos is None else said.maximum_qos,
            retain=or_else(said.retain_available),
            wildcards=or_else(said.wildcard_subscription_available),
            shared=or_else(said.shared_subscription_available),
            reply_topic_prefix=said.response_information,
        )


def _expiry(settings: Settings, said: int | None, version: Version) -> int:
    if version == V311:
        return NEVER if settings.expiry else 0
    return settings.expiry if said is None else said


Grants = Mapping[str, int]
"""The QoS that was granted to each topic filter."""
