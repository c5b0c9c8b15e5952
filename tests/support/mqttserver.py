"""One end of a TCP connection that a test plays itself: a broker that says exactly what the test wants."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from waiting import PATIENCE

from connectors.mqtt.protocol.packets import V5, Connack, Packet, Pingreq, Pingresp, Suback, Subscribe, Version
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reading import PacketReader, Role
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.writing import encode


class PlayedServer:
    """Listens on 127.0.0.1. `drive` is called while it waits, so that client and server can live in one thread."""

    def __init__(self, drive: Callable[[], object] = lambda: None) -> None:
        self.drive = drive
        self.version: Version = V5
        self.seen: list[Packet] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self._connection: socket.socket | None = None
        self._reader = PacketReader(Role.SERVER)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"mqtt://127.0.0.1:{self._listening.getsockname()[1]}"

    def __enter__(self) -> PlayedServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()
        self._listening.close()

    def accept(self) -> None:
        """Take the next connection."""
        self.hang_up()

        def accepted() -> bool:
            try:
                self._connection, _ = self._listening.accept()
            except BlockingIOError:
                return False
            return True

        self.until(accepted, "a connection")
        self.connection.setblocking(False)
        self._reader = PacketReader(Role.SERVER)
        self.seen = []

    def expect(self, kind: type[Packet], count: int = 1) -> list[Packet]:
        """Wait for so many more packets of this kind; all that came are in `seen`."""
        before = sum(isinstance(one, kind) for one in self.seen)

        def came() -> bool:
            self.read()
            return sum(isinstance(one, kind) for one in self.seen) >= before + count

        self.until(came, f"{count} {kind.__name__}; there were {self.seen}")
        return [one for one in self.seen if isinstance(one, kind)][before:]

    def read(self) -> None:
        """Take what there is."""
        try:
            while data := self.connection.recv(65_536):
                self.seen += self._reader.feed(data)
        except (BlockingIOError, ConnectionError):
            pass

    def connect(
        self,
        *,
        session_present: bool = False,
        properties: Properties = NONE,
        version: Version = V5,
        grants: Sequence[int] | None = (1,),
    ) -> None:
        """Take a connection and greet it, and grant what it subscribes to unless `grants` is `None`."""
        self.version = version
        self.accept()
        self.expect_one("Connect")
        self.say(Connack(session_present, properties=properties))
        if grants is not None:
            subscribe = self.expect_one("Subscribe")
            assert isinstance(subscribe, Subscribe)
            self.say(Suback(subscribe.packet_id, tuple(ReasonCode(one) for one in grants)))

    def expect_one(self, name: str) -> Packet:
        """Wait for the first packet of this name on this connection."""

        def found() -> list[Packet]:
            self.read()
            return [one for one in self.seen if type(one).__name__ == name]

        self.until(lambda: bool(found()), f"{name}; there were {self.seen}")
        return found()[0]

    def say(self, *packets: Packet) -> None:
        """Send these."""
        self.send(b"".join(encode(packet, self.version) for packet in packets))

    def send(self, data: bytes) -> None:
        """Send these bytes."""
        self.connection.setblocking(True)
        self.connection.sendall(data)
        self.connection.setblocking(False)

    def answer_pings(self) -> None:
        """Answer what was asked so far and not answered."""
        self.read()
        asked = [one for one in self.seen if isinstance(one, Pingreq)]
        self.seen = [one for one in self.seen if not isinstance(one, Pingreq)]
        for _ in asked:
            self.say(Pingresp())

    def hang_up(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Drive the client until it happened."""
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert time.monotonic() < deadline, f"there was no {what}"
            self.drive()
            time.sleep(0.001)

    @property
    def connection(self) -> socket.socket:
        """The connection there is."""
        assert self._connection is not None, "there is no connection"
        return self._connection
