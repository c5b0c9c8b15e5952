"""Against Eclipse paho: its packets are read here, and ours are read by it."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqttpackets import publishes

from connectors.mqtt.protocol.packets import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reading import PacketReader, Role
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.writing import encode
from examples import examples

paho: Any = pytest.importorskip("paho.mqtt.client", reason="pip install 'streamer-inference[mqtt]'")
VERSIONS: list[Version] = [V311, V5]
USER = (("a", "1"), ("a", "2"), ("ü", ""))


def theirs(properties: Properties, kind: str) -> Any:
    """These properties as paho's."""
    out: Any = paho.Properties(getattr(paho.PacketTypes, kind))
    for field in fields(properties):
        value = getattr(properties, field.name)
        if value is not None and value != ():
            value = list(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value
            setattr(out, _their_name(field.name), value)
    return out


def ours(properties: Any) -> Properties:
    """Properties of paho's as these."""
    known: dict[str, Any] = {_their_name(field.name): field for field in fields(Properties)}
    found: dict[str, Any] = {}
    for name, value in vars(properties).items():
        if name in known and value is not None:
            many = known[name].default == ()
            value = tuple(value) if many else value
            found[known[name].name] = bool(value) if "bool" in known[name].type else value
    return Properties(**found)


def _their_name(name: str) -> str:
    name = {"user_properties": "user_property", "subscription_identifiers": "subscription_identifier"}.get(name, name)
    return "".join(word.capitalize() for word in name.split("_")).replace("Qos", "QoS")


class Line:
    """A connection of paho's client to a server that is this test."""

    def __init__(self, version: Version, **options: Any) -> None:
        self.version = version
        self.seen: list[Any] = []
        protocol = paho.MQTTv5 if version == V5 else paho.MQTTv311
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, "me", protocol=protocol)
        self.client.max_inflight_messages_set(0)
        self.client.username_pw_set("user", "secret")
        will = {"properties": theirs(options["will"], "WILLMESSAGE")} if "will" in options else {}
        self.client.will_set("will/topic", b"gone", 1, True, **will)
        self.client.on_message = lambda client, data, message: self.seen.append(message)
        self.client.on_connect = lambda client, data, flags, reason, properties: self.seen.append((flags, reason))
        self.client.on_subscribe = lambda client, data, number, reasons, properties: self.seen.append(reasons)
        self.client.on_unsubscribe = lambda client, data, number, reasons, properties: self.seen.append(reasons)
        self.client.on_publish = lambda client, data, number, reason, properties: self.seen.append(reason)
        self.client.on_disconnect = lambda client, data, flags, reason, properties: self.seen.append(reason)
        self.reader = PacketReader(Role.SERVER)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.client.connect(*listening.getsockname(), keepalive=30, **options.get("connect", {}))
            self.connection, _ = listening.accept()
        self.connect = self.next()
        self.send(Connack())
        assert self.heard()[1] == 0

    def next(self) -> Packet:
        """The next packet that paho sends."""
        while True:
            for packet in self.reader.feed(b""):
                return packet
            while self.client.want_write():
                self.client.loop_write()
            assert select.select([self.connection], [], [], 20)[0]
            self.reader.feed(self.connection.recv(65_536))

    def send(self, packet: Packet) -> None:
        """Send this to paho."""
        self.connection.sendall(encode(packet, self.version))

    def heard(self) -> Any:
        """The next thing that paho's callbacks say."""
        while not self.seen:
            assert select.select([self.client.socket()], [], [], 20)[0]
            self.client.loop_read()
        return self.seen.pop(0)

    def close(self) -> None:
        """End it."""
        self.connection.close()
        self.client.disconnect()


@pytest.fixture(scope="module", params=VERSIONS)
def line(request: pytest.FixtureRequest) -> Iterator[Line]:
    line = Line(request.param)
    yield line
    line.close()


def test_its_connect_is_read() -> None:
    will = Properties(will_delay_interval=3, content_type="x", user_properties=USER)
    opening = Properties(session_expiry_interval=60, receive_maximum=20, maximum_packet_size=9, user_properties=USER)
    line = Line(V5, will=will, connect={"properties": theirs(opening, "CONNECT"), "clean_start": False})
    expected = Will("will/topic", b"gone", 1, True, will)
    assert line.connect == Connect("me", False, 30, "user", b"secret", expected, opening, V5)
    line.close()


