"""`NetworkSession`: a session on a connection of its own."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TypeVar

from connectors.backoff import Backoff
from connectors.mqtt.protocol.packets import (
    V5,
    V311,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    Suback,
    Unsuback,
    Version,
)
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reading import LARGEST, Reader, Role
from connectors.mqtt.protocol.reasons import Outcome, ProtocolError, ReasonCode, of_connect, of_disconnect
from connectors.mqtt.protocol.writing import PINGREQ, encode
from connectors.mqtt.session.grants import Downgraded, refuse_what_is_missing
from connectors.mqtt.session.greeting import Greeting
from connectors.mqtt.session.inbound import Inbound
from connectors.mqtt.session.keepalive import KeepAlive
from connectors.mqtt.session.link import Link, MakeLink
from connectors.mqtt.session.session import Session, SessionClient
from connectors.mqtt.session.settings import Granted, Settings
from connectors.mqtt.session.subscribing import Subscribing
from connectors.mqtt.session.transport import Transport, TransportClosed, Waiting
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_GREETING_WAIT = 10.0
"""Seconds within which the broker has to answer CONNECT, and SUBSCRIBE."""
_LEAVE_WAIT = 1.0
"""Seconds to wait for written bytes to be sent, and for the broker to close."""
_HOLDS_AFTER = 5.0
"""Seconds that a connection has to last before waits after the next loss are short again."""
_STEP = 0.5
"""Seconds of one wait while a connection is made, which has deadlines of its own."""
_LOGIN = (ReasonCode.BAD_USER_NAME_OR_PASSWORD, ReasonCode.NOT_AUTHORIZED)


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
        self._link = link
        self._client = client
        self._inbound = inbound
        self._waiting = Waiting()
        self._backoff = Backoff()
        self._state = _State.RESTING
        self._attempt_at = time.monotonic()
        self._transport: Link | None = None
        self._greeting = Greeting()
        self._greeting_until = 0.0
        self._keep_alive = KeepAlive(settings.keep_alive)
        self._version: Version = settings.version or V5
        self._version_known = settings.version is not None
        self._closed_at_greeting = 0
        self._login_asked_again = False
        self._subscribing: Subscribing | None = None
        self._subscribed = False
        self._subscribes_anew = False
        self._suback_until = float("inf")
        self._up_at = 0.0
        self._asked = self._answered = 0
        self._questions: deque[float] = deque()
        self._short_lived = 0
        self._failure: ConnectorError | None = None

    @property
    def takes_bytes(self) -> bool:
        return True

    @property
    def unsent(self) -> int:
        return 0 if self._transport is None else self._transport.unsent

    def turn(self, timeout: float, *, read: bool = True) -> bool:
        if self._failure is not None:
            raise self._failure
        try:
            return self._turn(time.monotonic() + max(timeout, 0.0), read)
        except ProtocolError as error:
            self._disconnect(error.reason)
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
        self.write(encode(packet, self._version))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._state is not _State.UP or self._transport is None:
            return
        self._keep_alive.sent_at = time.monotonic()
        # The loss of a connection is reported by the next `turn`, not in the middle of the client's work.
        try:
            self._transport.send(data)
        except TransportClosed:
            return

    def ping(self) -> int:
        self._asked += 1
        if self._state is _State.UP:
            now = time.monotonic()
            self._keep_alive.asked_at = now
            self._questions.append(now)
            self.write(PINGREQ)
        return self._asked

    def answered(self, ticket: int) -> bool:
        return self._answered >= ticket

    def restart(self, reason: str, *, subscribe: bool = False) -> None:
        if self._state is _State.CLOSED:
            return
        self._subscribes_anew = subscribe
        if self._state is _State.UP:
            self._leave()
        self._lose(reason, at_once=True)

    def renew(self) -> None:
        if self._state is _State.UP and self._version == V5 and self._suback_until == float("inf"):
            self._subscribe()

    def close(self) -> None:
        if self._state is _State.CLOSED:
            return
        if self._state is _State.UP:
            self._leave(for_good=True)
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
        if self._state is _State.CONNECTING and not self._connected(deadline):
            return False
        if self._state is _State.GREETING:
            return self._greeted(deadline)
        return self._exchange(deadline, read)

    def _rested(self, deadline: float) -> bool:
        rest = self._attempt_at - time.monotonic()
        if rest > 0:
            self._waiting.wait(min(rest, deadline - time.monotonic()), read=False, write=False)
            if time.monotonic() < self._attempt_at:
                return False
        settings = self._settings
        context = None if settings.tls is None else settings.tls()
        self._transport = self._link(settings.address, context, settings.server_name, self._waiting)
        self._state = _State.CONNECTING
        self._transport.begin()
        return True

    def _connected(self, deadline: float) -> bool:
        transport = self._open_transport
        if not self._connect_step(transport.connect):
            wait = min(deadline - time.monotonic(), _STEP)
            self._waiting.wait(wait, read=transport.wants_read, write=transport.wants_write)
            if not self._connect_step(transport.connect):
                return False
        self._greeting = Greeting()
        hello = encode(self._connect(), self._version)
        try:
            self._connect_step(lambda: transport.send(hello))
        except ConnectorError as error:
            # paho makes the connection only here.
            if not error.retriable or not isinstance(transport, Transport):
                raise
            raise self._ended_at_connect(error) from None
        self._greeting_until = time.monotonic() + _GREETING_WAIT
        self._state = _State.GREETING
        return True

    def _connect_step(self, step: Callable[[], _T]) -> _T:
        try:
            return step()
        except ConnectorError as error:
            # After a first success every error is retriable: certificates are renewed, and proxies start before the
            # brokers behind them.
            raise ConnectorError(str(error), retriable=error.retriable or self.connection > 0) from None

    def _connect(self) -> Connect:
        settings = self._settings
        username, password = settings.login.credentials()
        properties = NONE
        if self._version == V5:
            properties = Properties(
                session_expiry_interval=settings.expiry or None,
                receive_maximum=settings.receive_maximum if settings.receive_maximum < 65_535 else None,
                maximum_packet_size=settings.max_packet if settings.max_packet < LARGEST else None,
                user_properties=settings.user_properties,
            )
        return Connect(
            settings.client_id,
            clean_start=not settings.expiry
            or not (settings.takes_over or self.connection)
            or (self._version == V311 and not settings.lasts),
            keep_alive=settings.keep_alive,
            username=username,
            password=password,
            will=settings.will,
            properties=properties,
            version=self._version,
        )

    def _greeted(self, deadline: float) -> bool:
        transport = self._open_transport
        try:
            connack = self._hear(transport)
            if connack is None:
                wait = min(deadline - time.monotonic(), _STEP)
                self._waiting.wait(wait, read=True, write=transport.wants_write)
                connack = self._hear(transport)
        except TransportClosed as error:
            self._note_closed_at_greeting()
            raise self._ended_at_connect(error) from None
        if connack is None:
            if time.monotonic() >= self._greeting_until:
                raise TransportClosed(f"{self._settings.address} does not answer CONNECT within {_GREETING_WAIT:.0f} s")
            return False
        self._accept(connack)
        return True

    def _ended_at_connect(self, error: ConnectorError) -> TransportClosed:
        """The connection ended before any answer: where none was ever given, what to look at."""
        text = f"{error} at the CONNECT of MQTT {_name(self._version)}"
        if not self.connection and not self._settings.address.websocket:
            text += (
                "; if this port speaks TLS, write mqtts://"
                if self._settings.tls is None
                else "; does the broker ask for a certificate of the client (tls.cert, tls.key)?"
            )
        return TransportClosed(text)

    def _hear(self, transport: Link) -> Connack | None:
        transport.flush()
        while (room := self._greeting.room()) is not None:
            count = transport.receive(room)
            if not count:
                return None
            self._greeting.filled(count)
        raw, version = self._greeting.packet(self._version)
        found = next(Reader(Role.CLIENT, version).feed(raw), None)
        if not isinstance(found, Connack):
            raise ProtocolError(ReasonCode.PROTOCOL_ERROR, "the answer to CONNECT is no CONNACK")
        return found

    def _note_closed_at_greeting(self) -> None:
        """A server that does not know MQTT 5 may close without an answer: try the older version the second time."""
        if self._version_known:
            return
        self._closed_at_greeting += 1
        if self._closed_at_greeting >= 2:
            self._version = V311 if self._version == V5 else V5
            self._closed_at_greeting = 0

    def _accept(self, connack: Connack) -> None:
        if connack.reason.failed:
            self._refused(connack)
            return
        settings = self._settings
        self._version_known = True
        self._closed_at_greeting = 0
        self._login_asked_again = False
        granted = Granted.of(connack, settings, self._version)
        if granted.version == V311 and settings.version is None and (self.granted is None):
            _log.info("%s: %s speaks MQTT 3.1.1", settings.name, settings.address)
        refuse_what_is_missing(granted, settings)
        self.granted = granted
        self.connection += 1
        self.down = None
        self._state = _State.UP
        self._up_at = time.monotonic()
        self.rtt = self._up_at - (self._greeting_until - _GREETING_WAIT)
        self._keep_alive = KeepAlive(granted.keep_alive or settings.keep_alive)
        self._answered = self._asked
        self._questions.clear()
        self._subscribing = None
        self._suback_until = float("inf")
        self._inbound.begin(self._version)
        self._client.begun(granted)
        # Every time, as the broker may have lost them; in MQTT 3.1.1 that would bring all retained messages again.
        anew = self._version == V5 or not granted.session_present or not self._subscribed or self._subscribes_anew
        if anew:
            self._subscribe()

    def _subscribe(self) -> None:
        if self._settings.subscriptions and self.granted is not None:
            self._subscribing = Subscribing(self._settings, self.granted)
            self._ask()

    def _ask(self) -> None:
        assert self._subscribing is not None
        self.send(self._subscribing.packet)
        self._suback_until = time.monotonic() + _GREETING_WAIT

    def _refused(self, connack: Connack) -> None:
        settings, reason = self._settings, connack.reason
        said = connack.properties.reason_string
        text = f"{settings.address} refuses the connection: {reason.text}{f': {said}' if said else ''}"
        if reason is ReasonCode.UNSUPPORTED_PROTOCOL_VERSION and self._version == V5 and not self._version_known:
            self._version = V311
            self._lose(text, at_once=True)
            return
        if reason in _LOGIN:
            text += f'; check username and password, and the rights of client id "{settings.client_id}"'
            if settings.login.token is not None and not self._login_asked_again:
                self._login_asked_again = True
                self._lose(text, at_once=True)
                return
        # After a first success a refusal is retriable: the broker may be under maintenance.
        raise ConnectorError(
            f"{settings.name}: {text}",
            retriable=self.connection > 0 or of_connect(reason) is Outcome.RETRIABLE,
        )

    def _exchange(self, deadline: float, read: bool) -> bool:
        transport, alive = self._open_transport, self._keep_alive
        connection = self.connection
        now = time.monotonic()
        alive.read(now, read)
        if alive.due(now):
            self.ping()
        if transport.unsent:
            transport.flush()
            if alive.stuck(now, transport.unsent):
                raise TransportClosed(f"{self._settings.address} accepts no more data")
        if self._backoff.failures and now - self._up_at >= _HOLDS_AFTER:
            self._backoff.reset()
            self._short_lived = 0
        if read and self._receive(transport):
            return True
        left = deadline - time.monotonic()
        if left > 0:
            wait = min(left, alive.longest_wait(now)) if read else left
            self._waiting.wait(wait, read=read, write=transport.wants_write)
            if transport.unsent:
                transport.flush()
            if read and self._receive(transport):
                return True
        if not read:
            # Answers cannot be seen while the connection is not read.
            self._suback_until = max(self._suback_until, now + _GREETING_WAIT)
        elif now >= self._suback_until:
            raise TransportClosed(f"{self._settings.address} does not answer SUBSCRIBE within {_GREETING_WAIT:.0f} s")
        elif self.connection == connection and alive.silent(time.monotonic()):
            raise TransportClosed(
                f"{self._settings.address} has been silent for {time.monotonic() - alive.heard_at:.1f} s"
            )
        return False

    def _receive(self, transport: Link) -> bool:
        room = self._inbound.room()
        count = transport.receive(room)
        self.drained = count < len(room) and transport.reads_all
        if not count:
            return False
        self._keep_alive.heard_at = time.monotonic()
        self._inbound.filled(count, self._received)
        return True

    def _received(self, packet: Packet) -> None:
        match packet:
            case Pingresp():
                if self._answered < self._asked:
                    self._answered += 1
                if self._questions:
                    self.rtt = min(self.rtt, time.monotonic() - self._questions.popleft())
            case Suback():
                self._take_grants(packet)
            case Disconnect():
                self._sent_away(packet)
            case Unsuback():
                pass
            case Connack() | Auth():
                raise ProtocolError(ReasonCode.PROTOCOL_ERROR, f"{type(packet).__name__.upper()} was not asked for")
            case _:
                self._client.received(packet)

    def _take_grants(self, suback: Suback) -> None:
        if self._subscribing is None:
            raise ProtocolError(ReasonCode.PROTOCOL_ERROR, "SUBACK: it answers no SUBSCRIBE of this client")
        try:
            grants = self._subscribing.answered(suback)
        except (Downgraded, ProtocolError):
            raise
        except ConnectorError as error:
            # A right that is taken away while the service runs may be given back.
            raise ConnectorError(str(error), retriable=error.retriable or self._subscribed) from None
        if grants is None:
            self._ask()
            return
        self._subscribing = None
        self._subscribed = True
        self._subscribes_anew = False
        self._suback_until = float("inf")
        self._client.subscribed(grants)

    def _sent_away(self, packet: Disconnect) -> None:
        settings, reason = self._settings, packet.reason
        more = "".join(
            f" ({part})" for part in (packet.properties.reason_string, packet.properties.server_reference) if part
        )
        if of_disconnect(reason) is Outcome.FATAL:
            raise ConnectorError(
                f'{settings.name}: another client has taken over the session of client id "{settings.client_id}" at '
                f"{settings.address}{more}; usually the same service runs twice: give each process, each source and "
                "each sink a client_id of its own"
            )
        raise TransportClosed(f"{settings.address} ended the connection: {reason.text}{more}")

    def _disconnect(self, reason: ReasonCode) -> None:
        """Send the reason of the disconnection, if the connection still allows it, without waiting for long."""
        if self._state is _State.UP and self._transport is not None:
            said = Disconnect(reason) if self._version == V5 else Disconnect()
            with suppress(ConnectorError):
                self._transport.send(encode(said, self._version))
                self._transport.finish(0.1)

    def _leave(self, *, for_good: bool = False) -> None:
        """Disconnect cleanly: written packets arrive, and the broker does not publish the will."""
        if self._transport is None:
            return
        with suppress(ConnectorError):
            goodbye = Disconnect()
            if for_good and self._version == V5 and not self._settings.lasts:
                goodbye = Disconnect(properties=Properties(session_expiry_interval=0))
            self._transport.send(encode(goodbye, self._version))
            self._transport.finish(_LEAVE_WAIT)

    def _lose(self, reason: str, *, at_once: bool = False) -> None:
        """The connection is gone, or could not be made: wait, and then try again."""
        was_up = self._state is _State.UP
        self._drop()
        self._state = _State.RESTING
        wait = 0.0 if at_once else self._backoff.wait()
        self._attempt_at = time.monotonic() + wait
        self.down = reason
        if not was_up:
            return
        self.lost += 1
        if not at_once:
            self._warn_of_short_life(reason)
        self._client.ended(reason)

    def _warn_of_short_life(self, reason: str) -> None:
        # MQTT 3.1.1 has no packet that would tell of a session that was taken over.
        if time.monotonic() - self._up_at >= _HOLDS_AFTER:
            self._short_lived = 0
            return
        self._short_lived += 1
        if self._short_lived == 3:
            _log.warning(
                '%s: three connections in a row ended at once (%s); perhaps another client has the client id "%s", '
                "too, or the broker refuses what it is sent and does not say so: a topic that is not allowed, a "
                "message that is too large",
                self._settings.name,
                reason,
                self._settings.client_id,
            )

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def _fail(self, error: ConnectorError) -> ConnectorError:
        was_up = self._state is _State.UP
        text = str(error)
        if not text.startswith(self._settings.name):
            text = f"{self._settings.name}: {text}"
        self._failure = ConnectorError(text)
        self._disconnect(ReasonCode.SUCCESS)
        self._drop()
        self._state = _State.RESTING
        self.down = text
        if was_up:
            self.lost += 1
            self._client.ended(text)
        return self._failure

    @property
    def _open_transport(self) -> Link:
        assert self._transport is not None
        return self._transport


def _name(version: Version) -> str:
    return "5.0" if version == V5 else "3.1.1"
