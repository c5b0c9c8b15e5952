"""A process that simulates a broker: it streams prepared messages of QoS 1, and counts acknowledgements.

`python -m benchmarks.mqtt.player JSON`, which is a `Play`, prints `{"port": ...}`, and `{"mark": ..., "time": ...}`
when so many messages were acknowledged, or published by the client.

A client that subscribes is sent messages, never more ahead of their acknowledgement than `window` and its own Receive
Maximum; every acknowledgement has to be of a message that is on its way. Messages of clients are acknowledged, in
order. All packets to be sent lie in one block of memory that is sent round and round, so that a message costs next to
nothing here.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.programs.mqtt.job import TOPICS
from connectors.mqtt.protocol.packets import Connack, Connect, Pingreq, Pingresp, Publish, Suback, Subscribe, Version
from connectors.mqtt.protocol.reading import PacketReader, Role
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.writing import encode

_ROUNDS = 4
"""How many windows of messages lie ready: a packet id comes again when it has long been acknowledged."""
_ROOM = 1 << 20
_PIECE = 256 * 1024
"""Bytes that are sent at once."""


def topic(number: int) -> str:
    """The topic of message `number`."""
    return f"bench/line{number % 10}/{number % TOPICS}"


@dataclass(frozen=True, slots=True)
class Play:
    """The settings of the simulated broker."""

    payloads: str
    """A file of payloads as `write_payloads` leaves them."""
    count: int
    """How many messages a client that subscribes is sent."""
    window: int
    marks: tuple[int, ...]
    counts: Literal["acknowledged", "published"]
    """The messages that the marks count."""
    results_first: bool = False
    """Whether a message may be acknowledged only when a result of it was published."""


def write_payloads(path: Path, payloads: Sequence[bytes]) -> None:
    """Each with its length in front, four bytes."""
    path.write_bytes(b"".join(len(one).to_bytes(4, "big") + one for one in payloads))


def read_payloads(path: Path) -> list[bytes]:
    """The payloads again."""
    raw, at, found = path.read_bytes(), 0, []
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 4], "big")
        found.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return found


class Tally:
    """The counts of all clients together; prints a line at each mark."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._lock = threading.Lock()
        self._counts = {"acknowledged": 0, "published": 0}

    def add(self, kind: Literal["acknowledged", "published"], count: int) -> None:
        """So many more. Raises `ValueError` for acknowledgements that come before results."""
        with self._lock:
            before = self._counts[kind]
            now = self._counts[kind] = before + count
            if self._play.results_first and self._counts["acknowledged"] > self._counts["published"]:
                raise ValueError("a message was acknowledged before a result of it was published")
            if kind == self._play.counts:
                for mark in self._play.marks:
                    if before < mark <= now:
                        print(json.dumps({"mark": mark, "time": time.time()}), flush=True)


class Ring:
    """The packets of `count` messages, with packet ids from 1 on, one behind the other."""

    def __init__(self, payloads: Sequence[bytes], count: int, version: Version) -> None:
        packets = [
            encode(Publish(topic(at), payloads[at % len(payloads)], 1, packet_id=at + 1), version)
            for at in range(count)
        ]
        self.data = memoryview(b"".join(packets))
        self.ends = np.cumsum([len(packet) for packet in packets])
        self.count = count

    def piece(self, at: int, most: int) -> tuple[memoryview, int]:
        """Bytes of at most `most` messages from number `at` on, up to the end of the ring; and how many these are."""
        start = int(self.ends[at - 1]) if at else 0
        stop = min(at + most, self.count, max(at + 1, int(np.searchsorted(self.ends, start + _PIECE))))
        return self.data[start : int(self.ends[stop - 1])], stop - at


