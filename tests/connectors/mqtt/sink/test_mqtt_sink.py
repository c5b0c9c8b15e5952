"""The packets of an MQTT sink and its reactions to the answers, against a broker that the test plays."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest.mock import ANY

import numpy as np
import pytest
from mqttserver import PlayedServer
from pydantic import SecretStr

from connectors.backoff import Backoff
from connectors.message import Message, block_of
from connectors.mqtt.client import TlsConfig
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.protocol.packets import (
    V5,
    V311,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Version,
)
from connectors.mqtt.protocol.properties import NONE, Properties
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.sink import MqttSink
from connectors.mqtt.sinkconfig import MqttSinkConfig
from connectors.records import Messages
from connectors.sink import Refused
from pipelines.errors import ConnectorError, DefinitionError

MakeSink = Callable[..., MqttSink]


@pytest.fixture
def server() -> Iterator[PlayedServer]:
    with PlayedServer() as server:
        yield server


@pytest.fixture
def make(server: PlayedServer) -> Iterator[MakeSink]:
    """`make(qos=2)`: a sink of the topic `out`, not open."""
    sinks: list[MqttSink] = []

    def make(**fields: Any) -> MqttSink:
        sinks.append(MqttSink(MqttSinkConfig(url=server.url, topic="out", client_id="me", **fields)))
        return sinks[-1]

    yield make
    server.hang_up()
    for sink in sinks:
        sink.close()


class Opening(threading.Thread):
    """Opens a sink, which waits for its broker."""

    def __init__(self, sink: MqttSink) -> None:
        super().__init__(daemon=True)
        self.sink = sink
        self.error: ConnectorError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.sink.open()
        except ConnectorError as error:
            self.error = error


@pytest.fixture
def reconnects_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waits before a connection is made again."""
    monkeypatch.setattr(Backoff, "wait", lambda self: 0.0)


def opened(sink: MqttSink, server: PlayedServer, version: Version = V5, properties: Properties = NONE) -> MqttSink:
    opening = Opening(sink)
    server.connect(properties=properties, grants=None, version=version)
    opening.join(20)
    assert opening.error is None
    return sink


def send(sink: MqttSink, *values: bytes, first: int = 0, wait: float = 10.0) -> Refused:
    return sink.send(block_of([Message(value) for value in values], first), time.monotonic() + wait)


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def publishes(server: PlayedServer, count: int) -> list[Publish]:
    return cast("list[Publish]", server.expect(Publish, count))


def told(sink: MqttSink) -> list[int]:
    return [row for rows in sink.confirmed() for row in rows.tolist()]


def answer(server: PlayedServer, *packets: Packet) -> None:
    server.say(*packets)


