"""`Subscribing`: the SUBSCRIBE packets of a connection, one after the other, and what their answers grant."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from connectors.mqtt.protocol.packets import V5, Suback, Subscribe, Subscription, Version
from connectors.mqtt.protocol.writing import encode
from connectors.mqtt.session.grants import granted_qos
from connectors.mqtt.session.settings import SUBSCRIBE_ID, Granted, Grants, Settings
from pipelines.errors import ConnectorError

MOST_FILTERS = 8
"""Topic filters of one packet: AWS IoT Core ends the connection at more, and no broker tells its limit."""


class Subscribing:
    """Asks for all subscriptions of `settings`, in packets that a broker with these grants takes.

    Each packet is sent after the answer to the one before, as all have the same packet id. The first one is `packet`.
    Raises `ConnectorError` for a topic filter that does not fit into a packet that the broker accepts.
    """

    def __init__(self, settings: Settings, granted: Granted) -> None:
        self._settings = settings
        self._granted = granted
        self._left = deque(_divided(settings, granted))
        self._asked = self._left.popleft()
        self._grants: dict[str, int] = {}

    @property
    def packet(self) -> Subscribe:
        """The packet whose answer comes next."""
        return _subscribe(self._asked, self._granted.version)

    def answered(self, suback: Suback) -> Grants | None:
        """The QoS of all topic filters if this answers the last packet; `None`: `packet` is to be sent now.

        Raises `ConnectorError`, `Downgraded` and `ProtocolError` as `granted_qos` does.
        """
        self._grants |= granted_qos(suback, self._asked, self._settings)
        if not self._left:
            return self._grants
        self._asked = self._left.popleft()
        return None


def _divided(settings: Settings, granted: Granted) -> Iterator[tuple[Subscription, ...]]:
    part: tuple[Subscription, ...] = ()
    for one in settings.subscriptions:
        longer = (*part, one)
        if part and (len(longer) > MOST_FILTERS or _bytes(longer, granted.version) > granted.max_packet):
            yield part
            longer = (one,)
        if _bytes(longer, granted.version) > granted.max_packet:
            raise ConnectorError(
                f'{settings.name}: the topic filter "{one.filter}" is too long for {settings.address}, which accepts '
                f"packets of at most {granted.max_packet} bytes; raise that limit on the broker"
            )
        part = longer
    yield part


def _bytes(subscriptions: tuple[Subscription, ...], version: Version) -> int:
    return len(encode(_subscribe(subscriptions, version), version))


def _subscribe(subscriptions: Iterable[Subscription], version: Version) -> Subscribe:
    # MQTT 3.1.1 has no other options than the QoS.
    plain = subscriptions if version == V5 else (Subscription(one.filter, one.qos) for one in subscriptions)
    return Subscribe(SUBSCRIBE_ID, tuple(plain))
