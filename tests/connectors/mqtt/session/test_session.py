"""A session against a server that the test plays: grants, refusals, lost and resumed connections.

Each test runs with our own client and with paho, except where they differ.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from mqttserver import PlayedServer
from waiting import PATIENCE

from connectors.mqtt.address import BrokerAddress
from connectors.mqtt.protocol.packets import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.session.inbound import PacketInbound
from connectors.mqtt.session.link import MakeLink
from connectors.mqtt.session.login import Login
from connectors.mqtt.session.network import NetworkSession
from connectors.mqtt.session.paholink import PahoLink
from connectors.mqtt.session.settings import Granted, Grants, Settings
from connectors.mqtt.session.transport import Transport
from pipelines.errors import ConnectorError

NOT_PAHO = {
    "test_qos_1_instead_of_2_is_enough": "it does no QoS 2",
    "test_a_link_that_is_dead_is_found": "it sends UNSUBSCRIBE instead of PINGREQ",
    "test_a_server_that_answers_pings_is_kept": "it sends UNSUBSCRIBE instead of PINGREQ",
    "test_nobody_is_given_up_for_silence_while_nothing_is_read": "it sends UNSUBSCRIBE instead of PINGREQ",
    "test_a_ping_is_answered_behind_what_was_sent_before": "it sends UNSUBSCRIBE instead of PINGREQ",
    "test_malformed_packets_end_the_connection_with_the_reason": "it ends the connection without a reason",
    "test_a_port_that_speaks_tls_is_told_with_a_hint_at_mqtts": "it does not report bytes that are no MQTT",
}


class Told:
    """A session client that notes the session's calls."""

    def __init__(self) -> None:
        self.granted: list[Granted] = []
        self.grants: list[Grants] = []
        self.packets: list[Packet] = []
        self.reasons: list[str] = []

    def begun(self, granted: Granted) -> None:
        self.granted.append(granted)

    def subscribed(self, grants: Grants) -> None:
        self.grants.append(grants)

    def received(self, packet: Packet) -> None:
        self.packets.append(packet)

    def ended(self, reason: str) -> None:
        self.reasons.append(reason)


class Pair:
    """A session and the server that it speaks to."""

    link: ClassVar[MakeLink] = Transport

    def __init__(self, server: PlayedServer, **settings: Any) -> None:
        self.server = server
        self.told = Told()
        fields: dict[str, Any] = {
            "name": "source factory",
            "address": BrokerAddress.parse(server.url),
            "client_id": "factory-1",
            "expiry": 3600,
            "subscriptions": (Subscription("factory/+/raw", 1),),
        }
        self.session = NetworkSession(Settings(**{**fields, **settings}), self.told, PacketInbound(1 << 20), Pair.link)
        server.drive = lambda: self.session.turn(0.0)

    @classmethod
    def connected(cls, server: PlayedServer, **settings: Any) -> Pair:
        """A pair whose session has connected."""
        pair = cls(server, **settings)
        server.connect()
        pair.until(lambda: pair.session.connected)
        return pair

    def until(self, happened: Callable[[], bool], what: str = "it") -> None:
        """Drive until it happened."""
        self.server.until(happened, what)

    def close(self) -> None:
        """Close both ends; the session does not have to wait for the server to go."""
        self.server.hang_up()
        self.session.close()

    def failure(self) -> ConnectorError:
        """Drive until it fails for good."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                self.session.turn(0.01)
            except ConnectorError as error:
                return error
        raise AssertionError("it did not fail")


@pytest.fixture(autouse=True, params=[Transport, PahoLink], ids=["builtin", "paho"])
def link(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test runs with a connection of our own client and with one of paho."""
    if request.param is PahoLink and request.node.originalname in NOT_PAHO:
        pytest.skip(f"paho: {NOT_PAHO[request.node.originalname]}")
    monkeypatch.setattr(Pair, "link", request.param)


@pytest.fixture
def server() -> Iterator[PlayedServer]:
    """A server to be played."""
    with PlayedServer() as server:
        yield server


def test_the_connect_packet_has_the_settings(server: PlayedServer) -> None:
    pair = Pair(server, receive_maximum=100, max_packet=5000, keep_alive=7, login=Login("ann", "secret"), expiry=60)
    server.connect()
    connect = server.expect_one("Connect")
    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.clean_start, connect.keep_alive) == ("factory-1", False, 7)
    assert (connect.username, connect.password, connect.version) == ("ann", b"secret", V5)
    assert connect.properties.session_expiry_interval == 60
    assert (connect.properties.receive_maximum, connect.properties.maximum_packet_size) == (100, 5000)
    pair.until(lambda: bool(pair.told.grants))
    assert pair.told.grants == [{"factory/+/raw": 1}]
    assert pair.session.connected
    pair.close()


