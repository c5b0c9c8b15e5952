"""`Connection`: a client's connection, on the server's side."""

from __future__ import annotations

import math
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from connectors.mqtt.protocol.bursts import Bursts
from connectors.mqtt.protocol.packets import V5, V311, Connack, Connect, Disconnect, Packet, Pingreq, Version
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.reading import Aliases, PacketReader, Role
from connectors.mqtt.protocol.reasons import RETURN_CODES, ProtocolError, ReasonCode
from connectors.mqtt.protocol.scan import Scanned
from connectors.mqtt.protocol.writing import PINGRESP, encode

if TYPE_CHECKING:
    from connectors.mqtt.server.limits import Limits

ROOM: Final = 256 * 2**10
"""Bytes waiting to be written, above which a connection has no `room` for more messages."""
_READ: Final = 64 * 2**10
_LONGEST_REASON: Final = 200
_NO_FAULT: Final = (
    ReasonCode.SERVER_SHUTTING_DOWN,
    ReasonCode.SESSION_TAKEN_OVER,
    ReasonCode.KEEP_ALIVE_TIMEOUT,
    ReasonCode.UNSPECIFIED_ERROR,
)
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class Stage(IntEnum):
    """The stage of a connection. Stages only rise; some may be skipped."""

    HANDSHAKE = 0
    """TLS is being set up."""
    OPEN = 1
    """The client has sent no CONNECT yet."""
    INTRODUCED = 2
    """The handler has the client's CONNECT, and has not accepted it."""
    ACCEPTED = 3
    ENDING = 4
    """Queued bytes are still written; the handler was not notified of the end yet."""
    LINGERING = 5
    """The server waits until the client closes its end, for a moment."""
    ENDED = 6


