"""`Subscribing`: the SUBSCRIBE packets of a session, in order, and the grants of their SUBACKs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from connectors.mqtt.protocol.packets import V5, Packet, Suback, Subscribe, Subscription, Version
from connectors.mqtt.protocol.reasons import ProtocolError, ReasonCode
from connectors.mqtt.protocol.writing import encode
from connectors.mqtt.session.grants import Downgraded, granted_qos
from connectors.mqtt.session.handshake import GREETING_WAIT
from connectors.mqtt.session.settings import SUBSCRIBE_ID, Granted, Grants, Settings
from connectors.mqtt.session.transport import TransportClosed
from pipelines.errors import ConnectorError

MOST_FILTERS = 8
"""Topic filters of one packet: AWS IoT Core ends the connection at more, and brokers do not announce the limit."""
_NEVER: Final = float("inf")


class Subscribing:
    """Asks for all subscriptions of `settings` on each connection that needs them, in packets that the broker takes.

    Each packet is sent after the answer to the one before, as all have the same packet id.
    """

    def __init__(self, settings: Settings, send: Callable[[Packet], None]) -> None:
        self.anew = False
        """Whether to subscribe on the next connection in any case."""
        self._settings = settings
        self._send = send
        self._granted: Granted | None = None
        self._ever = False
        self._left: deque[tuple[Subscription, ...]] = deque()
        self._asked: tuple[Subscription, ...] = ()
        self._grants: dict[str, int] = {}
        self._until = _NEVER

    def begin(self, granted: Granted) -> None:
        """A connection begins. Raises `ConnectorError` for a topic filter that does not fit into a packet that the
        broker accepts."""
        self._granted, self._asked, self._until = granted, (), _NEVER
        # Every time, as the broker may have lost them; in MQTT 3.1.1 that would bring all retained messages again.
        if granted.version == V5 or not granted.session_present or not self._ever or self.anew:
            self._ask_all(granted)

    def renew(self) -> None:
        """See `Session.renew`."""
        if self._granted is not None and self._granted.version == V5 and self._until == _NEVER:
            self._ask_all(self._granted)

    def answered(self, suback: Suback) -> Grants | None:
        """The QoS of all topic filters if this answers the last packet; `None`: the next one was sent.

        Raises `ConnectorError`, `Downgraded` and `ProtocolError` as `granted_qos` does.
        """
        if not self._asked or self._granted is None:
            raise ProtocolError(ReasonCode.PROTOCOL_ERROR, "SUBACK: it answers no SUBSCRIBE of this client")
        try:
            self._grants |= granted_qos(suback, self._asked, self._settings)
        except (Downgraded, ProtocolError):
            raise
        except ConnectorError as error:
            # A right that is taken away while the service runs may be given back.
            raise ConnectorError(str(error), retriable=error.retriable or self._ever) from None
        if self._left:
            self._ask(self._granted)
            return None
        self._asked, self._until = (), _NEVER
        self._ever, self.anew = True, False
        return self._grants

    def check_time(self, now: float, *, reading: bool) -> None:
        """Raise `TransportClosed` if the broker has not answered for too long.

        While the connection is not read, answers cannot be seen.
        """
        if not reading:
            self._until = max(self._until, now + GREETING_WAIT)
        elif now >= self._until:
            raise TransportClosed(f"{self._settings.address} does not answer SUBSCRIBE within {GREETING_WAIT:.0f} s")

    def _ask_all(self, granted: Granted) -> None:
        if self._settings.subscriptions:
            self._left = deque(_divided(self._settings, granted))
            self._grants = {}
            self._ask(granted)

    def _ask(self, granted: Granted) -> None:
        self._asked = self._left.popleft()
        self._send(_subscribe(self._asked, granted.version))
        self._until = time.monotonic() + GREETING_WAIT


def _divided(settings: Settings, granted: Granted) -> Iterator[tuple[Subscription, ...]]:
    part: tuple[Subscription, ...] = ()
    for subscription in settings.subscriptions:
        longer = (*part, subscription)
        if part and (len(longer) > MOST_FILTERS or _bytes(longer, granted.version) > granted.max_packet):
            yield part
            longer = (subscription,)
        if _bytes(longer, granted.version) > granted.max_packet:
            raise ConnectorError(
                f'{settings.name}: the topic filter "{subscription.filter}" is too long for {settings.address}, '
                f"which accepts packets of at most {granted.max_packet} bytes; raise that limit on the broker"
            )
        part = longer
    yield part


def _bytes(subscriptions: tuple[Subscription, ...], version: Version) -> int:
    return len(encode(_subscribe(subscriptions, version), version))


def _subscribe(subscriptions: Iterable[Subscription], version: Version) -> Subscribe:
    # MQTT 3.1.1 has no other options than the QoS.
    plain = (
        subscriptions
        if version == V5
        else (Subscription(subscription.filter, subscription.qos) for subscription in subscriptions)
    )
    return Subscribe(SUBSCRIBE_ID, tuple(plain))