class Connection:
    """One client, in a thread of its own."""

    def __init__(self, client: socket.socket, payloads: Sequence[bytes], play: Play, tally: Tally) -> None:
        self._client = client
        self._payloads = payloads
        self._window = play.window
        self._tally = tally
        self._left = play.count
        self._buffer = bytearray(_ROOM)
        self._have = 0
        self._unsent: list[memoryview] = []
        self._ring: Ring | None = None
        self._next = 0
        self._flying = 0
        self._out = np.zeros(65_536, np.bool_)
        self._reader = PacketReader(Role.SERVER)

    def run(self) -> None:
        """Until the client is gone."""
        self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client.setblocking(False)
        try:
            while True:
                wants = bool(self._unsent) or self._may_send() > 0
                readable, writable, _ = select.select([self._client], [self._client] if wants else [], [])
                if readable and not self._receive():
                    return
                if writable:
                    self._send()
        except OSError:
            return
        finally:
            self._client.close()

    def _may_send(self) -> int:
        return 0 if self._ring is None else min(self._window - self._flying, self._left)

    def _send(self) -> None:
        if not self._unsent:
            assert self._ring is not None
            piece, count = self._ring.piece(self._next, self._may_send())
            self._out[self._next + 1 : self._next + 1 + count] = True
            self._next = (self._next + count) % self._ring.count
            self._flying += count
            self._left -= count
            self._unsent.append(piece)
        part = self._unsent[0]
        try:
            sent = self._client.send(part)
        except BlockingIOError:
            return
        if sent == len(part):
            self._unsent.pop(0)
        else:
            self._unsent[0] = part[sent:]

    def _receive(self) -> bool:
        try:
            count = self._client.recv_into(memoryview(self._buffer)[self._have :])
        except BlockingIOError:
            return True
        if not count:
            return False
        self._have += count
        at = 0
        while at < self._have:
            taken = self._take(at)
            if not taken:
                break
            at += taken
        self._buffer[: self._have - at] = self._buffer[at : self._have]
        self._have -= at
        return True

    def _take(self, at: int) -> int:
        """Take the packets that begin at `at`; the bytes taken, 0 if the first has not come whole."""
        kind = self._buffer[at] & 0xF0
        if kind == 0x40:
            return self._acknowledged(at)
        if kind == 0x30:
            return self._published(at)
        size = self._size(at)
        if size:
            for packet in self._reader.feed(bytes(self._buffer[at : at + size])):
                self._answer(packet)
        return size

    def _size(self, at: int) -> int:
        length = shift = 0
        for place in range(at + 1, min(at + 5, self._have)):
            length |= (self._buffer[place] & 0x7F) << shift
            shift += 7
            if self._buffer[place] < 0x80:
                size = place + 1 - at + length
                return size if at + size <= self._have else 0
        return 0

    def _answer(self, packet: object) -> None:
        match packet:
            case Connect():
                if packet.properties.receive_maximum is not None:
                    self._window = min(self._window, packet.properties.receive_maximum)
                self._write(encode(Connack(), packet.version))
            case Subscribe():
                version = self._reader.version
                assert version is not None
                granted = tuple(ReasonCode(one.qos) for one in packet.subscriptions)
                self._write(encode(Suback(packet.packet_id, granted), version))
                if self._left:
                    self._ring = Ring(self._payloads, _ROUNDS * self._window, version)
            case Pingreq():
                assert self._reader.version is not None
                self._write(encode(Pingresp(), self._reader.version))

    def _acknowledged(self, at: int) -> int:
        """Several at once, which are of one size: 4 bytes, or more where a client of MQTT 5 writes a reason."""
        if self._have < at + 4:
            return 0
        size = 2 + self._buffer[at + 1]
        count = (self._have - at) // size
        if not count:
            return 0
        rows = np.frombuffer(self._buffer, np.uint8, count * size, at).reshape(count, size)
        alike = (rows[:, 0] == 0x40) & (rows[:, 1] == size - 2)
        count = count if alike.all() else int(alike.argmin())
        ids = (rows[:count, 2].astype(np.int64) << 8) | rows[:count, 3]
        if not self._out[ids].all() or len(np.unique(ids)) != count:
            raise ValueError("an acknowledgement of a message that was not on its way")
        self._out[ids] = False
        self._flying -= count
        self._tally.add("acknowledged", count)
        return count * size

    def _published(self, at: int) -> int:
        """Several at once, as far as they are of one size."""
        size = self._size(at)
        if not size:
            return 0
        qos = self._buffer[at] >> 1 & 3
        body = at + 1
        while self._buffer[body] >= 0x80:
            body += 1
        place = body + 3 + (self._buffer[body + 1] << 8 | self._buffer[body + 2]) - at
        count = (self._have - at) // size
        rows = np.frombuffer(self._buffer, np.uint8, count * size, at).reshape(count, size)
        head = rows[:, : body + 1 - at] == rows[0, : body + 1 - at]
        alike = head.all(axis=1)
        count = count if alike.all() else int(alike.argmin())
        self._tally.add("published", count)
        if qos:
            answers = np.empty((count, 4), np.uint8)
            answers[:, 0], answers[:, 1] = 0x40, 2
            answers[:, 2:] = rows[:count, place : place + 2]
            self._write(answers.tobytes())
        return count * size

    def _write(self, data: bytes) -> None:
        self._unsent.append(memoryview(data))
        self._send()


def main() -> None:
    """Play until the process is ended."""
    play = Play(**json.loads(sys.argv[1]))
    payloads, tally = read_payloads(Path(play.payloads)), Tally(play)
    server = socket.create_server(("127.0.0.1", 0))
    print(json.dumps({"port": server.getsockname()[1]}), flush=True)
    while True:
        client, _ = server.accept()
        threading.Thread(target=Connection(client, payloads, play, tally).run, daemon=True).start()


if __name__ == "__main__":
    main()