class Connection:
    """A socket of the server, with the state of its client. Used by the server's thread only.

    `state` belongs to the handler. `client_id`, `version` and `keep_alive` are known once the client was accepted.
    """

    def __init__(
        self, sock: socket.socket, address: str, limits: Limits, handler: Handler, now: float, aliases: int = 0
    ) -> None:
        self.sock = sock
        self.address = address
        self.client_id = ""
        self.version: Version = V311
        self.keep_alive = 0.0
        """Seconds after which a silent client counts as gone (one and a half times the keep-alive that it
        announced)."""
        self.state: Any = None
        self.stage = Stage.HANDSHAKE if isinstance(sock, ssl.SSLSocket) else Stage.OPEN
        self.ended_in = self.stage
        """The stage that its end came in."""
        self.lingers_until = math.inf
        """Until when it is `LINGERING` at most, on `time.monotonic`; in the past: it does not linger."""
        self.reason = ""
        """Why it ended, for logs."""
        self.at_fault = False
        """Whether it ended because the client was refused, broke a rule or exceeded a limit."""
        self.disconnect: Disconnect | None = None
        """The client's DISCONNECT."""
        self.heard_at = now
        self.packet_since: float | None = None
        self.paused = False
        """Whether it is not read at present."""
        self.writing = False
        """Whether it waits for the socket to become writable."""
        self.counted = 0
        """The part of `kept` that is in the server's total."""
        self.watched = 0
        """The events that the server waits for."""
        self.changed: Callable[[Connection], None] = lambda connection: None
        """Called when it has to write, to read again, or to close."""
        self._limits = limits
        self._handler = handler
        self._reader = PacketReader(Role.SERVER, None, limits.max_packet, Aliases(aliases))
        self._bursts = Bursts(self._reader)
        self._out = bytearray()
        self._full = False

    @property
    def accepted(self) -> bool:
        """Whether the client was accepted, and the connection has not ended."""
        return self.stage is Stage.ACCEPTED

    @property
    def closing(self) -> bool:
        """Whether it has ended, or does so once all queued bytes are written."""
        return self.stage >= Stage.ENDING

    @property
    def host(self) -> str:
        """The client's IP address."""
        return self.address.rpartition(":")[0]

    @property
    def kept(self) -> int:
        """Bytes of an incomplete packet."""
        return self._reader.kept

    @property
    def waiting(self) -> int:
        """Bytes in the queue of writes."""
        return len(self._out)

    @property
    def room(self) -> bool:
        """Whether more messages may be sent; if not, `Handler.writable` is called once they may."""
        self._full = self._full or len(self._out) > ROOM
        return not self._full

    def accept(self, connack: Connack, keep_alive: float = 0.0) -> None:
        """Accept the client: send this CONNACK."""
        self._rise(Stage.ACCEPTED)
        self.keep_alive = keep_alive
        self.send(connack)

    def refuse(self, reason: ReasonCode, text: str = "") -> None:
        """Answer the CONNECT with this reason and close."""
        if self.version == V5:
            self.send(Connack(False, reason, Properties(reason_string=text[:_LONGEST_REASON] or None)))
        else:
            self.send(Connack(False, reason if reason in RETURN_CODES else ReasonCode.SERVER_UNAVAILABLE))
        self.at_fault = True
        self._end(text or reason.text)

    def send(self, *packets: Packet) -> None:
        """Queue these packets for writing, in this order."""
        self.write(b"".join(encode(packet, self.version) for packet in packets))

    def write(self, data: bytes) -> None:
        """Queue these bytes for writing. A client that has left too many unread is disconnected."""
        if self.stage >= Stage.ENDING:
            return
        if len(self._out) + len(data) > self._limits.unread and self._out:
            self.close(ReasonCode.QUOTA_EXCEEDED, f"{len(self._out)} bytes wait for it, and it does not read")
            return
        self._out += data
        self.changed(self)

    def close(self, reason: ReasonCode | None = None, text: str = "") -> None:
        """End the connection once all queued bytes are written, in MQTT 5 with a DISCONNECT of this reason."""
        if self.closing:
            return
        self.at_fault = reason is not None and reason not in _NO_FAULT
        if reason is not None and self.accepted and self.version == V5:
            self._out += encode(Disconnect(reason, Properties(reason_string=text[:_LONGEST_REASON] or None)), V5)
        self._end(text or (reason.text if reason is not None else "closed"))

    def drop(self, text: str) -> None:
        """End the connection at once, without writing queued bytes."""
        self._cut(text)

    def pause(self, paused: bool) -> None:
        """Stop or resume reading from this client. While paused, TCP holds the client up, and its keep-alive is not
        checked."""
        if self.paused != paused:
            self.paused = paused
            self.packet_since = None
            self.changed(self)

    def may_read(self, now: float) -> None:
        """The socket may be readable: read, and pass the packets to the handler."""
        try:
            data = self._read_some()
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as error:
            self._cut(f"{type(error).__name__}: {error}")
            return
        if not data:
            self._cut("the client closed the connection")
        elif not self.closing:
            self._take(data, now)

    def may_write(self) -> None:
        """Write queued bytes, as many as the socket accepts now."""
        try:
            while self._out:
                with memoryview(self._out) as view:
                    sent = self.sock.send(view[: 4 * _READ])
                del self._out[:sent]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self._cut(f"{type(error).__name__}: {error}")
        self.writing = bool(self._out)
        if self._full and not self.closing and len(self._out) <= ROOM // 2:
            self._full = False
            self._handler.writable(self)

    def shake_hands(self) -> None:
        """Go on with the TLS handshake."""
        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            self.sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wanted:
            self.writing = isinstance(wanted, ssl.SSLWantWriteError)
            self.changed(self)
            return
        except OSError as error:
            self.at_fault = True
            self._cut(f"no TLS: {error}")
            return
        self._rise(Stage.OPEN)
        self.changed(self)

    def _read_some(self) -> bytes:
        data = self.sock.recv(_READ)
        if _QUICK_ACK is not None:
            # Many clients send a small packet only when the network has confirmed the one before (Nagle's algorithm),
            # and the network waits 40 ms for something to confirm it with. The option holds for a while only.
            self.sock.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)
        if isinstance(self.sock, ssl.SSLSocket):
            # The selector does not report bytes that OpenSSL has decrypted already.
            while data and (left := self.sock.pending()):
                data += self.sock.recv(left)
        return data

    def _take(self, data: bytes, now: float) -> None:
        try:
            for packet in self._bursts.feed(data):
                self.heard_at = now
                if isinstance(packet, Scanned):
                    self._handler.messages(self, packet)
                else:
                    self._hand_on(packet)
                if self.stage >= Stage.ENDING:
                    return
        except ProtocolError as error:
            self._broken(error)
            return
        if not self._reader.kept:
            self.packet_since = None
        elif self.packet_since is None or self.heard_at == now:
            self.packet_since = now

    def _hand_on(self, packet: Packet) -> None:
        if isinstance(packet, Pingreq):
            self.write(PINGRESP)
        elif isinstance(packet, Connect):
            self._rise(Stage.INTRODUCED)
            self.version = packet.version
            self.client_id = packet.client_id
            self._handler.connected(self, packet)
        elif isinstance(packet, Disconnect):
            self.disconnect = packet
            self._handler.received(self, packet)
            self._end("the client said goodbye")
        else:
            self._handler.received(self, packet)

    def _broken(self, error: ProtocolError) -> None:
        if self.stage is Stage.OPEN and error.reason in RETURN_CODES:
            # A client of another version gets the CONNACK of MQTT 3.1.1.
            self.write(encode(Connack(False, error.reason), V311))
        self.close(error.reason, str(error))

    def _cut(self, reason: str) -> None:
        # A new buffer, as the error that led here still refers to the old one.
        self._out = bytearray()
        self._end(reason)
        self.lingers_until = 0.0
        if self.stage is Stage.LINGERING:
            self.stage = Stage.ENDED

    def _rise(self, stage: Stage) -> None:
        self.stage = max(self.stage, stage)

    def _end(self, reason: str) -> None:
        if not self.closing:
            self.ended_in, self.stage = self.stage, Stage.ENDING
            self.reason = reason
            # The bytes of its incomplete packet are dropped.
            self._reader = PacketReader(Role.SERVER)
            self._bursts = Bursts(self._reader)
            self.changed(self)


class Handler(ABC):
    """All methods are called by the server's thread. An exception in one ends the connection that it was called for."""

    @abstractmethod
    def connected(self, connection: Connection, connect: Connect) -> None:
        """A client has sent CONNECT: answer by `connection.accept` or `connection.refuse`."""

    @abstractmethod
    def received(self, connection: Connection, packet: Packet) -> None:
        """A packet of a client that was accepted; not PINGREQ, which is answered already."""

    def messages(self, connection: Connection, block: Scanned) -> None:
        """Messages of an accepted client that came together. By default `received` is called with each."""
        for packet in block.publishes():
            if connection.closing:
                return
            self.received(connection, packet)

    @abstractmethod
    def gone(self, connection: Connection) -> None:
        """A connection that was accepted has ended; `connection.reason` says why."""

    def sent_away(self, client_id: str, address: str, reason: str) -> None:
        """The server has ended a connection, or refused it: the client broke a rule, or exceeded a limit. `client_id`
        is empty if it is not known."""

    def writable(self, connection: Connection) -> None:
        """A connection that had no `room` has some again."""

    def tick(self, now: float) -> None:
        """Called some times a second, with `time.monotonic()`."""
