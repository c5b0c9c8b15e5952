"""A TCP connection to a broker, with TLS if configured. Only `Waiter.wait` ever blocks."""

from __future__ import annotations

import os
import selectors
import socket
import ssl
import time
from collections import deque
from contextlib import suppress

from connectors.mqtt.address import BrokerAddress
from pipelines.errors import ConnectorError

_CONNECT_WAIT = 5.0
"""Seconds that one address of a host may take to answer, and the TLS handshake after it."""


class TransportClosed(ConnectorError):
    """The connection is gone, or could not be made. A new attempt may succeed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retriable=True)


class Waiter:
    """Waits for one socket, and for `wake`, which any thread may call."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._inner, self._outer = socket.socketpair()
        self._inner.setblocking(False)
        self._outer.setblocking(False)
        self._selector.register(self._inner, selectors.EVENT_READ)
        self._bell = selectors.DefaultSelector()
        self._bell.register(self._inner, selectors.EVENT_READ)
        self._socket: socket.socket | None = None
        self._events = 0
        self._closed = False
        self._rung = False
        self._woken = False

    def wake(self) -> None:
        """Make a running `wait`, or the next one, return at once. From any thread."""
        if self._rung:
            return
        self._rung = True
        # A full socket: `wait` returns anyway. A closed one: no thread waits.
        with suppress(OSError):
            self._outer.send(b"\0")

    def woken(self) -> bool:
        """Whether `wake` has ended a `wait` since the last call."""
        woken, self._woken = self._woken, False
        return woken

    def watch(self, sock: socket.socket | None) -> None:
        """Wait for this socket from now on; `None`: for no socket."""
        self._unwatch()
        self._socket = sock

    def wait(self, timeout: float, *, read: bool, write: bool) -> None:
        """Wait until the socket can be read or written, as asked, or for `timeout` seconds."""
        self._register((selectors.EVENT_READ if read else 0) | (selectors.EVENT_WRITE if write else 0))
        for key, _ in self._selector.select(max(timeout, 0.0)):
            if key.fileobj is self._inner:
                self._hear()

    def idle(self, timeout: float) -> None:
        """Wait for `wake` alone, or for `timeout` seconds."""
        if self._bell.select(timeout):
            self._hear()

    def close(self) -> None:
        """Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._unwatch()
        self._selector.close()
        self._bell.close()
        self._inner.close()
        self._outer.close()

    def _hear(self) -> None:
        self._woken = True
        with suppress(BlockingIOError):
            self._inner.recv(4096)
        # Reset after the read: a `wake` before this line sends no byte, as this `wait` is about to return.
        self._rung = False

    def _register(self, events: int) -> None:
        if self._socket is None or events == self._events:
            return
        if not events:
            self._selector.unregister(self._socket)
        elif self._events:
            self._selector.modify(self._socket, events)
        else:
            self._selector.register(self._socket, events)
        self._events = events

    def _unwatch(self) -> None:
        if self._socket is not None and self._events:
            self._selector.unregister(self._socket)
        self._socket, self._events = None, 0


class Transport:
    """One connection: made step by step by `connect`, then read and written. Used by one thread.

    Bytes that cannot be sent at once are kept, in order, and sent by the next `flush`. Host names are looked up by the
    system's resolver, without a timeout of ours.
    """

    def __init__(
        self, address: BrokerAddress, tls: ssl.SSLContext | None, server_name: str | None, waiting: Waiter
    ) -> None:
        self._address = address
        self._tls = tls
        self._server_name = server_name or address.host
        self._waiting = waiting
        self._targets: deque[tuple[int, tuple[object, ...]]] = deque()
        self._socket: socket.socket | None = None
        self._deadline = 0.0
        self._trouble = ""
        self._shaking = False
        self._kept: deque[memoryview] = deque()
        self.unsent = 0
        """Bytes that were given to `send` and not sent yet."""
        self.wants_read = True
        """Whether it waits for its socket to become readable for other reasons than receiving: TLS may, to write."""
        self.wants_write = False
        """Whether it waits for its socket to become writable."""
        self.connected = False
        self.reads_all = tls is None
        """Whether all received bytes were read when `receive` did not fill its memory: not with TLS, which returns one
        record."""

    def begin(self) -> None:
        """Look up the host and begin to connect. Raises `TransportClosed` if the host is not known."""
        try:
            addresses = socket.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise TransportClosed(f"{self._address}: the host cannot be looked up: {error}") from None
        self._targets = deque((family, target) for family, _, _, _, target in addresses)
        self._next_target()

    def connect(self) -> bool:
        """Go on with connecting, without waiting. Returns whether the connection is established.

        Raises `TransportClosed` when no address answers, and `ConnectorError` for a certificate that is not trusted.
        """
        while not self.connected:
            if self._socket is None:
                self._next_target()
                continue
            if time.monotonic() >= self._deadline:
                self._give_up(f"no {'TLS handshake' if self._shaking else 'answer'} within {_CONNECT_WAIT:.0f} s")
                continue
            if not (self._shake() if self._shaking else self._established()):
                return False
        return True

    def receive(self, into: memoryview) -> int:
        """Read available bytes into `into`; returns their number, 0 if there are none now. Raises `TransportClosed`."""
        assert self._socket is not None
        try:
            count = self._socket.recv_into(into)
        except (BlockingIOError, ssl.SSLWantReadError, InterruptedError):
            return 0
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return 0
        except OSError as error:
            raise TransportClosed(f"{self._address}: {_text(error)}") from None
        if not count:
            raise TransportClosed(f"{self._address} closed the connection")
        return count

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send these bytes, after all earlier ones. Keeps those that cannot be sent now. Raises `TransportClosed`."""
        if not data:
            return
        self._kept.append(memoryview(data))
        self.unsent += len(data)
        self.flush()

    def flush(self) -> None:
        """Send kept bytes, as many as the socket accepts now. Raises `TransportClosed`."""
        assert self._socket is not None
        self.wants_write = False
        while self._kept:
            part = self._kept[0]
            try:
                sent = self._socket.send(part)
            except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError):
                self.wants_write = True
                return
            except ssl.SSLWantReadError:
                # Tried again when the socket is readable, with the same bytes, as TLS demands.
                return
            except OSError as error:
                raise TransportClosed(f"{self._address}: {_text(error)}") from None
            self.unsent -= sent
            if sent == len(part):
                self._kept.popleft()
            else:
                self._kept[0] = part[sent:]

    def finish(self, seconds: float) -> None:
        """Send kept bytes, shut the sending side down, and wait for the other side to close, at most `seconds`.

        If a socket with unread bytes is closed, TCP drops bytes that the other side has not read yet. Raises
        `TransportClosed`.
        """
        deadline = time.monotonic() + seconds
        scrap = memoryview(bytearray(65_536))
        stopped = False
        while self._socket is not None and (left := deadline - time.monotonic()) > 0:
            self.flush()
            if not self._kept and not stopped:
                stopped = True
                if not isinstance(self._socket, ssl.SSLSocket):
                    with suppress(OSError):
                        self._socket.shutdown(socket.SHUT_WR)
            if not self.receive(scrap):
                self._waiting.wait(min(left, 0.1), read=True, write=self.wants_write)

    def close(self) -> None:
        """Close the connection, without waiting. Idempotent."""
        self._waiting.watch(None)
        self.connected = False
        self._kept.clear()
        self.unsent = 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _next_target(self) -> None:
        if not self._targets:
            raise TransportClosed(f"{self._address}: {self._trouble or 'no address of this host can be reached'}")
        family, target = self._targets.popleft()
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._trouble = _text(error)
            return
        sock.setblocking(False)
        self._socket, self._shaking = sock, False
        self._waiting.watch(sock)
        self._deadline = time.monotonic() + _CONNECT_WAIT
        self.wants_read, self.wants_write = False, True
        try:
            sock.connect(target)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._give_up(_text(error))

    def _established(self) -> bool:
        assert self._socket is not None
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._give_up(_text(OSError(code, "")))
            return True
        try:
            self._socket.getpeername()
        except OSError:
            return False
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            self._up()
            return True
        # A closed `SSLSocket` must not be watched in place of the socket that it wraps: both have the same descriptor.
        plain = self._socket
        self._waiting.watch(None)
        self._socket = self._tls.wrap_socket(plain, do_handshake_on_connect=False, server_hostname=self._server_name)
        self._waiting.watch(self._socket)
        self._shaking = True
        self._deadline = time.monotonic() + _CONNECT_WAIT
        return True

    def _shake(self) -> bool:
        assert isinstance(self._socket, ssl.SSLSocket)
        self.wants_read = self.wants_write = False
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self.wants_read = True
            return False
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return False
        except ssl.SSLError as error:
            raise no_tls(self._address, error) from None
        except OSError as error:
            self._give_up(f"the TLS handshake failed: {_text(error)}; does the broker speak TLS on this port?")
            return True
        self._up()
        return True

    def _up(self) -> None:
        self.connected, self.wants_read, self.wants_write = True, True, False

    def _give_up(self, trouble: str) -> None:
        self._trouble = trouble
        self._waiting.watch(None)
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def no_tls(address: BrokerAddress, error: ssl.SSLError) -> ConnectorError:
    """The error for a TLS handshake with this broker that failed, with advice."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectorError(
            f"{address}: its certificate is not trusted: {error.verify_message}; name the authority that "
            "signed it as tls.ca, and the name that stands in it as tls.server_name"
        )
    return ConnectorError(
        f"{address}: no TLS: {error.reason or error}; does the broker speak TLS on this port, and does "
        "it ask for a certificate of the client (tls.cert, tls.key)?"
    )


def _text(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    return error.strerror or (os.strerror(error.errno) if error.errno else str(error))