def test_a_message_is_confirmed_by_its_puback_and_not_before(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    assert send(sink, *numbered(0, 3), first=40) == {}
    sent = publishes(server, 3)
    assert [(one.topic, one.payload, one.qos, one.dup, one.retain) for one in sent] == [
        ("out", b"%d" % number, 1, False, False) for number in range(3)
    ]
    assert told(sink) == []
    assert sink.behind() > 0
    with pytest.raises(ConnectorError, match="3 messages are not confirmed yet; the broker is slow") as raised:
        sink.barrier(time.monotonic() + 0.1)
    assert raised.value.retriable
    answer(server, Puback(sent[0].packet_id), Puback(sent[1].packet_id), Puback(sent[2].packet_id))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert told(sink) == [40, 41, 42]
    assert sink.behind() == 0


def test_acknowledgements_in_any_order_confirm_their_own_rows(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    send(sink, *numbered(0, 6))
    ids = [one.packet_id for one in publishes(server, 6)]
    for at in (5, 0, 3):
        answer(server, Puback(ids[at]))
    found: list[int] = []

    def three() -> bool:
        found.extend(told(sink))
        return len(found) == 3

    server.until(three, "confirmations")
    assert sorted(found) == [0, 3, 5]
    for at in (4, 2, 1):
        answer(server, Puback(ids[at]))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert sorted(told(sink)) == [1, 2, 4]


def test_qos_2_is_confirmed_when_the_broker_has_let_go_of_it(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(qos=2), server)
    send(sink, *numbered(0, 2))
    ids = [one.packet_id for one in publishes(server, 2)]
    answer(server, Pubrec(ids[0]), Pubrec(ids[1]))
    assert [cast("Pubrel", one).packet_id for one in server.expect(Pubrel, 2)] == ids
    assert told(sink) == []
    answer(server, Pubcomp(ids[0]), Pubcomp(ids[1], ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert told(sink) == [0, 1]


def test_qos_0_is_confirmed_by_the_answer_to_a_ping_behind_it(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(qos=0), server)
    send(sink, *numbered(0, 3))
    assert [one.packet_id for one in publishes(server, 3)] == [0, 0, 0]
    server.expect_one("Pingreq")
    assert told(sink) == []
    server.answer_pings()
    assert sink.barrier(time.monotonic() + 10) == {}
    assert told(sink) == [0, 1, 2]


def test_no_more_is_published_ahead_than_the_broker_takes(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(window=100), server, properties=Properties(receive_maximum=5))
    assert send(sink, *numbered(0, 12)) == {}
    sent = publishes(server, 5)
    time.sleep(0.1)
    server.read()
    assert sum(isinstance(one, Publish) for one in server.seen) == 5
    for one in sent[:2]:
        answer(server, Puback(one.packet_id))
    assert [one.payload for one in publishes(server, 2)] == [b"5", b"6"]


def test_the_window_is_ours_where_the_broker_takes_more(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(window=3), server)
    send(sink, *numbered(0, 9))
    publishes(server, 3)
    time.sleep(0.1)
    server.read()
    assert sum(isinstance(one, Publish) for one in server.seen) == 3


def test_with_qos_2_over_3_1_1_no_more_than_twenty_are_published_ahead(server: PlayedServer, make: MakeSink) -> None:
    """Mosquitto answers more than its `max_inflight_messages` and forgets them."""
    sink = opened(make(qos=2, version="3.1.1"), server, V311)
    send(sink, *numbered(0, 50))
    publishes(server, 20)
    time.sleep(0.1)
    server.read()
    assert sum(isinstance(one, Publish) for one in server.seen) == 20


def test_after_a_cut_what_was_not_acknowledged_comes_again_with_the_same_ids_and_dup(
    server: PlayedServer, make: MakeSink
) -> None:
    sink = opened(make(window=4), server)
    send(sink, *numbered(0, 8))
    first = publishes(server, 4)
    answer(server, Puback(first[1].packet_id))
    publishes(server, 1)
    server.hang_up()
    server.connect(session_present=True, grants=None)
    connect = cast("Connect", server.seen[0])
    assert not connect.clean_start
    again = publishes(server, 4)
    assert [(one.payload, one.dup) for one in again] == [(b"0", True), (b"2", True), (b"3", True), (b"4", True)]
    assert [one.packet_id for one in again[:3]] == [first[0].packet_id, first[2].packet_id, first[3].packet_id]
    for one in again:
        answer(server, Puback(one.packet_id))
    rest = publishes(server, 3)
    assert [(one.payload, one.dup) for one in rest] == [(b"5", False), (b"6", False), (b"7", False)]
    for one in rest:
        answer(server, Puback(one.packet_id))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert sorted(told(sink)) == list(range(8))


def test_where_the_broker_lost_the_session_it_comes_again_as_new(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(window=4), server)
    send(sink, *numbered(0, 6))
    answer(server, Puback(publishes(server, 4)[0].packet_id))
    publishes(server, 1)
    server.hang_up()
    server.connect(session_present=False, grants=None)
    again = publishes(server, 4)
    assert [(one.payload, one.dup) for one in again] == [(b"%d" % number, False) for number in (1, 2, 3, 4)]
    for one in again:
        answer(server, Puback(one.packet_id))
    answer(server, Puback(publishes(server, 1)[0].packet_id))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert sorted(told(sink)) == list(range(6))


@pytest.mark.usefixtures("reconnects_at_once")
def test_no_message_is_given_up_where_connections_end_before_a_ping_is_answered(
    server: PlayedServer, make: MakeSink
) -> None:
    sink = opened(make(), server)
    send(sink, *numbered(0, 3))
    publishes(server, 3)
    server.hang_up()
    server.connect(session_present=True, grants=None)
    publishes(server, 3)
    server.hang_up()
    for _ in range(4):
        server.connect(session_present=True, grants=None)
        server.expect(Pingreq)
        assert not any(isinstance(one, Publish) for one in server.seen)
        server.hang_up()
    server.connect(session_present=True, grants=None)
    server.expect(Pingreq)
    answer(server, Pingresp())
    (one,) = publishes(server, 1)
    answer(server, Puback(one.packet_id))
    two, three = publishes(server, 2)
    assert [one.payload, two.payload, three.payload] == numbered(0, 3)
    answer(server, Puback(two.packet_id), Puback(three.packet_id))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert sorted(told(sink)) == [0, 1, 2]


@pytest.mark.usefixtures("reconnects_at_once")
def test_a_message_is_given_up_only_at_the_third_connection_in_a_row_that_ends_at_it_alone(
    server: PlayedServer, make: MakeSink
) -> None:
    sink = opened(make(window=2), server)
    send(sink, *numbered(0, 4))
    publishes(server, 2)
    server.hang_up()
    server.connect(session_present=True, grants=None)
    publishes(server, 2)

    def alone() -> Publish:
        server.hang_up()
        server.connect(session_present=True, grants=None)
        server.expect(Pingreq)
        answer(server, Pingresp())
        return publishes(server, 1)[0]

    for payload in (b"0", b"0"):
        assert alone().payload == payload
    answer(server, Puback(alone().packet_id))
    assert [one.payload for one in publishes(server, 2)] == [b"1", b"2"]
    for _ in range(3):
        assert alone().payload == b"1"
    two = alone()
    assert two.payload == b"2"
    answer(server, Puback(two.packet_id))
    answer(server, Puback(publishes(server, 1)[0].packet_id))
    lost = sink.barrier(time.monotonic() + 10)
    assert list(lost) == [1]
    assert 'published to "out" with no other on the way' in str(lost[1])
    assert sorted(told(sink)) == [0, 2, 3]


def test_a_released_message_of_qos_2_is_released_again_and_not_published_again(
    server: PlayedServer, make: MakeSink
) -> None:
    sink = opened(make(qos=2), server)
    send(sink, *numbered(0, 2))
    ids = [one.packet_id for one in publishes(server, 2)]
    answer(server, Pubrec(ids[0]))
    server.expect(Pubrel)
    server.hang_up()
    server.connect(session_present=True, grants=None)
    published = cast("Publish", server.expect_one("Publish"))
    assert [one.packet_id for one in server.seen if isinstance(one, Pubrel)] == [ids[0]]
    assert (published.packet_id, published.dup) == (ids[1], True)


def test_qos_0_that_no_ping_has_followed_comes_again(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(qos=0), server)
    send(sink, *numbered(0, 2))
    publishes(server, 2)
    server.hang_up()
    server.connect(grants=None)
    assert [one.payload for one in publishes(server, 2)] == [b"0", b"1"]
    server.expect_one("Pingreq")
    server.answer_pings()
    assert sink.barrier(time.monotonic() + 10) == {}
    assert told(sink) == [0, 1]


def test_the_first_connection_of_a_process_begins_a_session_of_its_own(server: PlayedServer, make: MakeSink) -> None:
    """A message of QoS 2 with an id that the former process left there would be taken for that one and dropped."""
    opened(make(qos=2), server)
    connect = cast("Connect", server.seen[0])
    assert connect.clean_start
    assert connect.properties.session_expiry_interval


def test_a_late_acknowledgement_of_an_id_that_nobody_has_is_passed_over(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    answer(server, Puback(1), Puback(65_535), Pubcomp(9), Pubrec(7))
    send(sink, b"x")
    answer(server, Puback(publishes(server, 1)[0].packet_id))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert told(sink) == [0]


def test_packet_ids_wrap_without_taking_one_that_is_outstanding() -> None:
    from connectors.mqtt.publishing.block import Block
    from connectors.mqtt.publishing.inflight import IDS, SENT, InFlight
    from connectors.mqtt.publishing.style import Style

    held = InFlight()
    seen: set[int] = set()
    number = 0
    outstanding: dict[int, int] = {}
    kept: set[int] = set()
    for turn in range(300):
        rows = np.arange(number, number + 1000)
        held.add(Block(Messages(rows, [b""] * 1000), Style("t")))
        number += 1000
        while (portion := held.take(400, numbered=True)) is not None:
            assert portion.packet_ids is not None
            ids = portion.packet_ids.tolist()
            assert min(ids) >= 1
            assert max(ids) <= IDS
            assert not set(ids) & outstanding.keys()
            outstanding |= dict(zip(ids, portion.numbers.tolist(), strict=True))
            seen |= set(ids)
        if turn == 3:
            # These are never acknowledged.
            kept = set(list(outstanding)[::7])
        answered = np.array([one for one in outstanding if one not in kept], np.uint16)
        numbers = held.of_ids(answered, SENT)
        assert sorted(held.done(numbers).tolist()) == sorted(outstanding[one] for one in answered.tolist())
        outstanding = {one: outstanding[one] for one in kept}
        if turn == 100:
            # All that is old has to go some time, or no more is taken.
            held.done(held.of_ids(np.array(sorted(kept), np.uint16), SENT))
            kept, outstanding = set(), {}
    assert len(seen) == IDS
    assert held.first == held.end == number
    assert held.on_wire == 0


def test_a_message_that_the_broker_refuses_is_lost_alone_and_named(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    send(sink, *numbered(0, 3), first=10)
    ids = [one.packet_id for one in publishes(server, 3)]
    why = Properties(reason_string="no such device")
    answer(server, Puback(ids[0]), Puback(ids[1], ReasonCode.NOT_AUTHORIZED, why), Puback(ids[2]))
    lost = sink.barrier(time.monotonic() + 10)
    assert list(lost) == [11]
    assert not lost[11].retriable
    assert "not authorized (0x87): no such device" in str(lost[11])
    assert re.search('; allow client id ".+" to publish to "out"$', str(lost[11]))
    assert told(sink) == [10, 12]
    assert sink.barrier(time.monotonic() + 10) == {}


def test_a_refused_message_is_told_with_its_own_topic(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    block = [Message(b"1", topic="a/1"), Message(b"2", topic="a/2")]
    assert sink.send(block_of(block), time.monotonic() + 10) == {}
    for one in publishes(server, 2):
        answer(server, Puback(one.packet_id, ReasonCode.NOT_AUTHORIZED))
    lost = sink.barrier(time.monotonic() + 10)
    for row, topic in enumerate(("a/1", "a/2")):
        assert f'refuses the message for "{topic}": not authorized' in str(lost[row])
        assert str(lost[row]).endswith(f'to publish to "{topic}"')


def test_a_broker_without_room_is_tried_again_and_order_is_kept_among_those(
    server: PlayedServer, make: MakeSink, caplog: pytest.LogCaptureFixture
) -> None:
    sink = opened(make(), server)
    send(sink, *numbered(0, 4))
    ids = [one.packet_id for one in publishes(server, 4)]
    answer(server, *(Puback(one, ReasonCode.QUOTA_EXCEEDED) for one in ids))
    again = publishes(server, 4)
    assert [(one.payload, one.dup) for one in again] == [(b"%d" % number, False) for number in range(4)]
    answer(server, *(Puback(one.packet_id) for one in again))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert sorted(told(sink)) == [0, 1, 2, 3]
    assert "quota exceeded (0x97); trying again" in caplog.text


def test_a_message_that_nobody_has_subscribed_to_is_counted(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    send(sink, *numbered(0, 5))
    ids = [one.packet_id for one in publishes(server, 5)]
    nobody = ReasonCode.NO_MATCHING_SUBSCRIBERS
    answer(server, Puback(ids[0], nobody), Puback(ids[1]), Puback(ids[2], nobody), Puback(ids[3], nobody))
    answer(server, Puback(ids[4]))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert told(sink) == [0, 1, 2, 3, 4]
    assert {one.name: one.value for one in sink.metrics()}["messages_unheard"] == 3


def test_a_client_that_takes_over_its_session_ends_the_sink(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    answer(server, Disconnect(ReasonCode.SESSION_TAKEN_OVER))

    def broken() -> bool:
        try:
            sink.barrier(time.monotonic() + 1)
        except ConnectorError as error:
            return "client_id of its own" in str(error)
        return False

    server.until(broken, "end of the sink")
    with pytest.raises(ConnectorError, match="another client has taken over") as raised:
        send(sink, b"x")
    assert not raised.value.retriable


def test_a_login_that_is_refused_ends_the_sink_when_it_opens(server: PlayedServer, make: MakeSink) -> None:
    opening = Opening(make(username="me", password="wrong"))
    server.accept()
    server.expect_one("Connect")
    server.say(Connack(reason=ReasonCode.NOT_AUTHORIZED))
    opening.join(20)
    assert opening.error is not None
    assert not opening.error.retriable
    assert "not authorized" in str(opening.error)
    assert "wrong" not in str(opening.error)


def test_a_login_that_worked_before_is_tried_again(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(username="me", password="right"), server)
    send(sink, b"x")
    publishes(server, 1)
    server.hang_up()
    server.accept()
    server.expect_one("Connect")
    server.say(Connack(reason=ReasonCode.NOT_AUTHORIZED))
    server.connect(grants=None)
    answer(server, Puback(publishes(server, 1)[0].packet_id))
    assert sink.barrier(time.monotonic() + 10) == {}


TOKENS: list[str] = []


def next_token(setting: str) -> tuple[str, float]:
    """The token function of the test below."""
    assert setting == ""
    TOKENS.append(f"token-{len(TOKENS)}")
    return TOKENS[-1], time.time() + 60


def test_a_token_that_was_rejected_once_is_asked_for_again(
    server: PlayedServer, make: MakeSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "tokens_of_the_test", sys.modules[__name__])
    opening = Opening(make(username="device", token="tokens_of_the_test:next_token"))
    server.accept()
    assert cast("Connect", server.expect_one("Connect")).password == b"token-0"
    server.say(Connack(reason=ReasonCode.BAD_USER_NAME_OR_PASSWORD))
    server.accept()
    connect = cast("Connect", server.expect_one("Connect"))
    assert (connect.username, connect.password) == ("device", b"token-1")
    server.say(Connack())
    opening.join(20)
    assert opening.error is None
    assert opening.sink.down() is None


@pytest.mark.parametrize(
    ("fields", "properties", "why"),
    [
        ({"qos": 1}, Properties(maximum_qos=0), "write qos: 0"),
        ({"retain": True}, Properties(retain_available=False), "leave out retain"),
    ],
)
def test_a_broker_that_lacks_what_every_message_needs_ends_the_sink(
    server: PlayedServer, make: MakeSink, fields: dict[str, Any], properties: Properties, why: str
) -> None:
    opening = Opening(make(**fields))
    server.connect(properties=properties, grants=None)
    server.until(lambda: not opening.is_alive(), "end")

    def broken() -> str:
        try:
            opening.sink.barrier(time.monotonic() + 1)
        except ConnectorError as error:
            return str(error)
        return ""

    found = str(opening.error or "")
    server.until(lambda: bool(found or broken()), "error")
    assert why in (found or broken())


def test_qos_2_is_1_where_the_broker_has_no_2(
    server: PlayedServer, make: MakeSink, caplog: pytest.LogCaptureFixture
) -> None:
    sink = opened(make(qos=2), server, properties=Properties(maximum_qos=1))
    send(sink, b"x")
    (sent,) = publishes(server, 1)
    assert sent.qos == 1
    answer(server, Puback(sent.packet_id))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert "published with QoS 1" in caplog.text


def test_a_message_larger_than_the_broker_takes_is_refused_alone(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server, properties=Properties(maximum_packet_size=200))
    refused = send(sink, b"a", bytes(300), b"b", first=7)
    assert list(refused) == [1]
    assert not refused[1].retriable
    assert "at most 200" in str(refused[1])
    ids = [one.packet_id for one in publishes(server, 2)]
    answer(server, *(Puback(one) for one in ids))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert told(sink) == [7, 9]


def test_a_message_that_is_too_large_for_the_next_broker_is_lost_alone(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    send(sink, b"a", bytes(300), b"b", first=7)
    publishes(server, 3)
    server.hang_up()
    server.connect(properties=Properties(maximum_packet_size=200), grants=None)
    answer(server, *(Puback(one.packet_id) for one in publishes(server, 2)))
    lost = sink.barrier(time.monotonic() + 10)
    assert list(lost) == [8]
    assert not lost[8].retriable
    assert told(sink) == [7, 9]


@pytest.mark.parametrize("topic", ["a/+/b", "a/#", "nul\0l", "\ud800", "x" * 70_000])
def test_a_topic_that_nobody_can_publish_to_is_refused_alone(server: PlayedServer, make: MakeSink, topic: str) -> None:
    sink = opened(make(), server)
    block = block_of([Message(b"a", topic="good"), Message(b"b", topic=topic), Message(b"c", topic="good/too")])
    refused = sink.send(block, time.monotonic() + 10)
    assert list(refused) == [1]
    assert not refused[1].retriable
    assert [one.topic for one in publishes(server, 2)] == ["good", "good/too"]


def test_everything_a_message_can_say_is_said(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(retain=True, expiry="1m", content_type="text/plain", user_properties={"site": "one"}), server)
    headers = (("trace", b"a"), ("trace", b"b"), ("none", None), ("binary", b"\xff"))
    block = block_of([Message(b"x", b"\x00key", headers), Message(b"y"), Message(None)])
    sink.send(block, time.monotonic() + 10)
    one, two, three = publishes(server, 3)
    assert one.retain
    assert one.properties == Properties(
        message_expiry_interval=60,
        content_type="text/plain",
        correlation_data=b"\x00key",
        user_properties=(("site", "one"), ("trace", "a"), ("trace", "b"), ("none", "")),
    )
    assert two.properties == Properties(
        message_expiry_interval=60, content_type="text/plain", user_properties=(("site", "one"),)
    )
    assert three.payload == b""
    assert sink.headers_left_out == 1


def test_a_key_that_is_too_long_is_refused_alone(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    block = block_of([Message(b"x", bytes(65_536)), Message(b"y", bytes(65_535))])
    refused = sink.send(block, time.monotonic() + 10)
    assert list(refused) == [0]
    assert "correlation data" in str(refused[0])


def test_a_dead_letter_over_3_1_1_is_a_document_with_its_headers(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(version="3.1.1", dead_letters=True), server, V311)
    headers = (("streamer-step", b"decode"), ("trace", b"\xff"), ("none", None))
    sink.send(block_of([Message(b"\xff\x00", b"key", headers)]), time.monotonic() + 10)
    (letter,) = publishes(server, 1)
    assert json.loads(letter.payload) == {
        "headers": [["streamer-step", "decode"], ["trace", {"base64": "/w=="}], ["none", None]],
        "key": "key",
        "payload": {"base64": "/wA="},
    }


def test_a_dead_letter_over_5_has_its_headers_as_user_properties(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(dead_letters=True, headers=False), server)
    sink.send(block_of([Message(b"\xff\x00", None, (("streamer-step", b"decode"),))]), time.monotonic() + 10)
    (letter,) = publishes(server, 1)
    assert letter.payload == b"\xff\x00"
    assert letter.properties.user_properties == (("streamer-step", "decode"),)


def test_birth_and_will_are_published(server: PlayedServer, make: MakeSink) -> None:
    presence = "devices/me"
    sink = opened(
        make(
            birth={"topic": presence, "payload": "online"},
            will={"topic": presence, "payload": "offline", "delay": "5s"},
            window=1,
        ),
        server,
    )
    will = cast("Connect", server.seen[0]).will
    assert will is not None
    assert (will.topic, will.payload, will.qos, will.retain) == (presence, b"offline", 1, True)
    assert will.properties.will_delay_interval == 5
    (birth,) = publishes(server, 1)
    assert (birth.topic, birth.payload, birth.qos, birth.retain) == (presence, b"online", 1, True)
    send(sink, b"x")
    time.sleep(0.05)
    server.read()
    assert sum(isinstance(one, Publish) for one in server.seen) == 1, "the window is full"
    answer(server, Puback(birth.packet_id))
    (sent,) = publishes(server, 1)
    answer(server, Puback(sent.packet_id))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert told(sink) == [0]
    server.hang_up()
    server.connect(session_present=True, grants=None)
    assert publishes(server, 1)[0].payload == b"online"
    closing = threading.Thread(target=sink.close)
    closing.start()
    assert publishes(server, 1)[0].payload == b"offline"
    server.expect_one("Disconnect")
    server.hang_up()
    closing.join(10)


def test_it_stays_connected_while_nothing_is_sent(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(keepalive=1), server)
    for _ in range(3):
        server.seen = []
        server.expect_one("Pingreq")
        server.answer_pings()
    assert sink.down() is None


def test_memory_is_bounded_and_a_full_sink_says_why(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(buffer="10KiB"), server)
    refused = send(sink, *[bytes(1000) for _ in range(30)], wait=0.2)
    assert 18 <= len(refused) <= 22
    assert all(error.retriable and "buffer is full" in str(error) for error in refused.values())
    refused = send(sink, bytes(11 * 1024), wait=0.2)
    assert not refused[0].retriable
    assert "more than buffer" in str(refused[0])


def test_bytes_that_are_no_mqtt_make_it_connect_again(server: PlayedServer, make: MakeSink) -> None:
    sink = opened(make(), server)
    send(sink, b"x")
    publishes(server, 1)
    server.send(b"\x40\x02\x00\x00")
    server.connect(session_present=True, grants=None)
    answer(server, Puback(publishes(server, 1)[0].packet_id))
    assert sink.barrier(time.monotonic() + 10) == {}


def test_acknowledgements_cut_at_every_byte_are_read(server: PlayedServer, make: MakeSink) -> None:
    from connectors.mqtt.protocol.writing import encode

    sink = opened(make(), server)
    send(sink, *numbered(0, 40))
    ids = [one.packet_id for one in publishes(server, 40)]
    kinds = (ReasonCode.SUCCESS, ReasonCode.NO_MATCHING_SUBSCRIBERS)
    data = b"".join(encode(Puback(one, kinds[one % 3 == 0]), V5) for one in ids)
    for byte in data:
        server.send(bytes([byte]))
    assert sink.barrier(time.monotonic() + 10) == {}
    assert sorted(told(sink)) == list(range(40))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"topic": "a/+"}, "wildcards"),
        ({"topic": "a\tb"}, r"control character \(U\+0009\), for which brokers close"),
        ({"user_properties": {"site": "a\nb"}}, r"user_properties: 'a\\nb': it holds a control character"),
        ({"topic": "a/{device}/#", "topics": "^a/"}, 'published to "a/{device}/#": .* wildcards'),
        ({"topic": "a/{device}", "topics": "a/+"}, r'invalid topic name "a/\+"; write a regular expression'),
        ({"topic": "a/{device}", "topics": ["^b", "a/{device}"]}, 'invalid topic name "a/{device}"'),
        ({"topic": ""}, "at least 1"),
        ({"user_properties": {"a": "\0"}}, "null character"),
        ({"birth": {"topic": "#"}}, "wildcards"),
        ({"client": "paho", "qos": 2}, "qos: 1"),
        ({"window": 0}, "greater than or equal to 1"),
        ({"expiry": "0s"}, "greater than or equal to 1"),
    ],
)
def test_fields_that_cannot_work_are_told(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        MqttSinkConfig(**{"topic": "out", **fields})


def test_its_client_id_is_made_of_service_and_sink_and_is_not_that_of_a_source() -> None:
    config = MqttSinkConfig(topic="out", name="alerts").in_service("factory")
    assert config.client_id == "factory-alerts-out"
    assert config.for_dead_letters().dead_letters


def test_a_sink_without_a_broker_uses_that_of_the_services_source_and_its_login() -> None:
    source = MqttSourceConfig(
        url="mqtts://edge:8883", topics=("a",), username="me", password=SecretStr("pw"), tls=TlsConfig(verify=False)
    )
    found = MqttSinkConfig(topic="out").in_service("factory", [source])
    assert found.connection() == {**source.connection(), "client_id": "factory-mqtt-out", "tls": ANY}
    assert MqttSinkConfig(topic="out").in_service("factory").url == "mqtt://localhost:1883"


def test_a_sink_with_a_broker_of_its_own_takes_nothing_of_the_source() -> None:
    source = MqttSourceConfig(url="edge", topics=("a",), username="me", password=SecretStr("pw"))
    found = MqttSinkConfig(topic="out", url="mqtt://localhost:1883").in_service("factory", [source])
    assert (found.url, found.username, found.password) == ("mqtt://localhost:1883", None, None)
    own = MqttSinkConfig(topic="out", username="you").in_service("factory", [source])
    assert (own.url, own.username, own.password) == ("mqtt://edge:1883", "you", None)


def test_a_sink_of_qos_2_cannot_take_paho_from_its_source() -> None:
    source = MqttSourceConfig(url="ws://edge/mqtt", topics=("a",), client="paho")
    with pytest.raises(DefinitionError, match="write qos: 1, or a url"):
        MqttSinkConfig(topic="out", qos=2).in_service("factory", [source])
