"""What a client asks of a broker, and what the broker grants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ssl import SSLContext

from connectors.mqtt.address import Address
from connectors.mqtt.protocol.packets import V311, Connack, Subscription, Version, Will
from connectors.mqtt.protocol.reading import LARGEST
from connectors.mqtt.session.login import Login

NEVER = 0xFFFF_FFFF
"""A session expiry of so many seconds means that the session is kept for good."""
SUBSCRIBE_ID = 65_535
"""The packet id of SUBSCRIBE and UNSUBSCRIBE; messages that are published use 1 to 65,534."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What one client asks for. Times are in seconds.

    `name` begins messages: `source factory`. `tls` is made anew for each connection, so that certificates that were
    renewed are read. `version` `None` tries MQTT 5, then 3.1.1. `expiry` says how long the broker keeps the session
    after the connection is lost: 0 not at all, `NEVER` for good; a broker of 3.1.1 knows only 0 and for good.
    `receive_maximum` bounds the messages of QoS 1 and 2 that the broker sends ahead of their acknowledgements, and
    `max_packet` the bytes of what it sends at once (MQTT 5 tells both to the broker). `subscriptions` are asked for
    whenever the connection is made. `takes_over` `False`: the first connection begins a session of its own, as nothing
    of one that an earlier process left is known; the later ones go on with it. `lasts` `False`: the session
    ends when it is closed, whatever `expiry` says.
    """

    name: str
    address: Address
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
    """What the broker said to a connection, in MQTT 3.1.1 what it stands for. Times are in seconds."""

    version: Version
    session_present: bool
    """Whether the broker has kept the session: what was not acknowledged comes again."""
    client_id: str
    expiry: int
    """How long it keeps the session after the connection is lost."""
    keep_alive: int
    """Within what time it wants to hear of the client; 0: it does not care."""
    receive_maximum: int
    """How many messages of QoS 1 and 2 it takes ahead of its acknowledgements."""
    max_packet: int
    """Bytes of the largest packet that it takes."""
    max_qos: int
    """The highest QoS of messages that it takes."""
    retain: bool
    wildcards: bool
    """Whether topic filters may have wildcards."""
    shared: bool
    """Whether there are shared subscriptions."""
    reply_topic_prefix: str | None
    """Where it lets this client receive answers, if it says so (Response Information)."""

    @classmethod
    def of(cls, connack: Connack, settings: Settings, version: Version) -> Granted:
        """What this CONNACK grants a client that asked for `settings`."""
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