def test_its_connect_of_311_is_read() -> None:
    line = Line(V311)
    assert line.connect == Connect("me", True, 30, "user", b"secret", Will("will/topic", b"gone", 1, True), NONE, V311)
    line.close()


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(data=st.data())
def test_its_messages_are_read(line: Line, data: st.DataObject) -> None:
    sent = data.draw(publishes(line.version, Role.SERVER))
    extra = {"properties": theirs(sent.properties, "PUBLISH")} if line.version == V5 else {}
    line.client.publish(sent.topic, sent.payload, sent.qos, sent.retain, **extra)
    found = line.next()
    assert isinstance(found, Publish)
    assert (found.topic, found.payload, found.qos, found.retain) == (sent.topic, sent.payload, sent.qos, sent.retain)
    assert (found.properties, bool(found.packet_id)) == (sent.properties, bool(sent.qos))
    if sent.qos == 1:
        line.send(Puback(found.packet_id))
    elif sent.qos == 2:
        line.send(Pubrec(found.packet_id))
        while not isinstance(answer := _read_on(line), Pubrel):
            pass
        line.send(Pubcomp(answer.packet_id))
    if sent.qos:
        assert line.heard() == 0
    line.seen.clear()


def _read_on(line: Line) -> Packet:
    assert select.select([line.client.socket()], [], [], 20)[0]
    line.client.loop_read()
    return line.next()


@settings(max_examples=examples(60))
@given(data=st.data())
def test_it_reads_our_messages(line: Line, data: st.DataObject) -> None:
    sent = data.draw(publishes(line.version).filter(lambda packet: packet.qos < 2))
    line.seen.clear()
    line.send(sent)
    found = line.heard()
    assert (found.topic, found.payload, found.qos) == (sent.topic, sent.payload, sent.qos)
    assert (bool(found.retain), bool(found.dup)) == (sent.retain, sent.dup)
    if line.version == V5:
        assert ours(found.properties) == sent.properties
    if sent.qos:
        assert line.next() == Puback(sent.packet_id)


def test_a_subscription_and_its_end(line: Line) -> None:
    line.seen.clear()
    five = line.version == V5
    if five:
        options = paho.SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True, retainHandling=2)
        line.client.subscribe([("a/+", options), ("b", paho.SubscribeOptions(2))])
        wanted = (Subscription("a/+", 1, True, True, 2), Subscription("b", 2))
    else:
        line.client.subscribe([("a/+", 1), ("b", 2)])
        wanted = (Subscription("a/+", 1), Subscription("b", 2))
    found = line.next()
    assert isinstance(found, Subscribe)
    assert found.subscriptions == wanted
    failure = ReasonCode.NOT_AUTHORIZED if five else ReasonCode.UNSPECIFIED_ERROR
    line.send(Suback(found.packet_id, (ReasonCode.GRANTED_QOS_1, failure)))
    assert [reason.value for reason in line.heard()] == [1, failure]
    line.client.unsubscribe(["a/+", "b"])
    ending = line.next()
    assert isinstance(ending, Unsubscribe)
    assert ending.filters == ("a/+", "b")
    line.send(Unsuback(ending.packet_id, (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED) if five else ()))
    assert [reason.value for reason in line.heard()] == ([0, 0x11] if five else [])


def test_paho_reads_a_refusal_and_a_disconnect() -> None:
    line = Line(V5)
    line.client.publish("a", b"x", 1)
    found = line.next()
    assert isinstance(found, Publish)
    line.send(Puback(found.packet_id, ReasonCode.QUOTA_EXCEEDED, Properties(reason_string="enough")))
    assert line.heard().value == 0x97
    line.send(Disconnect(ReasonCode.SERVER_BUSY, Properties(reason_string="later")))
    assert line.heard().value == 0x89
    line.connection.close()


def test_its_disconnect_is_read() -> None:
    line = Line(V5)
    line.client.disconnect()
    assert line.next() == Disconnect()
    line.connection.close()
