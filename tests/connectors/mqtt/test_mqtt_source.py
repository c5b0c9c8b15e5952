"""MQTT sources with difficult brokers, connections and configurations."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from faultymqtt import BatchWindow, Broker, FaultyMqtt, OverrunWindow, Window
from mqttclient import MqttClient
from tcpproxy import TcpProxy

from connectors.contract import Reader, Received
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.protocol.packets import Packet, Puback
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.session.transport import Transport
from connectors.mqtt.source import MqttSource
from connectors.mqtt.topicfilter import shard_of
from connectors.records import Records
from connectors.source import LaneEnded, Replays, SourceDown
from pipelines.errors import ConnectorError
from streamer.devbroker.mqtt import LocalMosquitto

pytestmark = pytest.mark.slow

CLIENT = "factory-1"


@pytest.fixture
def broker() -> Iterator[FaultyMqtt]:
    """Our own broker, which can be told to fail."""
    broker = FaultyMqtt()
    with broker:
        yield broker


def source(port: int, **fields: object) -> MqttSource:
    """A source of `factory/{line}/{device}`."""
    usual = {"url": f"mqtt://127.0.0.1:{port}", "topics": "factory/{line}/{device}", "client_id": CLIENT}
    built = MqttSource(MqttSourceConfig.model_validate({**usual, **fields}))
    # Messages published once it is open have to reach it, on a busy machine too.
    built._connect_wait = 30.0
    return built


def opened(broker: FaultyMqtt, **fields: object) -> Reader:
    """A reader of such a source."""
    return Reader(source(broker.port, **fields))


def source_of(reader: Reader) -> MqttSource:
    assert isinstance(reader.source, MqttSource)
    return reader.source


def numbers(received: list[Received]) -> list[int]:
    return [int(one.message.value) for one in received]


def feed(broker: FaultyMqtt, start: int, stop: int, topic: str = "factory/a/1", **more: Any) -> None:
    """Messages with these numbers."""
    broker.publish(topic, *(b"%d" % number for number in range(start, stop)), **more)


def polled(reader: Reader, count: int) -> Records:
    """One block of so many records."""
    deadline = time.monotonic() + reader.patience
    blocks: list[Records] = []
    while sum(map(len, blocks)) < count and time.monotonic() < deadline:
        block = reader.source.poll(count, 1 << 24, 0.1)
        blocks += [block] if len(block) else []
    return Records.concat(blocks)


def until(happened: Callable[[], bool], reader: Reader) -> None:
    """Poll until it happened; nothing may come."""
    deadline = time.monotonic() + reader.patience
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        assert reader.poll(timeout=0.02) == []


class TestWhatRecordsSay:
    def test_levels_qos_and_properties_are_columns_that_are_read_when_asked_for(self, broker: FaultyMqtt) -> None:
        with (
            opened(broker) as reader,
            MqttClient(broker.host, broker.port, version=5) as client,
        ):
            client.publish(
                "factory/press/7",
                b"1",
                qos=1,
                ContentType="application/json",
                ResponseTopic="answers/7",
                CorrelationData=b"\x00\xff",
                UserProperty=[("trace", "abc"), ("trace", "def")],
            )
            client.publish("factory/lathe/8", b"2", qos=0)
            records = polled(reader, 2)
        assert records.topics_of() == ["factory/press/7", "factory/lathe/8"]
        columns = {name: [records.extra_column(name)[row] for row in range(2)] for name in ("levels.line", "qos")}
        assert columns == {"levels.line": ["press", "lathe"], "qos": [1, 0]}
        assert records.extras_of(0) == {
            "levels.line": "press",
            "levels.device": "7",
            "qos": 1,
            "retained": False,
            "duplicate": False,
            "content_type": "application/json",
            "response_topic": "answers/7",
            "correlation": b"\x00\xff",
        }
        assert set(records.extras_of(1)) == {"levels.line", "levels.device", "qos", "retained", "duplicate"}
        headers = records.header_column()
        assert headers is not None
        assert [headers[0], headers[1]] == [[("trace", b"abc"), ("trace", b"def")], None]
        assert records.keys is None

    @pytest.mark.parametrize(("tombstones", "empty"), [("forward", b""), ("skip", None), ("dead_letter", None)])
    def test_an_empty_message_is_a_tombstone_where_the_service_says_what_becomes_of_those(
        self, broker: FaultyMqtt, tombstones: str, empty: bytes | None
    ) -> None:
        with opened(broker, tombstones=tombstones) as reader:
            broker.publish("factory/press/7", b"1", b"", b"2")
            records = polled(reader, 3)
        assert list(records.values) == [b"1", empty, b"2"]

    def test_a_level_can_be_the_key(self, broker: FaultyMqtt) -> None:
        with opened(broker, key="device") as reader:
            feed(broker, 0, 1, "factory/press/7")
            feed(broker, 1, 2, "factory/press/ключ")
            records = polled(reader, 2)
        assert records.keys is not None
        assert list(records.keys) == [b"7", "ключ".encode()]

    def test_records_have_the_time_at_which_they_came(self, broker: FaultyMqtt) -> None:
        before = time.time() * 1000
        with opened(broker) as reader:
            feed(broker, 0, 1)
            (stamp,) = polled(reader, 1).timestamp_column().tolist()
        assert before - 1 <= stamp <= time.time() * 1000 + 1

    def test_retained_messages_are_marked_or_skipped(self, broker: FaultyMqtt) -> None:
        feed(broker, 0, 1, "factory/a/1", retain=True)
        with opened(broker) as reader:
            assert polled(reader, 1).extras_of(0)["retained"] is True
        with opened(broker, client_id="other", retained="skip") as reader:
            feed(broker, 1, 2)
            assert numbers(reader.take(1) + reader.listen(0.2)) == [1]

    def test_retained_messages_are_skipped_on_3_1_1_which_cannot_be_told(self, broker: FaultyMqtt) -> None:
        feed(broker, 0, 1, "factory/a/1", retain=True)
        with opened(broker, retained="skip", version="3.1.1") as reader:
            feed(broker, 1, 2)
            assert numbers(reader.take(1) + reader.listen(0.2)) == [1]
            until(lambda: broker.in_flight(CLIENT) == 1, reader)

    def test_at_qos_0_nothing_is_acknowledged_and_nothing_comes_again(self, broker: FaultyMqtt) -> None:
        with opened(broker, qos=0) as reader:
            assert reader.source.replays is Replays.NONE
            feed(broker, 0, 3)
            received = reader.take(3)
            assert not reader.source.starved()
            reader.acknowledge(received)
        assert broker.acknowledgements == []


class TestAcknowledgements:
    @pytest.mark.parametrize("qos", [1, 2])
    def test_acknowledgements_of_a_batch_are_sent_in_one_write(
        self, broker: FaultyMqtt, monkeypatch: pytest.MonkeyPatch, qos: int
    ) -> None:
        """One system call and one segment: each acknowledgement on its own costs more than the message did."""
        written: list[bytes] = []
        send = Transport.send

        def recorded(transport: Transport, data: bytes | bytearray | memoryview) -> None:
            written.append(bytes(data))
            send(transport, data)

        with opened(broker, qos=qos) as reader:
            feed(broker, 0, 200, qos=qos)
            received = reader.take(200)
            monkeypatch.setattr(Transport, "send", recorded)
            reader.acknowledge(received, wait=False)
            first = 0x40 if qos == 1 else 0x50
            assert written == [b"".join(bytes([first, 2, 0, number]) for number in range(1, 201))]


class TestCuts:
    def test_messages_sent_again_after_a_cut_are_delivered_once_and_acknowledged_on_the_new_connection(
        self, broker: FaultyMqtt
    ) -> None:
        with opened(broker) as reader:
            feed(broker, 0, 10)
            received = reader.take(10)
            broker.freeze()
            source_of(reader)._open_session.restart("a cut")
            reader.acknowledge(received[:4], wait=False)
            broker.thaw()
            until(lambda: source_of(reader).counts.matched == 10, reader)
            until(lambda: len(broker.acknowledgements) >= 4, reader)
            assert broker.acknowledgements == [1, 2, 3, 4]
            reader.acknowledge(received)
            assert broker.in_flight(CLIENT) == 0
            feed(broker, 10, 11)
            assert numbers(reader.take(1)) == [10]

    def test_the_same_id_with_another_payload_is_another_message(self, broker: FaultyMqtt) -> None:
        """Packet ids are used again: a match by id alone would lose the new message."""
        with opened(broker) as reader:
            feed(broker, 0, 2)
            old = reader.take(2)
            broker.forget(CLIENT)
            reader.until(lambda r: bool(r.events(LaneEnded)) and bool(r.lanes))
            feed(broker, 7, 9)
            new = reader.take(2)
            assert numbers(new) == [7, 8]
            reader.acknowledge(old)
            assert broker.in_flight(CLIENT) == 2, "late results of the lost session acknowledged new messages"
            reader.acknowledge(new)
            assert broker.in_flight(CLIENT) == 0
            assert source_of(reader).counts.sessions_lost == 1

    @pytest.mark.parametrize("other", [{"payload": b"9"}, {"topic": "factory/b/2"}], ids=["payload", "topic"])
    def test_another_message_under_the_id_of_one_in_hand_is_delivered_where_the_session_goes_on(
        self, broker: FaultyMqtt, other: dict[str, Any]
    ) -> None:
        with opened(broker) as reader:
            feed(broker, 0, 1)
            old = reader.take(1)
            broker.cut(CLIENT)

            def change(inside: Broker) -> None:
                sent = inside.sessions[CLIENT].sent
                sent[1] = replace(sent[1], **other)

            broker.ask(change)
            (new,) = reader.take(1)
            assert (new.message.topic, new.message.value) == (
                other.get("topic", "factory/a/1"),
                other.get("payload", b"0"),
            )
            assert source_of(reader).counts.matched == 0
            reader.acknowledge(old)
            assert broker.in_flight(CLIENT) == 1
            reader.acknowledge([new])
            assert broker.in_flight(CLIENT) == 0

    def test_an_acknowledgement_that_was_lost_brings_duplicates_and_no_loss(self, broker: FaultyMqtt) -> None:
        with opened(broker) as reader:
            feed(broker, 0, 3)
            received = reader.take(3)

            def lose(packet: Packet) -> bool:
                return isinstance(packet, Puback)

            broker.faults.drop = lose
            reader.acknowledge(received)
            broker.faults.drop = None
            broker.cut(CLIENT)
            again = reader.take(3)
            assert numbers(again) == [0, 1, 2]
            reader.acknowledge(again)
            assert broker.in_flight(CLIENT) == 0

    def test_acknowledgements_that_the_broker_does_not_confirm_are_an_error_and_can_be_sent_again(
        self, broker: FaultyMqtt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with opened(broker) as reader:
            feed(broker, 0, 3)
            received = reader.take(3)
            broker.freeze()
            with monkeypatch.context() as patch:
                patch.setattr("connectors.mqtt.acknowledging._WAIT", 0.2)
                with pytest.raises(ConnectorError, match=r"does not answer.*delivered again") as raised:
                    reader.acknowledge(received)
            assert raised.value.retriable
            broker.thaw()
            reader.acknowledge(received)
            assert broker.in_flight(CLIENT) == 0

    def test_a_broker_that_sends_again_under_new_ids_gets_them_acknowledged(self, broker: FaultyMqtt) -> None:
        """As rumqttd does: these cannot be known again, and are duplicates."""
        broker.faults.redeliver_as_new = True
        with opened(broker) as reader:
            feed(broker, 0, 3)
            received = reader.take(3)
            broker.cut(CLIENT)
            again = reader.take(3)
            reader.acknowledge(received)
            reader.acknowledge(again)
            assert broker.in_flight(CLIENT) == 0

    def test_a_frozen_broker_is_left_and_nothing_is_acknowledged_to_the_old_connection(
        self, broker: FaultyMqtt
    ) -> None:
        with TcpProxy(broker.port) as proxy, Reader(source(proxy.port, keepalive=1)) as reader:
            feed(broker, 0, 2)
            received = reader.take(2)
            proxy.swallow()
            began = time.monotonic()
            reader.until(lambda r: any(event.down for event in r.seen if isinstance(event, SourceDown)))
            assert time.monotonic() - began < reader.patience / 2
            reader.acknowledge(received[:1], wait=False)
            proxy.swallow(False)
            proxy.cut()
            reader.until(lambda r: source_of(r).counts.matched == 2)
            reader.acknowledge(received)
            assert broker.in_flight(CLIENT) == 0
            assert broker.acknowledgements == [1, 2]

    def test_traffic_goes_on_when_the_broker_has_forgotten_everything(self, broker: FaultyMqtt) -> None:
        with opened(broker) as reader:
            feed(broker, 0, 1)
            reader.acknowledge(reader.take(1))
            broker.forget()
            reader.until(lambda r: bool(r.events(LaneEnded)) and source_of(r).connected)
            feed(broker, 1, 2)
            assert numbers(reader.take(1)) == [1]

    def test_the_source_says_that_it_is_down_and_up(self, broker: FaultyMqtt) -> None:
        with opened(broker) as reader:
            broker.cut(CLIENT)
            reader.until(lambda r: any(isinstance(event, SourceDown) and event.down for event in r.seen))
            reader.until(lambda r: any(isinstance(event, SourceDown) and not event.down for event in r.seen))
        told = [event.down for event in reader.seen if isinstance(event, SourceDown)]
        assert told == [True, False]

    def test_an_absent_broker_is_an_event_and_no_error(self) -> None:
        found = source(1)
        found._connect_wait = 0.2
        with Reader(found) as reader:
            reader.listen(0.1)
            assert [event.down for event in reader.seen if isinstance(event, SourceDown)] == [True]
            assert not reader.source.starved()

    def test_where_nothing_was_acknowledged_no_answer_is_waited_for(self, broker: FaultyMqtt) -> None:
        """A service stops at once if its broker was never there, or has gone after the last answer."""
        away = source(1)
        away._connect_wait = 0.2
        with Reader(away) as reader:
            reader.source.acknowledge({}, wait=True)
        with opened(broker) as reader:
            feed(broker, 0, 2)
            first, second = reader.take(2)
            reader.acknowledge([first], wait=True)
            broker.freeze()
            began = time.monotonic()
            reader.source.acknowledge({}, wait=True)
            assert time.monotonic() - began < 5
            broker.thaw()
            reader.acknowledge([second], wait=True)
            assert broker.in_flight(CLIENT) == 0

    def test_a_message_of_qos_2_comes_once_when_the_answer_to_it_was_lost(self, broker: FaultyMqtt) -> None:
        with opened(broker, qos=2) as reader:
            feed(broker, 0, 2, qos=2)
            received = reader.take(2)
            broker.faults.drop = lambda packet: type(packet).__name__ == "Pubrec"
            reader.acknowledge(received)
            broker.faults.drop = None
            broker.cut(CLIENT)
            assert reader.listen(0.5) == []
            until(lambda: broker.in_flight(CLIENT) == 0, reader)


class TestGaps:
    def test_unfinished_qos_0_messages_that_a_rewind_loses_are_counted(self, broker: FaultyMqtt) -> None:
        """Finished ones are not counted; messages of QoS 1 come again."""
        with opened(broker) as reader:
            for number in range(6):
                feed(broker, number, number + 1, qos=number % 2)
            received = reader.take(6)
            reader.acknowledge(received[:3], wait=False)
            reader.source.rewind(list(reader.lanes))
            again = reader.take(2)
            assert numbers(again) == [3, 5]
            assert measured(reader, "gone") == 1
            reader.acknowledge(again)
            assert broker.in_flight(CLIENT) == 0
            assert measured(reader, "gaps") == 0

    def test_qos_0_messages_that_were_not_polled_before_a_rewind_are_counted_as_lost(self, broker: FaultyMqtt) -> None:
        with opened(broker) as reader:
            feed(broker, 0, 10, qos=0)
            assert len(reader.take(1, max_records=1)) == 1
            reader.source.rewind(list(reader.lanes))
            assert measured(reader, "gone") == measured(reader, "received")

    @pytest.mark.parametrize(("qos", "gaps"), [(0, 1), (1, 0)])
    def test_a_connection_that_is_cut_is_a_gap_at_qos_0(self, broker: FaultyMqtt, qos: int, gaps: int) -> None:
        with opened(broker, qos=qos) as reader:
            feed(broker, 0, 1)
            reader.acknowledge(reader.take(1))
            broker.cut(CLIENT)
            until(lambda: measured(reader, "reconnects") == 1, reader)
            assert measured(reader, "gaps") == gaps

    def test_a_session_that_the_broker_forgot_is_a_gap(self, broker: FaultyMqtt) -> None:
        with opened(broker) as reader:
            reader.listen(0.05)
            broker.forget(CLIENT)
            until(lambda: measured(reader, "reconnects") == 1, reader)
            assert (measured(reader, "gaps"), measured(reader, "sessions_lost")) == (1, 1)


class TestCatchingUp:
    """A poll without messages says that the broker has no more, but where they are on their way."""

    def wait(self, reader: Reader) -> float:
        """Polls until it has caught up with the present; how many seconds that takes."""
        began = time.monotonic()
        while reader.source.caught_up(at := time.monotonic()) < at:
            assert at < began + reader.patience
            assert reader.poll() == []
        return at - began

    def test_a_broker_gets_a_moment_to_begin_after_each_connection(
        self, broker: FaultyMqtt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A busy machine may notice a connection late.
        monkeypatch.setattr("connectors.mqtt.source._BEGINS_TO_SEND", 2.0)
        with opened(broker) as reader:
            assert reader.source.caught_up(time.monotonic()) == -math.inf
            assert self.wait(reader) > 0.5
            broker.cut(CLIENT)
            # It may be connected again before it is looked at.
            reader.until(lambda r: [seen.down for seen in r.seen if isinstance(seen, SourceDown)][-2:] == [True, False])
            assert self.wait(reader) > 0.5

    def test_a_broker_that_held_messages_back_gets_a_moment_to_send_them(self, broker: FaultyMqtt) -> None:
        with opened(broker, window=2) as reader:
            self.wait(reader)
            feed(broker, 0, 2)
            received = reader.take(2)
            assert reader.source.starved()
            reader.acknowledge(received)
            assert not reader.source.starved()
            at = time.monotonic()
            assert reader.source.caught_up(at) < at
            self.wait(reader)

    def test_messages_wait_while_it_does_not_read(self, broker: FaultyMqtt) -> None:
        with opened(broker) as reader:
            self.wait(reader)
            reader.source.standing_still(True)
            reader.source.standing_still(False)
            at = time.monotonic()
            assert reader.source.caught_up(at) < at


class TestWindows:
    @pytest.mark.parametrize("window", [lambda c: Window(1), lambda c: Window(8), lambda c: Window(50)])
    def test_a_window_that_is_smaller_than_a_batch_stands_in_nobodys_way(
        self, broker: FaultyMqtt, window: Callable[[Any], Window]
    ) -> None:
        broker.faults.window = window
        feed_and_take(broker, 300)

    def test_a_window_that_grows_in_jumps_stands_in_nobodys_way(self, broker: FaultyMqtt) -> None:
        """HiveMQ: one, then fifty, each batch after the whole one before."""
        broker.faults.window = lambda connect: BatchWindow(50)
        feed_and_take(broker, 300)

    def test_a_broker_that_exceeds_its_window_is_not_sent_away(self, broker: FaultyMqtt) -> None:
        """mosquitto: each acknowledgement releases a whole window."""
        broker.faults.window = lambda connect: OverrunWindow(64)
        feed_and_take(broker, 3000)
        assert len(broker.connects) == 1

    @pytest.mark.parametrize("version", ["5", "3.1.1"])
    def test_no_more_than_the_window_is_under_way_whatever_the_broker_sends(
        self, broker: FaultyMqtt, version: str
    ) -> None:
        """Unacknowledged messages come again after a crash: `window` bounds their number, and brokers do not."""
        broker.faults.window = lambda connect: Window(5000)
        with opened(broker, window=100, version=version) as reader:
            feed(broker, 0, 1000)
            got = reader.take(100, max_records=64)
            assert reader.source.starved()
            assert reader.listen(0.2) == []
            reader.acknowledge(got[:30], wait=False)
            assert not reader.source.starved()
            got += reader.take(30, max_records=64)
            assert reader.listen(0.2) == []
            while len(got) < 1000:
                reader.acknowledge(got, wait=False)
                got += reader.poll(max_records=64)
            assert numbers(got) == list(range(1000))

    def test_acknowledgements_leave_in_the_order_of_arrival(self, broker: FaultyMqtt) -> None:
        broker.faults.strict = True
        with opened(broker) as reader:
            for start in range(0, 200, 20):
                feed(broker, start, start + 20)
                received = reader.take(20)
                reader.acknowledge(received[:7], wait=False)
                reader.acknowledge(received[:3], wait=False)
                reader.acknowledge(received)
        assert broker.acknowledgements == sorted(broker.acknowledgements)
        assert len(broker.connects) == 1

    def test_more_messages_than_there_are_packet_ids_arrive(self, broker: FaultyMqtt) -> None:
        count = 20_000
        with opened(broker, window=10_000) as reader:
            got: list[int] = []
            for start in range(0, count, 5000):
                feed(broker, start, start + 5000)
                received = reader.take(5000, max_records=5000)
                got += numbers(received)
                reader.acknowledge(received)
                if not start:
                    # As after 57,000 messages: the third batch begins again at 1.
                    broker.ask(lambda inside: setattr(inside.sessions[CLIENT], "last_id", 57_000))
        assert got == list(range(count))
        assert broker.acknowledgements == [*range(1, 5001), *range(57_001, 65_536), *range(1, 6466)]

    def test_the_bound_on_unacknowledged_messages_is_kept_by_not_reading(self, broker: FaultyMqtt) -> None:
        with opened(broker) as reader:
            broker.publish("factory/a/1", *[bytes(20_000)] * 500)
            taken = reader.take(1)
            for _ in range(20):
                reader.source.standing_still(True)
                time.sleep(0.01)
            assert source_of(reader).held_bytes < 3 << 20
            reader.source.standing_still(False)
            taken += reader.take(499)
            reader.acknowledge(taken)
            assert broker.in_flight(CLIENT) == 0


def feed_and_take(broker: FaultyMqtt, count: int) -> None:
    with opened(broker) as reader:
        feed(broker, 0, count)
        got: list[int] = []
        starved = 0
        deadline = time.monotonic() + 2 * reader.patience
        while len(got) < count and time.monotonic() < deadline:
            received = reader.poll(max_records=64, timeout=0.05)
            starved += reader.source.starved()
            got += numbers(received)
            reader.acknowledge(received, wait=False)
        assert got == list(range(count))


class TestGrants:
    def test_a_session_that_another_client_takes_over_ends_the_source(self, broker: FaultyMqtt) -> None:
        with opened(broker) as reader:
            with (
                MqttClient(broker.host, broker.port, CLIENT, version=5, clean=False),
                pytest.raises(ConnectorError, match="taken over the session") as raised,
            ):
                reader.until(lambda r: False)
            assert not raised.value.retriable
            assert CLIENT in str(raised.value)

    def test_a_refused_login_is_an_error_when_opening(self, broker: FaultyMqtt) -> None:
        broker.faults.refuse_connects = deque([ReasonCode.NOT_AUTHORIZED])
        found = source(broker.port, username="ann", password="not-to-be-shown")
        with pytest.raises(ConnectorError, match="not authorized") as raised:
            found.open()
        assert "not-to-be-shown" not in str(raised.value)
        found.close()

    def test_a_token_is_asked_for_again_when_it_was_refused(
        self, broker: FaultyMqtt, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        (tmp_path / "sometokens.py").write_text("def token(setting):\n    return 'fresh', 0.0\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        broker.faults.refuse_connects = deque([ReasonCode.BAD_USER_NAME_OR_PASSWORD])
        with opened(broker, token="sometokens:token", username="me") as reader:
            feed(broker, 0, 1)
            assert numbers(reader.take(1)) == [0]
        assert [one.password for one in broker.connects] == [b"fresh"] * 2

    def test_a_downgrade_to_qos_0_is_an_error_when_opening(self, broker: FaultyMqtt) -> None:
        broker.faults.grant = lambda asked, qos: ReasonCode.SUCCESS
        found = source(broker.port)
        with pytest.raises(ConnectorError, match=r'QoS 0 instead of 1 to the topic filter "factory/\+/\+"'):
            found.open()
        found.close()

    def test_a_broker_that_keeps_no_session_is_an_error_when_opening(self, broker: FaultyMqtt) -> None:
        broker.faults.granted = Properties(session_expiry_interval=0)
        found = source(broker.port)
        with pytest.raises(ConnectorError, match="keeps no session"):
            found.open()
        found.close()

    def test_a_session_that_is_kept_for_a_shorter_time_than_asked_for_is_told(
        self, broker: FaultyMqtt, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker.faults.granted = Properties(session_expiry_interval=60)
        with caplog.at_level(logging.WARNING), opened(broker) as reader:
            feed(broker, 0, 1)
            assert numbers(reader.take(1)) == [0]
            broker.cut(CLIENT)
            until(lambda: measured(reader, "reconnects") == 1, reader)
        assert caplog.text.count("for 60 s only, not 3600 s") == 1


class TestShards:
    def test_shards_divide_the_topics_by_a_level(self, broker: FaultyMqtt) -> None:
        shard = {"count": 3, "level": "device"}
        with ExitStack() as stack:
            readers = [
                stack.enter_context(opened(broker, shard={**shard, "index": index}, client_id=f"shard-{index}"))
                for index in range(3)
            ]
            for device in range(30):
                feed(broker, device, device + 1, f"factory/a/{device}")
            parts = [numbers(r.until(lambda r: source_of(r).counts.received == 30)) for r in readers]
        assert sorted(number for part in parts for number in part) == list(range(30))
        assert all(parts)

    def test_messages_of_other_shards_are_acknowledged_in_order(self, broker: FaultyMqtt) -> None:
        with opened(broker, shard={"index": 0, "count": 2, "level": "device"}) as reader:
            for device in range(20):
                feed(broker, device, device + 1, f"factory/a/{device}")
            mine = reader.until(lambda r: source_of(r).counts.received == 20)
            assert 0 < len(mine) < 20
            assert broker.in_flight(CLIENT) > 0
            reader.acknowledge(mine)
            assert broker.in_flight(CLIENT) == 0
            assert broker.acknowledgements == sorted(broker.acknowledgements)

    def test_only_topics_of_others_fill_no_window(self, broker: FaultyMqtt) -> None:
        broker.faults.window = lambda connect: Window(5)
        others = next(line for line in "abcdef" if shard_of(line, 2) == 1)
        with opened(broker, shard={"index": 0, "count": 2, "level": "line"}) as reader:
            feed(broker, 0, 50, f"factory/{others}/1")
            until(lambda: source_of(reader).counts.received == 50 and broker.in_flight(CLIENT) == 0, reader)

    def test_topics_of_an_earlier_configuration_are_passed_over_and_told(
        self, broker: FaultyMqtt, caplog: pytest.LogCaptureFixture
    ) -> None:
        with opened(broker, topics="old/#") as reader:
            reader.listen(0.05)
        broker.publish("old/1", b"1", b"2")
        with caplog.at_level(logging.WARNING), opened(broker) as reader:
            feed(broker, 3, 4)
            assert numbers(reader.take(1)) == [3]
            reader.acknowledge(reader.listen(0.1))
        assert "earlier configuration" in caplog.text


class TestMosquitto:
    def test_a_broker_that_is_killed_without_a_store_is_a_lost_session(
        self, start_mosquitto: Callable[..., LocalMosquitto]
    ) -> None:
        broker = start_mosquitto(persistence="false")
        with Reader(source(broker.port)) as reader:
            with MqttClient(broker.host, broker.port, version=5) as client:
                client.publish("factory/a/1", b"0", 1)
                assert numbers(reader.take(1)) == [0]
            broker.kill()
            broker.restart()
            reader.until(lambda r: bool(r.events(LaneEnded)) and source_of(r).connected)
            with MqttClient(broker.host, broker.port, version=5) as client:
                client.publish("factory/a/1", b"1", 1)
                assert numbers(reader.take(1)) == [1]
            assert source_of(reader).counts.sessions_lost == 1
            assert [event.finish for event in reader.events(LaneEnded)] == [True]


class TestLargeMessages:
    def test_a_message_beyond_max_message_is_passed_over_on_3_1_1_and_does_not_come_again(
        self, broker: FaultyMqtt, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING), opened(broker, version="3.1.1", max_message=1000) as reader:
            feed(broker, 0, 1)
            broker.publish("factory/a/1", bytes(300_000))
            feed(broker, 1, 2)
            received = reader.take(2)
            assert numbers(received) == [0, 1]
            reader.acknowledge(received)
            assert broker.in_flight(CLIENT) == 0
            assert source_of(reader).counts.too_large == 1
        assert "max_message" in caplog.text

    @pytest.mark.parametrize("qos", [0, 1, 2])
    def test_a_message_of_megabytes_beyond_max_message_is_discarded_as_it_comes_on_3_1_1(
        self, broker: FaultyMqtt, qos: int
    ) -> None:
        """However large it is, no more memory is used, and it is acknowledged in its turn."""
        with opened(broker, version="3.1.1", max_message=1000, qos=qos) as reader:
            most = 0
            for size in (140_000, 9_000_000, 1001):
                feed(broker, 0, 1, qos=qos)
                broker.publish("factory/a/1", bytes(size), qos=qos)
                feed(broker, 1, 2, qos=qos)
                received: list[Received] = []
                deadline = time.monotonic() + reader.patience
                while len(received) < 2 and time.monotonic() < deadline:
                    received += reader.poll(timeout=0.1)
                    most = max(most, source_of(reader).held_bytes)
                assert numbers(received) == [0, 1]
                if qos:
                    reader.acknowledge(received)
                    until(lambda: broker.in_flight(CLIENT) == 0, reader)
            assert source_of(reader).counts.too_large == 3
            assert most < 2 << 20
        assert len(broker.connects) == 1

    def test_a_message_that_is_too_large_and_cut_off_is_passed_over_when_it_comes_again(
        self, broker: FaultyMqtt
    ) -> None:
        with TcpProxy(broker.port) as proxy:
            proxy.cut_after("to client", 900_000)
            with Reader(source(proxy.port, version="3.1.1", max_message=1000)) as reader:
                reader.listen(0.05)
                broker.publish("factory/a/1", bytes(2_000_000))
                feed(broker, 1, 2)
                received = reader.take(1)
                assert numbers(received) == [1]
                reader.acknowledge(received)
                assert broker.in_flight(CLIENT) == 0
                assert source_of(reader).counts.too_large == 1
        assert len(broker.connects) == 2

    def test_a_broker_of_mqtt_5_is_told(self, broker: FaultyMqtt) -> None:
        with opened(broker, max_message=1000):
            (connect,) = broker.connects
            assert connect.properties.maximum_packet_size == 1000 + 128 * 1024


class TestCanary:
    @pytest.mark.parametrize(
        "fields", [{}, {"version": "3.1.1"}, {"client": "paho"}, {"client": "paho", "version": "3.1.1"}]
    )
    def test_a_session_whose_subscriptions_are_gone_is_noticed_and_subscribes_anew(
        self, broker: FaultyMqtt, fields: dict[str, str]
    ) -> None:
        """The broker keeps the connection, and has lost all subscriptions."""
        with opened(broker, canary={"every": 1}, **fields) as reader:
            until(lambda: measured(reader, "canary_seconds") > 0, reader)
            broker.unsubscribe(CLIENT)
            feed(broker, 0, 1)
            until(lambda: measured(reader, "canaries_missed") == 1, reader)
            until(lambda: reader.source.connected, reader)  # type: ignore[attr-defined]
            feed(broker, 1, 2)
            received = reader.take(1)
            assert numbers(received) == [1]
            reader.acknowledge(received)
            assert [event.down for event in reader.seen if isinstance(event, SourceDown)] == [True, False]
            assert not reader.events(LaneEnded)
        assert len(broker.connects) == 2

    @pytest.mark.parametrize("fields", [{}, {"client": "paho"}])
    def test_one_lost_subscription_of_several_is_asked_for_again(
        self, broker: FaultyMqtt, fields: dict[str, str]
    ) -> None:
        """The other subscriptions, and the canary's, are kept, so the loss is not visible. Retained messages do not
        come again."""
        feed(broker, 0, 1, "factory/a/1", retain=True)
        topics = ["factory/a/+", "factory/b/+"]
        granted: list[str] = []

        def grant(asked: str, qos: int) -> ReasonCode:
            granted.append(asked)
            return ReasonCode(qos)

        broker.faults.grant = grant
        with opened(broker, topics=topics, canary={"every": 1}, **fields) as reader:
            reader.acknowledge(reader.take(1))
            # With the connection, and with the first canary.
            until(lambda: len(granted) == 6, reader)
            broker.unsubscribe(CLIENT, "factory/b/+")
            feed(broker, 1, 2, "factory/b/1")
            until(lambda: len(granted) == 9, reader)
            feed(broker, 2, 3, "factory/b/1")
            received = reader.take(1)
            assert numbers(received) == [2]
            reader.acknowledge(received)
            assert reader.listen(0.1) == []
        assert len(broker.connects) == 1

    def test_a_filter_that_may_not_be_read_any_more_is_named(self, broker: FaultyMqtt) -> None:
        with opened(broker, topics=["factory/a/+", "factory/b/+"], canary={"every": 1}) as reader:
            until(lambda: measured(reader, "canary_seconds") > 0, reader)
            broker.faults.grant = lambda asked, qos: (
                ReasonCode.NOT_AUTHORIZED if asked == "factory/b/+" else ReasonCode(qos)
            )
            until(lambda: "factory/b/+" in str(source_of(reader).down), reader)
            broker.faults.grant = None
            until(lambda: source_of(reader).connected and source_of(reader).down is None, reader)

    def test_over_3_1_1_subscriptions_are_left_alone_as_all_that_is_retained_would_come_again(
        self, broker: FaultyMqtt
    ) -> None:
        feed(broker, 0, 1, "factory/a/1", retain=True)
        with opened(broker, version="3.1.1", canary={"every": 1}) as reader:
            reader.acknowledge(reader.take(1))
            until(lambda: measured(reader, "canaries") == 3, reader)

    def test_a_canary_that_never_comes_back_keeps_the_source_down_until_a_message_comes(
        self, broker: FaultyMqtt
    ) -> None:
        """As where the client may not publish there: a message shows as well that the session is heard."""
        broker.faults.refuse = lambda packet: ReasonCode.NOT_AUTHORIZED
        with opened(broker, canary={"topic": "my/canary", "every": 1}) as reader:
            until(lambda: measured(reader, "canaries_missed") == 2, reader)
            assert "my/canary" in str(source_of(reader).down)
            feed(broker, 0, 1)
            assert numbers(reader.take(1)) == [0]
            assert source_of(reader).down is None

    def test_the_canary_is_never_delivered_even_where_the_topics_match_it(self, broker: FaultyMqtt) -> None:
        with opened(broker, topics="#", canary={"every": 1}) as reader:
            feed(broker, 0, 1)
            assert numbers(reader.take(1)) == [0]
            until(lambda: measured(reader, "canaries") == 3, reader)
            assert measured(reader, "canaries_missed") == 0
            assert {one.filter for one in source_of(reader)._config.settings().subscriptions} == {
                "#",
                f"streamer/canary/{CLIENT}",
            }

    def test_a_service_that_stands_still_misses_none(self, broker: FaultyMqtt) -> None:
        """It does not read, so it cannot know."""
        with opened(broker, canary={"every": 1}) as reader:
            until(lambda: measured(reader, "canary_seconds") > 0, reader)
            broker.unsubscribe(CLIENT)
            reader.listen(0.9)
            for _ in range(30):
                reader.source.standing_still(True)
                time.sleep(0.05)
            reader.source.standing_still(False)
            reader.source.poll(1, 1000, 0)
            assert measured(reader, "canaries_missed") == 0


def measured(reader: Reader, name: str) -> float:
    return next(one.value for one in reader.source.metrics() if one.name == name)