def test_the_limits_in_the_servers_connack_are_known(server: PlayedServer) -> None:
    pair = Pair(server)
    server.connect(
        properties=Properties(
            receive_maximum=10,
            maximum_packet_size=4096,
            maximum_qos=1,
            retain_available=False,
            server_keep_alive=9,
            session_expiry_interval=30,
            assigned_client_identifier="yours",
        )
    )
    pair.until(lambda: bool(pair.told.grants))
    granted = pair.told.granted[0]
    assert (granted.receive_maximum, granted.max_packet, granted.max_qos, granted.retain) == (10, 4096, 1, False)
    assert (granted.keep_alive, granted.expiry, granted.client_id) == (9, 30, "yours")
    pair.close()


def test_packets_behind_the_connack_in_one_piece_are_not_lost(server: PlayedServer) -> None:
    pair = Pair(server)
    server.accept()
    server.expect_one("Connect")
    server.say(Connack(True), Publish("factory/1/raw", b"one", 1, packet_id=1), Publish("factory/2/raw", b"two"))
    pair.until(lambda: len(pair.told.packets) == 2)
    assert [one.payload for one in pair.told.packets if isinstance(one, Publish)] == [b"one", b"two"]
    pair.close()


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_greeting_may_come_byte_by_byte(server: PlayedServer, pieces: int) -> None:
    from connectors.mqtt.protocol.writing import encode

    pair = Pair(server)
    server.accept()
    server.expect_one("Connect")
    raw = encode(Connack(properties=Properties(user_properties=(("k", "v" * 300),))), V5)
    for at in range(0, len(raw), pieces):
        server.send(raw[at : at + pieces])
        pair.session.turn(0.005)
    pair.until(lambda: pair.session.connected)
    pair.close()


def test_a_server_of_an_older_version_is_spoken_to_in_that_version(server: PlayedServer) -> None:
    pair = Pair(server)
    server.accept()
    server.expect_one("Connect")
    server.send(b"\x20\x02\x00\x01")
    server.connect(version=V311)
    connect = server.expect_one("Connect")
    assert isinstance(connect, Connect)
    assert connect.version == V311
    assert not connect.clean_start
    pair.until(lambda: bool(pair.told.grants))
    server.hang_up()
    server.accept()
    again = server.expect_one("Connect")
    assert isinstance(again, Connect)
    assert again.version == V311, "the server's version is not remembered"
    pair.close()


def test_a_server_that_names_the_version_as_the_reason_is_believed(server: PlayedServer) -> None:
    pair = Pair(server)
    server.accept()
    server.expect_one("Connect")
    server.say(Connack(reason=ReasonCode.UNSUPPORTED_PROTOCOL_VERSION))
    server.connect(version=V311)
    pair.until(lambda: pair.session.connected)
    pair.close()


def test_a_server_that_hangs_up_at_mqtt_5_is_tried_with_the_older_version(server: PlayedServer) -> None:
    pair = Pair(server)
    for _ in range(2):
        server.accept()
        assert server.expect_one("Connect").version == V5  # type: ignore[union-attr]
        server.hang_up()
    pair.until(lambda: "at the CONNECT of MQTT 5.0; if this port speaks TLS, write mqtts://" in str(pair.session.down))
    server.connect(version=V311)
    pair.until(lambda: pair.session.connected)
    server.hang_up()
    server.accept()
    server.expect_one("Connect")
    server.hang_up()
    pair.until(lambda: str(pair.session.down).endswith("at the CONNECT of MQTT 3.1.1"))
    pair.close()


def test_a_version_that_was_asked_for_is_not_changed(server: PlayedServer) -> None:
    pair = Pair(server, version=V5)
    server.accept()
    server.expect_one("Connect")
    server.send(b"\x20\x02\x00\x01")
    error = pair.failure()
    assert "unsupported protocol version" in str(error)


