"""mosquitto as an oracle: messages that it accepts are read as they were sent, even malformed ones."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mqttpackets import publishes

from connectors.mqtt.protocol.packets import V5, V311, Connect, Packet, Publish, Subscribe, Subscription, Version
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reading import PacketReader, Role
from connectors.mqtt.protocol.writing import PINGREQ, encode
from examples import examples
from streamer.devbroker.mqtt import LocalMosquitto

pytestmark = pytest.mark.slow

VERSIONS = [V311, V5]
MARK = "marks/of/this/test"


class Line:
    """A connection to the broker."""

    def __init__(self, broker: LocalMosquitto, version: Version, name: str) -> None:
        self.socket = socket.create_connection((broker.host, broker.port))
        self.socket.settimeout(30)
        self._version = version
        self._reader = PacketReader(Role.CLIENT, version)
        self._read: list[Packet] = []
        self.send(Connect(name, version=version))
        self.next()

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(packet, self._version))

    def next(self) -> Packet:
        """Raises `ProtocolError` for bytes that our reader refuses."""
        while not self._read:
            data = self.socket.recv(1 << 16)
            assert data, "mosquitto closed the connection"
            self._read += self._reader.feed(data)
        return self._read.pop(0)


class Oracle:
    """Sends bytes to mosquitto as a client that disconnects then, and returns the messages that a subscriber to all
    topics gets."""

    def __init__(self, broker: LocalMosquitto, version: Version) -> None:
        self._broker, self._version = broker, version
        self._numbers = itertools.count()
        self._marking = Line(broker, version, "marking")
        self._all = Line(broker, version, "all")
        self._all.send(Subscribe(1, (Subscription("#", 0),)))
        self._all.next()

    def passed(self, raw: bytes) -> list[Publish]:
        line = Line(self._broker, self._version, "sender")
        # Read to its end, so that mosquitto has had everything.
        with line.socket as sender:
            try:
                sender.sendall(raw + PINGREQ)
                sender.shutdown(socket.SHUT_WR)
                while sender.recv(1 << 16):
                    pass
            except OSError:
                pass
        mark = b"%d" % next(self._numbers)
        self._marking.send(Publish(MARK, mark))
        found: list[Publish] = []
        while not isinstance(packet := self._all.next(), Publish) or (packet.topic, packet.payload) != (MARK, mark):
            assert isinstance(packet, Publish)
            found.append(packet)
        return found


@pytest.fixture(params=VERSIONS, ids=["3.1.1", "5"])
def oracle(request: pytest.FixtureRequest, start_mosquitto: Callable[..., LocalMosquitto]) -> Oracle:
    return Oracle(start_mosquitto(), request.param)


def of_the_message(properties: Properties) -> Properties:
    """Those that a broker has to pass on, but for the expiry, which it counts down."""
    return Properties(
        payload_format_indicator=properties.payload_format_indicator,
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=properties.user_properties,
    )


_SEARCHED = settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])


@_SEARCHED
@given(data=st.data())
def test_messages_come_back_from_mosquitto_unchanged(oracle: Oracle, data: st.DataObject) -> None:
    """Unless mosquitto refuses it: it takes no control characters in topics, for one."""
    version = oracle._version
    drawn = data.draw(publishes(version, Role.SERVER).filter(lambda one: one.qos < 2))
    sent = replace(drawn, retain=False, properties=replace(drawn.properties, topic_alias=None))
    for found in oracle.passed(encode(sent, version)):
        assert (found.topic, found.payload) == (sent.topic, sent.payload)
        if sent.properties.payload_format_indicator is None:
            assert of_the_message(found.properties) == of_the_message(sent.properties)
        else:
            assert found.properties.user_properties == sent.properties.user_properties


@_SEARCHED
@given(data=st.data())
def test_every_message_that_mosquitto_passes_on_can_be_read(oracle: Oracle, data: st.DataObject) -> None:
    """Messages in which a few bytes were changed."""
    version = oracle._version
    drawn = data.draw(publishes(version, Role.SERVER))
    raw = bytearray(encode(replace(drawn, retain=False), version))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    oracle.passed(bytes(raw))


def test_a_plain_message_passes(oracle: Oracle) -> None:
    """So that the others prove something."""
    (found,) = oracle.passed(encode(Publish("a/b", b"1", 1, packet_id=1), oracle._version))
    assert found == Publish("a/b", b"1", properties=NONE)
