"""`NetworkSession`: a session on a connection of its own."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from enum import Enum

from connectors.mqtt.protocol.packets import (
    V5,
    V311,
    Auth,
    Connack,
    Disconnect,
    Packet,
    Pingresp,
    Suback,
    Unsuback,
)
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.reasons import Outcome, ProtocolError, ReasonCode, of_disconnect
from connectors.mqtt.protocol.writing import PINGREQ, encode
from connectors.mqtt.session.grants import refuse_what_is_missing
from connectors.mqtt.session.handshake import Handshake
from connectors.mqtt.session.inbound import Inbound
from connectors.mqtt.session.keepalive import KeepAlive
from connectors.mqtt.session.link import Link, MakeLink
from connectors.mqtt.session.retrying import Retrying
from connectors.mqtt.session.session import Session, SessionClient
from connectors.mqtt.session.settings import Granted, Settings
from connectors.mqtt.session.subscribing import Subscribing
from connectors.mqtt.session.transport import Transport, TransportClosed, Waiter
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

_LEAVE_WAIT = 1.0
"""Seconds to wait for written bytes to be sent, and for the broker to close."""
_STEP = 0.5
"""Timeout of a wait while a connection is set up, in seconds; the link has its own deadlines."""


class _State(Enum):
    RESTING = "waiting to connect"
    CONNECTING = "connecting"
    GREETING = "waiting for CONNACK"
    UP = "connected"
    CLOSED = "closed"


class NetworkSession(Session):
    """A session that speaks MQTT itself, on a connection that `link` makes: by default a socket. See `Session`."""

    def __init__(self, settings: Settings, client: SessionClient, inbound: Inbound, link: MakeLink = Transport) -> None:
        self._settings = settings
        self._make_link = link
        self._client = client
        self._inbound = inbound
        self._waiting = Waiter()
        self._state = _State.RESTING
        self._failure: ConnectorError | None = None
        self._link: Link | None = None
        self._retrying = Retrying(settings)
        self._handshake = Handshake(settings)
        self._subscribing = Subscribing(settings, self.send)
        self._keep_alive = KeepAlive(settings.keep_alive)

    @property
    def unsent(self) -> int:
        return 0 if self._link is None else self._link.unsent

    def turn(self, timeout: float, *, read: bool = True) -> bool:
        if self._failure is not None:
            raise self._failure
        try:
            return self._turn(time.monotonic() + max(timeout, 0.0), read)
        except ProtocolError as error:
            self._leave(Disconnect(error.reason), 0.1)
            self._lose(f"{self._settings.address} broke the rules of MQTT: {error}")
        except ConnectorError as error:
            if not error.retriable:
                raise self._fail(error) from error.__cause__
            self._lose(str(error))
        return False

    def idle(self, seconds: float) -> None:
        if self._state is _State.UP:
            self._waiting.idle(seconds)

    def send(self, packet: Packet) -> None:
        self.write(encode(packet, self._handshake.version))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._state is not _State.UP or self._link is None:
            return
        self._keep_alive.sent_at = time.monotonic()
        # The loss of a connection is reported by the next `turn`, not in the middle of the client's work.
        with suppress(TransportClosed):
            self._link.send(data)

    def ping(self) -> int:
        number = self._keep_alive.ask(sent=self._state is _State.UP)
        self.write(PINGREQ)
        return number

    def answered(self, ticket: int) -> bool:
        return self._keep_alive.answered(ticket)

    def restart(self, reason: str, *, subscribe: bool = False) -> None:
        if self._state is _State.CLOSED:
            return
        self._subscribing.anew = subscribe
        self._leave(Disconnect(), _LEAVE_WAIT)
        self._lose(reason, at_once=True)

    def renew(self) -> None:
        if self._state is _State.UP:
            self._subscribing.renew()

    def close(self) -> None:
        if self._state is _State.CLOSED:
            return
        goodbye = Disconnect()
        if not self._settings.lasts:
            goodbye = Disconnect(properties=Properties(session_expiry_interval=0))
        self._leave(goodbye, _LEAVE_WAIT)
        self._drop()
        self._state = _State.CLOSED
        self.down = "closed"
        self._waiting.close()

    def wake(self) -> None:
        self._waiting.wake()

    def woken(self) -> bool:
        return self._waiting.woken()

    def _turn(self, deadline: float, read: bool) -> bool:
        if self._state is _State.CLOSED:
            raise ConnectorError(f"{self._settings.name} is closed")
        if self._state is _State.RESTING and not self._rested(deadline):
            return False
        assert self._link is not None
        if self._state is _State.CONNECTING and not self._connected(self._link, deadline):
            return False
        if self._state is _State.GREETING:
            return self._greeted(self._link, deadline)
        return self._exchange(self._link, deadline, read)

    def _rested(self, deadline: float) -> bool:
        rest = self._retrying.at - time.monotonic()
        if rest > 0:
            self._waiting.wait(min(rest, deadline - time.monotonic()), read=False, write=False)
            if time.monotonic() < self._retrying.at:
                return False
        settings = self._settings
        context = None if settings.tls is None else settings.tls()
        self._link = self._make_link(settings.address, context, settings.server_name, self._waiting)
        self._state = _State.CONNECTING
        self._link.begin()
        return True

    def _connected(self, link: Link, deadline: float) -> bool:
        try:
            if not link.connect():
                wait = min(deadline - time.monotonic(), _STEP)
                self._waiting.wait(wait, read=link.wants_read, write=link.wants_write)
                if not link.connect():
                    return False
            self._handshake.begin(link)
        except ConnectorError as error:
            # After a first success every error is retriable: certificates are renewed, and proxies start before the
            # brokers behind them.
            raise ConnectorError(str(error), retriable=error.retriable or self._handshake.met) from None
        self._state = _State.GREETING
        return True

    def _greeted(self, link: Link, deadline: float) -> bool:
        connack = self._handshake.hear(link)
        if connack is None:
            self._waiting.wait(min(deadline - time.monotonic(), _STEP), read=True, write=link.wants_write)
            connack = self._handshake.hear(link)
        if connack is None:
            self._handshake.check_time()
            return False
        if connack.reason.failed:
            self._lose(self._handshake.refused(connack), at_once=True)
        else:
            self._accept(connack)
        return True

    def _accept(self, connack: Connack) -> None:
        settings = self._settings
        version = self._handshake.version
        rtt = self._handshake.accepted()
        granted = Granted.of(connack, settings, version)
        if version == V311 and settings.version is None and self.granted is None:
            _log.info("%s: %s speaks MQTT 3.1.1", settings.name, settings.address)
        refuse_what_is_missing(granted, settings)
        self.granted = granted
        self.connection += 1
        self.down = None
        self.rtt = rtt
        self._state = _State.UP
        self._retrying.connected()
        self._keep_alive.begin(granted.keep_alive or settings.keep_alive)
        self._inbound.begin(version)
        self._client.begun(granted)
        self._subscribing.begin(granted)

    def _exchange(self, link: Link, deadline: float, read: bool) -> bool:
        alive = self._keep_alive
        connection = self.connection
        now = time.monotonic()
        alive.read(now, read)
        if alive.due(now):
            self.ping()
        if link.unsent:
            link.flush()
            if alive.stuck(now, link.unsent):
                raise TransportClosed(f"{self._settings.address} accepts no more data")
        if self._retrying.unproven:
            self._retrying.holds(now)
        if read and self._receive(link):
            return True
        left = deadline - time.monotonic()
        if left > 0:
            wait = min(left, alive.longest_wait(now)) if read else left
            self._waiting.wait(wait, read=read, write=link.wants_write)
            if link.unsent:
                link.flush()
            if read and self._receive(link):
                return True
        self._subscribing.check_time(now, reading=read)
        if read and self.connection == connection and alive.silent(time.monotonic()):
            raise TransportClosed(
                f"{self._settings.address} has been silent for {time.monotonic() - alive.heard_at:.1f} s"
            )
        return False

    def _receive(self, link: Link) -> bool:
        room = self._inbound.room()
        count = link.receive(room)
        self.drained = count < len(room) and link.reads_all
        if not count:
            return False
        self._keep_alive.heard_at = time.monotonic()
        self._inbound.filled(count, self._received)
        return True

    def _received(self, packet: Packet) -> None:
        match packet:
            case Pingresp():
                self.rtt = min(self.rtt, self._keep_alive.answer())
            case Suback():
                if (grants := self._subscribing.answered(packet)) is not None:
                    self._client.subscribed(grants)
            case Disconnect():
                raise _sent_away(packet, self._settings)
            case Unsuback():
                pass
            case Connack() | Auth():
                raise ProtocolError(ReasonCode.PROTOCOL_ERROR, f"{type(packet).__name__.upper()} was not asked for")
            case _:
                self._client.received(packet)

    def _leave(self, goodbye: Disconnect, seconds: float) -> None:
        """Disconnect cleanly, if there is a connection: written packets arrive, and the broker does not publish the
        will. MQTT 3.1.1 has no reasons."""
        if self._state is not _State.UP or self._link is None:
            return
        version = self._handshake.version
        with suppress(ConnectorError):
            self._link.send(encode(goodbye if version == V5 else Disconnect(), version))
            self._link.finish(seconds)

    def _lose(self, reason: str, *, at_once: bool = False) -> None:
        """The connection is gone, or could not be made: wait, and then try again."""
        self._retrying.failed(reason, at_once=at_once, was_up=self._state is _State.UP)
        self._rest(reason)

    def _fail(self, error: ConnectorError) -> ConnectorError:
        """The session cannot go on: every later `turn` raises this error."""
        text = str(error)
        if not text.startswith(self._settings.name):
            text = f"{self._settings.name}: {text}"
        self._failure = ConnectorError(text)
        self._leave(Disconnect(), 0.1)
        self._rest(text)
        return self._failure

    def _rest(self, reason: str) -> None:
        was_up = self._state is _State.UP
        self._drop()
        self._state = _State.RESTING
        self.down = reason
        if was_up:
            self.lost += 1
            self._client.ended(reason)

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def _sent_away(packet: Disconnect, settings: Settings) -> ConnectorError:
    """The error for a broker that has ended the connection with this packet."""
    reason = packet.reason
    more = "".join(
        f" ({part})" for part in (packet.properties.reason_string, packet.properties.server_reference) if part
    )
    if of_disconnect(reason) is Outcome.FATAL:
        return ConnectorError(
            f'{settings.name}: another client has taken over the session of client id "{settings.client_id}" at '
            f"{settings.address}{more}; usually the same service runs twice: give each process, each source and "
            "each sink a client_id of its own"
        )
    return TransportClosed(f"{settings.address} ended the connection: {reason.text}{more}")