def test_a_filter_that_is_refused_is_named(server: PlayedServer) -> None:
    pair = Pair(server, subscriptions=(Subscription("a", 1), Subscription("b", 1)))
    server.connect(grants=(1, 0x87))
    error = pair.failure()
    assert "source factory" in str(error)
    assert 'refuses the topic filter "b": not authorized (0x87)' in str(error)
    assert not error.retriable
    with pytest.raises(ConnectorError, match="refuses"):
        pair.session.turn(0.0)


def test_qos_0_instead_of_1_ends_the_session(server: PlayedServer) -> None:
    pair = Pair(server)
    server.connect(grants=(0,))
    error = pair.failure()
    assert 'grants QoS 0 instead of 1 to the topic filter "factory/+/raw"' in str(error)
    assert not error.retriable


def test_qos_1_instead_of_2_is_enough(server: PlayedServer) -> None:
    pair = Pair(server, subscriptions=(Subscription("a", 2),))
    server.connect(grants=(1,))
    pair.until(lambda: pair.told.grants == [{"a": 1}])
    pair.close()


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        (Properties(wildcard_subscription_available=False), "allows no wildcards"),
        (Properties(shared_subscription_available=False), "no shared subscriptions"),
        (Properties(session_expiry_interval=0), "keeps no session"),
    ],
)
def test_a_server_without_a_needed_feature_ends_the_session(
    server: PlayedServer, properties: Properties, words: str
) -> None:
    pair = Pair(server, subscriptions=(Subscription("$share/g/factory/+/raw", 1),))
    server.accept()
    server.expect_one("Connect")
    server.say(Connack(properties=properties))
    assert words in str(pair.failure())


def test_a_refused_filter_later_is_tried_again(server: PlayedServer) -> None:
    """Rights that are changed while the service runs must not end it."""
    pair = Pair(server)
    server.connect()
    pair.until(lambda: len(pair.told.grants) == 1)
    server.hang_up()
    server.connect(session_present=True, grants=(0x87,))
    pair.until(lambda: not pair.session.connected)
    assert "refuses" in str(pair.session.down)
    server.connect(session_present=True)
    pair.until(lambda: len(pair.told.grants) == 2)
    pair.close()


def test_a_refused_login_at_the_start_ends_the_session(server: PlayedServer) -> None:
    pair = Pair(server, login=Login("ann", "wrong-secret"))
    server.accept()
    server.expect_one("Connect")
    server.say(Connack(reason=ReasonCode.NOT_AUTHORIZED))
    error = pair.failure()
    assert "not authorized (0x87)" in str(error)
    assert "check username and password" in str(error)
    assert "wrong-secret" not in str(error)


def test_a_refused_login_later_is_tried_again(server: PlayedServer) -> None:
    pair = Pair.connected(server, login=Login("ann", "secret"))
    server.hang_up()
    server.accept()
    server.expect_one("Connect")
    server.say(Connack(reason=ReasonCode.BAD_USER_NAME_OR_PASSWORD))
    server.connect()
    pair.until(lambda: len(pair.told.grants) == 2)
    pair.close()


def test_a_token_is_asked_for_once_more_when_it_is_refused(server: PlayedServer) -> None:
    tokens = iter(["old", "new"])
    pair = Pair(server, login=Login("ann", token=lambda setting: (next(tokens), 0.0)))
    server.accept()
    assert server.expect_one("Connect").password == b"old"  # type: ignore[union-attr]
    server.say(Connack(reason=ReasonCode.NOT_AUTHORIZED))
    server.connect()
    assert server.expect_one("Connect").password == b"new"  # type: ignore[union-attr]
    pair.until(lambda: pair.session.connected)
    pair.close()


def test_a_token_that_is_refused_twice_ends_the_session(server: PlayedServer) -> None:
    pair = Pair(server, login=Login("ann", token=lambda setting: ("never", 0.0)))
    for _ in range(2):
        server.accept()
        server.expect_one("Connect")
        server.say(Connack(reason=ReasonCode.NOT_AUTHORIZED))
    assert "not authorized" in str(pair.failure())


def test_a_session_that_another_client_took_over_ends_and_does_not_fight(server: PlayedServer) -> None:
    pair = Pair.connected(server)
    server.say(Disconnect(ReasonCode.SESSION_TAKEN_OVER))
    error = pair.failure()
    assert 'client id "factory-1"' in str(error)
    assert "runs twice" in str(error)
    assert pair.told.reasons


