"""`Server`: a thread that listens, reads and writes for all its clients."""

from __future__ import annotations

import contextlib
import logging
import queue
import selectors
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Final, TypeVar

from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.server.connection import Connection, Handler, Stage
from connectors.mqtt.server.limits import Limits
from pipelines.errors import ConnectorError

T = TypeVar("T")

TICK: Final = 0.1
"""Seconds between two checks of timeouts."""
LINGER: Final = 1.0
"""Seconds in which a client can read the reason of its disconnection."""
_ACCEPTS: Final = 64
_ACCEPT_PAUSE: Final = 0.5
_ANSWER: Final = 30.0

_log = logging.getLogger(__name__)


class Server:
    """Listens on `host` and `port` (0: any free one) and passes the packets of its clients to `handler`.

    `context`: the server's side of TLS. `aliases`: topic aliases that each client may set. `connection`: the class of
    connections, for tests that need faults there.
    """

    def __init__(
        self,
        handler: Handler,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        limits: Limits | None = None,
        context: ssl.SSLContext | None = None,
        aliases: int = 0,
        name: str = "mqtt server",
        connection: type[Connection] = Connection,
    ) -> None:
        self.host = host
        self.port = port
        self.limits = limits or Limits()
        self.refused = 0
        """The number of connections that were closed without a login, as there were too many."""
        self.connections: set[Connection] = set()
        """All open connections; used by the server's thread only."""
        self._handler = handler
        self._context = context
        self._aliases = aliases
        self._name = name
        self._connection = connection
        self._listening: socket.socket | None = None
        self._selector: selectors.BaseSelector | None = None
        self._thread: threading.Thread | None = None
        self._wanted: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._changed: set[Connection] = set()
        self._hosts: Counter[str] = Counter()
        """Open connections by the client's IP address."""
        self._unfinished = 0
        """Bytes of unfinished packets that all connections keep: adding them up at each read would take too long."""
        self._wake: socket.socket | None = None
        self._woken: socket.socket | None = None
        self._stopping = False
        self._accept_at = 0.0

    def start(self) -> None:
        """Listen from now on; `port` is the real one then. Raises `ConnectorError` if it cannot listen."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        try:
            self._listening = socket.create_server((self.host, self.port), family=family, backlog=1024)
        except OSError as error:
            raise ConnectorError(
                f"{self._name} cannot listen on {self.host}:{self.port}: {error.strerror or error}"
            ) from error
        self.port = int(self._listening.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        for each in (self._listening, self._woken):
            each.setblocking(False)
            self._selector.register(each, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, args=(self._selector,), name=self._name, daemon=True)
        self._thread.start()

    def stop(self, reason: ReasonCode | None = ReasonCode.SERVER_SHUTTING_DOWN) -> None:
        """Disconnect all clients and end the thread. Idempotent."""
        if self._thread is None:
            return

        def end() -> None:
            for connection in self.connections:
                connection.close(reason)
            self._stopping = True

        self.call(end)
        self._thread.join()
        self._thread = None

    def call(self, function: Callable[[], object]) -> None:
        """Call this function in the server's thread, soon. From any thread."""
        self._wanted.put(function)
        # A full pipe wakes the server as well; with a closed pipe the server has ended.
        if self._wake is not None:
            with contextlib.suppress(OSError):
                self._wake.send(b"\0")

    def ask(self, function: Callable[[], T]) -> T:
        """Call this function in the server's thread, and return its result or raise its error."""
        answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def answer() -> None:
            try:
                answers.put((function(), None))
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                answers.put((None, error))

        self.call(answer)
        value, error = answers.get(timeout=_ANSWER)
        if error is not None:
            raise error
        return value  # type: ignore[return-value]

    def _run(self, selector: selectors.BaseSelector) -> None:
        tick_at = 0.0
        while not self._stopping:
            for key, events in selector.select(TICK):
                if isinstance(key.data, Connection):
                    self._serve(key.data, events)
                elif key.fileobj is self._listening:
                    self._accept()
                else:
                    self._do_what_is_wanted()
            self._settle()
            now = time.monotonic()
            if now >= tick_at:
                tick_at = now + TICK
                self._look_around(now)
                self._settle()
        self._end(selector)

    def _serve(self, connection: Connection, events: int) -> None:
        if connection not in self.connections:
            # It had to make room a moment ago.
            return
        with self._guarding(connection):
            if connection.stage is Stage.HANDSHAKE:
                connection.shake_hands()
                return
            if events & selectors.EVENT_WRITE:
                connection.may_write()
                self._changed.add(connection)
            if events & selectors.EVENT_READ:
                connection.may_read(time.monotonic())
                self._changed.add(connection)
                self._hold_to_bound(connection)

    @contextlib.contextmanager
    def _guarding(self, connection: Connection) -> Iterator[None]:
        """An exception in the handler ends one connection, not the server."""
        try:
            yield
        except Exception:  # noqa: BLE001 - it may fail in any way
            _log.exception("%s: a connection of %s failed", self._name, connection.address)
            if connection.closing:
                # The second failure: queued bytes are dropped, as writing them might fail for ever.
                connection.drop("the server failed")
            connection.close(ReasonCode.UNSPECIFIED_ERROR, "the server failed")

    def _hold_to_bound(self, connection: Connection) -> None:
        self._count(connection)
        if self._unfinished > self.limits.unfinished:
            connection.close(ReasonCode.QUOTA_EXCEEDED, f"{self._unfinished} bytes of unfinished packets wait here")
            self._count(connection)

    def _count(self, connection: Connection) -> None:
        self._unfinished += connection.kept - connection.counted
        connection.counted = connection.kept

    def _accept(self) -> None:
        assert self._listening is not None
        for _ in range(_ACCEPTS):
            try:
                sock, address = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Mostly out of file descriptors: the connection goes on waiting, and would wake this thread again at
                # once.
                _log.warning("%s cannot accept a connection: %s", self._name, error)
                self._pause_accepting()
                return
            if not self._has_room(address[0]):
                sock.close()
                continue
            self._admit(sock, f"{address[0]}:{address[1]}")

    def _has_room(self, host: str) -> bool:
        """Whether a connection from this address is accepted, for which one that has not logged in may be closed."""
        most = self.limits.per_address
        if most is None:
            most = self.limits.connections if ip_address(host).is_loopback else (self.limits.connections + 1) // 2
        for count, limit, text, of_host in (
            (self._hosts[host], most, f"there are {most} connections from its address already", True),
            (len(self.connections), self.limits.connections, f"there are {len(self.connections)} already", False),
        ):
            if count < limit:
                continue
            self.refused += 1
            # The clients that are being disconnected come first, then the oldest ones.
            stranger = min(
                (
                    connection
                    for connection in self.connections
                    if not connection.accepted and (connection.host == host or not of_host)
                ),
                key=lambda connection: (not connection.closing, connection.heard_at),
                default=None,
            )
            if stranger is None:
                self._handler.sent_away("", f"{host}:", text)
                return False
            if not stranger.closing:
                why = "it makes room for a new connection, as it has sent no CONNECT"
                self._handler.sent_away("", stranger.address, f"disconnected: {why}")
            stranger.drop("there is no room for it")
            self._let_go(stranger)
            self._watch(stranger)
        return True

    def _admit(self, sock: socket.socket, address: str) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except OSError:
            # The client was gone before it was accepted.
            sock.close()
            return
        connection = self._connection(sock, address, self.limits, self._handler, time.monotonic(), self._aliases)
        connection.changed = self._changed.add
        self.connections.add(connection)
        self._hosts[connection.host] += 1
        self._changed.add(connection)

    def _pause_accepting(self) -> None:
        assert self._selector is not None
        assert self._listening is not None
        self._selector.unregister(self._listening)
        self._accept_at = time.monotonic() + _ACCEPT_PAUSE

    def _do_what_is_wanted(self) -> None:
        assert self._woken is not None
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        while True:
            try:
                wanted = self._wanted.get_nowait()
            except queue.Empty:
                return
            try:
                wanted()
            except Exception:  # noqa: BLE001 - it may fail in any way
                _log.exception("%s: a call failed", self._name)

    def _settle(self) -> None:
        """Write queued bytes, tell the handler of ended connections, and register for the right events."""
        while self._changed:
            connection = self._changed.pop()
            if connection not in self.connections:
                continue
            self._count(connection)
            if connection.stage is not Stage.HANDSHAKE:
                with self._guarding(connection):
                    connection.may_write()
            if connection.closing:
                self._let_go(connection)
            self._watch(connection)

    def _let_go(self, connection: Connection) -> None:
        if connection.stage is Stage.ENDING:
            if connection.at_fault:
                reason = f"disconnected: {connection.reason}"
                with self._guarding(connection):
                    self._handler.sent_away(connection.client_id, connection.address, reason)
            if connection.ended_in is Stage.ACCEPTED:
                with self._guarding(connection):
                    self._handler.gone(connection)
            # If a socket with unread bytes is closed, TCP drops the DISCONNECT on its way: wait for the client to
            # close.
            now = time.monotonic()
            lingers = connection.lingers_until > now and not self._stopping
            connection.stage = Stage.LINGERING if lingers else Stage.ENDED
            connection.lingers_until, connection.paused = now + LINGER, False
        if not connection.waiting and connection.stage is Stage.LINGERING:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_WR)

    def _watch(self, connection: Connection) -> None:
        assert self._selector is not None
        wanted = 0 if connection.paused else selectors.EVENT_READ
        if connection.writing:
            wanted |= selectors.EVENT_WRITE
        if connection.stage is Stage.ENDED:
            wanted = 0
        if wanted != connection.watched:
            if not connection.watched:
                self._selector.register(connection.sock, wanted, connection)
            elif wanted:
                self._selector.modify(connection.sock, wanted, connection)
            else:
                self._selector.unregister(connection.sock)
            connection.watched = wanted
        if connection.stage is Stage.ENDED:
            self.connections.discard(connection)
            self._count(connection)
            self._hosts[connection.host] -= 1
            if not self._hosts[connection.host]:
                del self._hosts[connection.host]
            connection.sock.close()

    def _look_around(self, now: float) -> None:
        if self._accept_at and now >= self._accept_at:
            assert self._selector is not None
            assert self._listening is not None
            self._selector.register(self._listening, selectors.EVENT_READ)
            self._accept_at = 0.0
        for connection in self.connections:
            self._look_at(connection, now)
        try:
            self._handler.tick(now)
        except Exception:  # noqa: BLE001 - it may fail in any way
            _log.exception("%s: a tick failed", self._name)

    def _look_at(self, connection: Connection, now: float) -> None:
        since, limits = connection.packet_since, self.limits
        if connection.closing:
            if connection.stage is Stage.LINGERING and now >= connection.lingers_until:
                connection.stage = Stage.ENDED
                self._changed.add(connection)
        elif not connection.accepted:
            if now - connection.heard_at > limits.connect_time:
                connection.close(None, f"no CONNECT within {limits.connect_time:g} s")
        elif connection.paused:
            connection.heard_at = now
        elif since is not None and now - since > limits.packet_time:
            connection.close(ReasonCode.KEEP_ALIVE_TIMEOUT, f"a packet took longer than {limits.packet_time:g} s")
        elif connection.keep_alive and now - connection.heard_at > connection.keep_alive:
            connection.close(ReasonCode.KEEP_ALIVE_TIMEOUT, f"nothing came for {connection.keep_alive:g} s")

    def _end(self, selector: selectors.BaseSelector) -> None:
        for connection in self.connections:
            connection.sock.close()
        self.connections.clear()
        selector.close()
        for each in (self._listening, self._wake, self._woken):
            if each is not None:
                each.close()
