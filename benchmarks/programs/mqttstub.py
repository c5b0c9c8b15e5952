"""A stand-in for an MQTT broker that costs next to nothing, so that the cost of a client can be measured by itself.

    python -m benchmarks.programs.mqttstub '{"mode": "replay", "qos": 1, "count": 200000, "payload": 1024}'

`replay` streams messages that were built beforehand to the first client that subscribes; at QoS 1 at most `window` are
unacknowledged. `take` acknowledges messages of the first client, until there are `count`. It prints a line of JSON
with its `port`, and at the end one with `messages` and `seconds`, from the first message to the last acknowledgement.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import sys
import time
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from connectors.mqtt.protocol.bulk import encode_acks, encode_publishes
from connectors.mqtt.protocol.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Version,
)
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reading import PacketReader, Role
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.scan import Scanner
from connectors.mqtt.protocol.writing import encode

_READ = 256 * 2**10
_MOST_AT_ONCE = 2**20
_PUBACK = 0x40


@dataclass(frozen=True)
class Order:
    """The settings of a run. `payload` is in bytes; messages go round `topics` topics."""

    mode: Literal["replay", "take"]
    qos: int = 1
    count: int = 200_000
    payload: int = 1024
    topics: int = 100
    window: int = 1000
    port: int = 0


def main() -> None:
    """Serve one client."""
    order = Order(**json.loads(sys.argv[1]))
    with socket.create_server(("127.0.0.1", order.port)) as listening:
        print(json.dumps({"port": listening.getsockname()[1]}), flush=True)
        client, _ = listening.accept()
    with client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        version, reader = _greeted(client, order)
        messages, seconds = (_replay if order.mode == "replay" else _take)(client, reader, version, order)
        print(json.dumps({"messages": messages, "seconds": seconds}), flush=True)
        # Until the client has had enough.
        client.settimeout(30)
        with contextlib.suppress(ConnectionError):
            while client.recv(_READ):
                pass


def _greeted(client: socket.socket, order: Order) -> tuple[Version, PacketReader]:
    """Let the client in, and have it subscribe where it is to be sent something."""
    reader = PacketReader(Role.SERVER)
    while True:
        for packet in reader.feed(_some(client)):
            if isinstance(packet, Connect):
                told = Properties(receive_maximum=order.window) if packet.version == V5 else NONE
                client.sendall(encode(Connack(False, ReasonCode.SUCCESS, told), packet.version))
                if order.mode == "take":
                    return packet.version, reader
            elif isinstance(packet, Subscribe):
                version = cast(Version, reader.version)
                granted = tuple(ReasonCode(min(one.qos, order.qos)) for one in packet.subscriptions)
                client.sendall(encode(Suback(packet.packet_id, granted), version))
                return version, reader


def _replay(client: socket.socket, reader: PacketReader, version: Version, order: Order) -> tuple[int, float]:
    # Packet ids go round; more of them than there are in flight.
    ids = min(65_535, max(4 * order.window, 4096)) if order.qos else 4096
    block, size = _block(order, version, ids)
    sent = acknowledged = 0
    client.setblocking(False)
    began = time.perf_counter()
    rest = memoryview(b"")
    while (acknowledged if order.qos else sent) < order.count or len(rest):
        if not len(rest) and (some := _room(order, sent, acknowledged, ids, size)):
            at = sent % ids
            rest = memoryview(block)[at * size : (at + some) * size]
            sent += some
        readable, writable, _ = select.select([client], [client] if len(rest) else [], [], 1.0)
        if writable:
            rest = rest[client.send(rest) :]
        if readable:
            acknowledged += _acknowledgements(client, reader, _some(client), version)
    return sent, time.perf_counter() - began


def _room(order: Order, sent: int, acknowledged: int, ids: int, size: int) -> int:
    """How many messages may be sent now, in one piece of the block."""
    most = min(order.count - sent, ids - sent % ids, max(1, _MOST_AT_ONCE // size))
    return most if not order.qos else min(most, order.window - (sent - acknowledged))


def _block(order: Order, version: Version, ids: int) -> tuple[bytes, int]:
    """Messages with the packet ids from 1 to `ids`, and the bytes of each, which are the same."""
    topics = [f"bench/{number:05}" for number in range(order.topics)]
    numbers = np.arange(ids)
    block = encode_publishes(
        version,
        topics,
        [b"%08d" % number + bytes(max(0, order.payload - 8)) for number in range(ids)],
        codes=(numbers % order.topics).astype(np.int32),
        packet_ids=(numbers + 1).astype(np.uint16),
        qos=order.qos,
    )
    return block, len(block) // ids


def _acknowledgements(client: socket.socket, reader: PacketReader, data: bytes, version: Version) -> int:
    """How many messages the client acknowledges in this."""
    if not reader.kept and len(data) % 4 == 0:
        quads = np.frombuffer(data, np.uint8).reshape(-1, 4)
        if (quads[:, 0] == _PUBACK).all() and (quads[:, 1] == 2).all():
            return len(quads)
    count = 0
    for packet in reader.feed(data):
        count += isinstance(packet, Puback)
        _serve(client, packet, version)
    return count


def _take(client: socket.socket, reader: PacketReader, version: Version, order: Order) -> tuple[int, float]:
    scanner = Scanner(version, role=Role.SERVER)
    kept, taken, began = b"", 0, 0.0
    while taken < order.count:
        buffer = np.frombuffer(kept + _some(client), np.uint8)
        began = began or time.perf_counter()
        start = 0
        while start < len(buffer):
            found = scanner.scan(buffer, start)
            if not len(found):
                other = _other(client, buffer[start:], version)
                if not other:
                    break
                start += other
                continue
            ids = found.packet_ids[found.qos > 0]
            if len(ids):
                client.sendall(encode_acks(PacketType.PUBACK, ids))
            taken += len(found)
            start += found.consumed
        kept = buffer[start:].tobytes()
    return taken, time.perf_counter() - began


def _other(client: socket.socket, buffer: np.ndarray[tuple[int], np.dtype[np.uint8]], version: Version) -> int:
    """Serve a packet that is no PUBLISH; its bytes, 0 if it is not whole."""
    data = buffer.tobytes()
    if data[0] >> 4 == PacketType.PUBLISH or len(data) < 2 or len(data) < 2 + data[1]:
        return 0
    size = 2 + data[1]
    for packet in PacketReader(Role.SERVER, version).feed(data[:size]):
        _serve(client, packet, version)
    return size


def _serve(client: socket.socket, packet: Packet, version: Version) -> None:
    if isinstance(packet, Pingreq):
        before = client.gettimeout()
        client.settimeout(30)
        client.sendall(encode(Pingresp(), version))
        client.settimeout(before)
    elif isinstance(packet, Disconnect):
        raise SystemExit("the client left before the end")
    elif isinstance(packet, Publish):
        raise SystemExit("the client was not asked to publish")


def _some(client: socket.socket) -> bytes:
    data = client.recv(_READ)
    if not data:
        raise SystemExit("the client left before the end")
    return data


if __name__ == "__main__":
    main()