def test_any_other_disconnect_is_a_reason_to_come_back(server: PlayedServer) -> None:
    pair = Pair.connected(server)
    server.say(Disconnect(ReasonCode.SERVER_SHUTTING_DOWN, Properties(reason_string="back at six")))
    pair.until(lambda: not pair.session.connected)
    assert "server shutting down (0x8B) (back at six)" in str(pair.session.down)
    server.connect(session_present=True)
    pair.until(lambda: pair.session.connection == 2)
    assert len(pair.told.reasons) == 1
    pair.close()


def test_an_absent_server_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    settings = Settings("source x", BrokerAddress.parse(f"mqtt://127.0.0.1:{port}"), "x")
    session = NetworkSession(settings, Told(), PacketInbound(1000), Pair.link)
    for _ in range(5):
        session.turn(0.05)
    assert not session.connected
    assert "refused" in str(session.down)
    session.close()


def test_a_link_that_is_dead_is_found(server: PlayedServer) -> None:
    """Half-open: the server is there for TCP, and says nothing more. No ping is answered."""
    pair = Pair.connected(server, keep_alive=1)
    began = time.monotonic()
    pair.until(lambda: not pair.session.connected, "verdict")
    assert "silent" in str(pair.session.down)
    assert time.monotonic() - began > 1
    server.read()
    assert any(isinstance(one, Pingreq) for one in server.seen)
    server.connect(session_present=True)
    pair.close()


def test_a_server_that_answers_pings_is_kept(server: PlayedServer) -> None:
    pair = Pair.connected(server, keep_alive=1)
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        pair.session.turn(0.02)
        server.answer_pings()
    assert pair.session.connected
    assert pair.session.connection == 1
    pair.close()


def test_nobody_is_given_up_for_silence_while_nothing_is_read(server: PlayedServer) -> None:
    """A session that does not read cannot see answers; it sends pings all the same."""
    pair = Pair.connected(server, keep_alive=1)
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        pair.session.turn(0.05, read=False)
    server.read()
    asked = sum(isinstance(one, Pingreq) for one in server.seen)
    assert asked >= 2
    server.answer_pings()
    pair.session.turn(0.05)
    assert pair.session.connected
    assert pair.session.connection == 1
    pair.close()


def test_a_ping_is_answered_behind_what_was_sent_before(server: PlayedServer) -> None:
    pair = Pair.connected(server)
    ticket = pair.session.ping()
    assert not pair.session.answered(ticket)
    server.expect_one("Pingreq")
    server.answer_pings()
    pair.until(lambda: pair.session.answered(ticket))
    assert pair.session.rtt > 0
    pair.close()


def test_malformed_packets_end_the_connection_with_the_reason(server: PlayedServer) -> None:
    pair = Pair.connected(server)
    server.send(b"\x36\x05\x00\x01a\x00\x01")
    disconnect = server.expect_one("Disconnect")
    assert isinstance(disconnect, Disconnect)
    assert disconnect.reason is ReasonCode.MALFORMED_PACKET
    pair.until(lambda: not pair.session.connected)
    assert "broke the rules of MQTT" in str(pair.session.down)
    pair.close()


def test_packets_that_cannot_be_sent_at_once_are_kept_in_order(server: PlayedServer) -> None:
    pair = Pair(server, subscriptions=())
    server.connect(grants=None)
    pair.until(lambda: pair.session.connected)
    sent = [Publish("a", bytes([n]) * 200_000, 1, packet_id=n + 1) for n in range(100)]
    for packet in sent:
        pair.session.send(packet)
    assert pair.session.unsent > 0
    got = server.expect(Publish, 100)
    assert got == sent
    assert pair.session.unsent == 0
    pair.close()


def test_restart_leaves_in_peace_and_comes_back_at_once(server: PlayedServer) -> None:
    pair = Pair.connected(server)
    thread = threading.Thread(target=lambda: pair.session.restart("to be delivered again"))
    server.drive = lambda: None
    thread.start()
    server.expect_one("Disconnect")
    server.hang_up()
    thread.join()
    server.drive = lambda: pair.session.turn(0.0)
    server.connect(session_present=True)
    pair.until(lambda: pair.session.connection == 2)
    assert pair.told.granted[-1].session_present
    pair.close()


def test_subscriptions_are_renewed_on_mqtt_5_even_if_the_session_is_there(server: PlayedServer) -> None:
    """Connected but deaf: a broker that lost the subscription and kept the session."""
    pair = Pair(server)
    server.connect()
    pair.until(lambda: bool(pair.told.grants))
    server.hang_up()
    server.connect(session_present=True)
    pair.until(lambda: len(pair.told.grants) == 2)
    pair.close()


