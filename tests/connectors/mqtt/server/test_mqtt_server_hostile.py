"""Hostile clients of an MQTT server are disconnected with the right code, and others go on."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest
from faultymqtt import FaultyMqtt
from mqttclient import MqttClient
from waiting import until

from connectors.mqtt.protocol.packets import V5, V311, Connect, Publish, Subscribe, Subscription, Version
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.writing import PINGREQ, encode
from connectors.mqtt.server import Limits

pytestmark = pytest.mark.slow

LIMITS = Limits(
    connections=20,
    max_packet=100_000,
    unfinished=300_000,
    connect_time=0.5,
    packet_time=0.5,
    unread=500_000,
)


@pytest.fixture
def server() -> Iterator[FaultyMqtt]:
    """A server with low limits; at the end it still serves a client that behaves."""
    with FaultyMqtt(limits=LIMITS) as started:
        yield started
        assert until(lambda: started.server.ask(lambda: len(started.server.connections)) < 20)
        with MqttClient(started.host, started.port) as client:
            client.subscribe("t", 1)
            client.publish("t", b"still here", 1)
            assert client.take(1)[0].payload == b"still here"


class Stranger:
    """A bare connection."""

    def __init__(self, server: FaultyMqtt, version: Version | None = V5, keep_alive: int = 0) -> None:
        self.socket = socket.create_connection((server.host, server.port))
        self.socket.settimeout(30)
        if version is not None:
            self.socket.sendall(encode(Connect("stranger", keep_alive=keep_alive, version=version), V5))
            connack = self.socket.recv(2)
            assert connack[0] == 0x20
            assert self.read(connack[1])[1] == 0

    def read(self, count: int) -> bytes:
        found = b""
        while len(found) < count and (more := self.socket.recv(count - len(found))):
            found += more
        return found

    def rest(self) -> bytes:
        """All that comes until the server closes."""
        found = b""
        try:
            while more := self.socket.recv(65_536):
                found += more
        except ConnectionResetError:
            pass
        self.socket.close()
        return found

    def reason(self) -> int | None:
        """The reason of the DISCONNECT that ends the connection; `None` if it ends without one."""
        rest = self.rest()
        return rest[2] if rest[:1] == b"\xe0" else None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"\x00\x00", 0x81, id="packet type 0"),
        pytest.param(b"\x30\xff\xff\xff\xff\x01", 0x81, id="five bytes of length"),
        pytest.param(b"\x36\x05\x00\x01t\x00\x01", 0x81, id="QoS 3"),
        pytest.param(b"\x32\x06\x00\x01t\x00\x00\x00", 0x81, id="packet id 0"),
        pytest.param(b"\x30\x04\x00\x01#\x00", 0x90, id="wildcard in a topic"),
        pytest.param(b"\x30\x04\x00\x01\xff\x00", 0x81, id="no UTF-8"),
        pytest.param(b"\x30\x06\x00\x00\x03\x23\x00\x01", 0x82, id="an alias that was never set"),
        pytest.param(b"\x30\x07\x00\x01t\x03\x23\xff\xff", 0x94, id="an alias beyond the maximum"),
        pytest.param(b"\x30\xff\xff\xff\x7f", 0x95, id="an announced packet of 256 MB"),
        pytest.param(b"\x80\x00", 0x81, id="reserved flags"),
        pytest.param(b"\x82\x03\x00\x01\x00", 0x82, id="a SUBSCRIBE of nothing"),
        pytest.param(b"\x20\x03\x00\x00\x00", 0x82, id="a CONNACK from a client"),
        pytest.param(encode(Connect("stranger", version=V5), V5), 0x82, id="a second CONNECT"),
        pytest.param(b"\xf0\x00", 0x82, id="AUTH without an authentication method in CONNECT"),
    ],
)
def test_a_packet_that_breaks_the_protocol_ends_the_connection_with_the_standards_code(
    data: bytes, reason: int, server: FaultyMqtt
) -> None:
    stranger = Stranger(server)
    # Later bytes are not read any more, and do not keep the client from reading the reason.
    stranger.socket.sendall(data + b"\x30" * 1000)
    assert stranger.reason() == reason


def test_a_client_of_3_1_1_is_disconnected_without_a_word(server: FaultyMqtt) -> None:
    stranger = Stranger(server, V311)
    stranger.socket.sendall(b"\x36\x05\x00\x01t\x00\x01")
    assert stranger.rest() == b""


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), b"", id="TLS"),
        pytest.param(PINGREQ, b"", id="no CONNECT first"),
        pytest.param(encode(Publish("t"), V311), b"", id="PUBLISH first"),
        pytest.param(b"\x10\x0c\x00\x04MQTT\x03\x02\x00\x00\x00\x00", b"\x20\x02\x00\x01", id="another version"),
        pytest.param(
            b"\x10\x0c\x00\x04MQTT\x04\x00\x00\x00\x00\x00", b"\x20\x02\x00\x02", id="a session without an id"
        ),
        pytest.param(b"\x10\xff\xff\xff\x7f", b"", id="an endless CONNECT"),
    ],
)
def test_a_client_that_does_not_begin_with_a_connect_is_disconnected(
    data: bytes, answer: bytes, server: FaultyMqtt
) -> None:
    stranger = Stranger(server, None)
    stranger.socket.sendall(data)
    assert stranger.rest() == answer


@pytest.mark.parametrize("data", [b"", b"\x10", encode(Connect("slow", version=V5), V5)[:-1]])
def test_a_client_that_takes_too_long_to_send_its_connect_is_disconnected(data: bytes, server: FaultyMqtt) -> None:
    stranger = Stranger(server, None)
    stranger.socket.sendall(data)
    assert stranger.rest() == b""


def test_a_packet_that_never_ends_is_given_up(server: FaultyMqtt) -> None:
    stranger = Stranger(server)
    try:
        for byte in encode(Publish("t", bytes(1000)), V5):
            stranger.socket.sendall(bytes([byte]))
            time.sleep(0.01)
    except OSError:
        pass
    assert stranger.reason() == 0x8D


def test_many_unfinished_packets_together_do_not_fill_the_memory(server: FaultyMqtt) -> None:
    strangers: list[Stranger] = []
    head = b"\x30" + b"\xf0\x93\x05"
    for number in range(5):
        one = Stranger(server, None)
        one.socket.sendall(encode(Connect(f"half-{number}", version=V5), V5) + head + bytes(80_000))
        strangers.append(one)
        held = server.server.ask(lambda: sum(each.kept for each in server.server.connections))
        assert held <= LIMITS.unfinished
    codes = [one.rest() for one in strangers]
    assert all(b"\xe0" in code for code in codes)


def test_small_unfinished_packets_count_beside_large_ones(server: FaultyMqtt) -> None:
    strangers: list[Stranger] = []
    for size in [80_000, 80_000, 80_000, *[15_000] * 6]:
        one = Stranger(server, None)
        connect = encode(Connect(f"part-{len(strangers)}", version=V5), V5)
        one.socket.sendall(connect + b"\x30\xf0\x93\x05" + bytes(size))
        strangers.append(one)
        held = server.server.ask(lambda: sum(each.kept for each in server.server.connections))
        assert held <= LIMITS.unfinished
    assert all(b"\xe0" in one.rest() for one in strangers)


def test_a_client_that_sends_and_never_reads_is_disconnected(server: FaultyMqtt) -> None:
    stranger = Stranger(server, V311)

    def little_is_buffered_below() -> None:
        for each in server.server.connections:
            each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    server.server.ask(little_is_buffered_below)
    stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    try:
        for _ in range(20_000):
            stranger.socket.sendall(PINGREQ * 10_000)
    except OSError:
        pass
    assert until(lambda: server.server.ask(lambda: not any(one.accepted for one in server.server.connections)))
    stranger.socket.close()


def test_a_subscriber_that_does_not_read_delays_no_other(server: FaultyMqtt) -> None:
    stranger = Stranger(server, V311)
    stranger.socket.sendall(encode(Subscribe(1, (Subscription("big", 0),)), V311))
    with MqttClient(server.host, server.port) as writer, MqttClient(server.host, server.port) as reader:
        reader.subscribe("big", 1)
        for _ in range(500):
            writer.publish("big", bytes(50_000), 1)
        assert len(reader.take(500)) == 500
    waiting = server.server.ask(lambda: max(one.waiting for one in server.server.connections))
    assert waiting < 2 * LIMITS.unread
    stranger.socket.close()


def test_connections_beyond_the_limit_are_closed_and_there_is_room_again_when_others_go(
    server: FaultyMqtt,
) -> None:
    held = [socket.create_connection((server.host, server.port)) for _ in range(40)]
    assert until(lambda: server.server.refused >= 20)
    for one in held:
        one.close()


def test_thousands_of_connections_one_after_the_other_leave_nothing_behind(server: FaultyMqtt) -> None:
    for number in range(2000):
        one = socket.create_connection((server.host, server.port))
        if number % 3 == 0:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if number % 2:
            one.sendall(encode(Connect(f"c{number}", version=V5), V5)[: number % 20])
        one.close()
    assert until(lambda: server.server.ask(lambda: not server.server.connections))
    assert server.ask(lambda broker: len(broker.sessions)) == 0


def test_long_reason_texts_and_client_ids_are_cut(server: FaultyMqtt) -> None:
    stranger = Stranger(server, None)
    stranger.socket.sendall(encode(Connect("x" * 60_000, version=V5, properties=Properties(receive_maximum=1)), V5))
    assert stranger.read(1) == b"\x20"
    stranger.socket.close()


def test_a_connection_that_cannot_be_written_to_in_an_unknown_way_ends_alone(
    server: FaultyMqtt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unknown error while writing ends that connection alone."""
    stranger = Stranger(server)
    (connection,) = server.server.ask(lambda: list(server.server.connections))

    def fail() -> None:
        raise RuntimeError("unknown")

    monkeypatch.setattr(connection, "may_write", fail)
    stranger.socket.sendall(encode(Subscribe(1, (Subscription("a", 0),)), V5))
    assert stranger.read(1) == b""
    assert until(lambda: not server.server.ask(lambda: server.server.connections))