def subscriptions(count: int) -> tuple[Subscription, ...]:
    return tuple(Subscription(f"factory/line-{number:03}/machine/vibration", 1) for number in range(count))


def granted_in_parts(server: PlayedServer, count: int) -> list[list[str]]:
    """Grant each SUBSCRIBE of a connection until `count` filters were asked for: the filters of each packet."""
    parts: list[list[str]] = []
    while sum(map(len, parts)) < count:
        server.expect_one("Subscribe")
        (asked,) = [one for one in server.seen if isinstance(one, Subscribe)]
        server.seen.remove(asked)
        parts.append([one.filter for one in asked.subscriptions])
        server.say(Suback(asked.packet_id, (ReasonCode.GRANTED_QOS_1,) * len(parts[-1])))
    return parts


@pytest.mark.parametrize("version", [V5, V311])
def test_a_broker_is_asked_for_eight_topic_filters_at_a_time(server: PlayedServer, version: Version) -> None:
    """AWS IoT Core ends the connection at a SUBSCRIBE of more."""
    wanted = subscriptions(17)
    pair = Pair(server, subscriptions=wanted, version=version)
    for _ in range(2):
        server.connect(grants=None, version=version)
        parts = granted_in_parts(server, 17)
        assert [len(part) for part in parts] == [8, 8, 1]
        assert [one for part in parts for one in part] == [one.filter for one in wanted]
        pair.until(lambda: bool(pair.told.grants))
        assert pair.told.grants.pop() == {one.filter: 1 for one in wanted}
        server.hang_up()
    pair.close()


def test_a_connection_that_is_lost_between_two_subscribes_asks_for_all_again(server: PlayedServer) -> None:
    pair = Pair(server, subscriptions=subscriptions(9))
    server.connect(grants=(1,) * 8)
    server.expect(Subscribe)
    server.hang_up()
    server.connect(grants=None)
    assert [len(part) for part in granted_in_parts(server, 9)] == [8, 1]
    pair.until(lambda: bool(pair.told.grants))
    pair.close()


def test_a_subscribe_is_no_larger_than_the_broker_accepts(server: PlayedServer) -> None:
    wanted = subscriptions(9)
    pair = Pair(server, subscriptions=wanted)
    server.connect(grants=None, properties=Properties(maximum_packet_size=100))
    parts = granted_in_parts(server, 9)
    assert [one for part in parts for one in part] == [one.filter for one in wanted]
    assert max(map(len, parts)) == 2
    pair.until(lambda: bool(pair.told.grants))
    pair.close()


def test_a_topic_filter_that_the_broker_cannot_take_is_named(server: PlayedServer) -> None:
    pair = Pair(server, subscriptions=(Subscription("a", 1), Subscription("b" * 100, 1)))
    server.connect(grants=None, properties=Properties(maximum_packet_size=50))
    assert f'the topic filter "{"b" * 100}" is too long' in str(pair.failure())
    pair.close()


def test_a_wrong_suback_breaks_the_rules(server: PlayedServer) -> None:
    pair = Pair(server)
    server.accept()
    server.expect_one("Connect")
    server.say(Connack())
    subscribe = server.expect_one("Subscribe")
    assert isinstance(subscribe, Subscribe)
    server.say(Suback(subscribe.packet_id, (ReasonCode.SUCCESS, ReasonCode.SUCCESS)))
    disconnect = server.expect_one("Disconnect")
    assert disconnect.reason is ReasonCode.PROTOCOL_ERROR  # type: ignore[union-attr]
    pair.close()


def test_a_port_that_speaks_tls_is_told_with_a_hint_at_mqtts(server: PlayedServer) -> None:
    pair = Pair(server)
    server.accept()
    server.expect_one("Connect")
    server.send(b"\x15\x03\x03\x00\x02\x02\x0a")
    pair.until(lambda: "mqtts://" in str(pair.session.down))
    pair.close()


def test_wake_ends_the_wait_for_the_broker(server: PlayedServer) -> None:
    pair = Pair.connected(server)
    threading.Timer(0.1, pair.session.wake).start()
    began = time.monotonic()
    pair.session.turn(PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2
    pair.close()


def test_closing_twice_is_harmless(server: PlayedServer) -> None:
    pair = Pair(server)
    pair.close()
    pair.close()
