"""Faults of any broker, on mosquitto and on our own: no message is lost, and no more come twice than may.

Features of only one of them are in `test_mqtt_source` and `test_mqtt_faults`; `make soak` has the long forms.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import pytest
from cuttable import CuttablePort
from faultymqtt import FaultyMqtt
from mqttbrokers import MqttUnderTest, StartMosquitto, StartMqtt, left_at, publish
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5
from tcpproxy import TcpProxy
from waiting import until

import streamer
from connectors.backoff import Backoff
from connectors.contract import Reader, Received
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.sinkconfig import MqttSinkConfig
from connectors.mqtt.source import MqttSource
from connectors.source import LaneEnded
from pipelines.errors import ConnectorError
from streamer.devbroker.mqtt import LocalMosquitto

pytestmark = pytest.mark.slow

CLIENT = "factory-1"
TOPIC = "factory/a/1"


def source(port: int, **fields: object) -> MqttSource:
    """A source of `factory/{line}/{device}`."""
    usual = {"url": f"mqtt://127.0.0.1:{port}", "topics": "factory/{line}/{device}", "client_id": CLIENT}
    built = MqttSource(MqttSourceConfig.model_validate({**usual, **fields}))
    # Messages published once it is open have to reach it, on a busy machine too.
    built._connect_wait = 30.0
    return built


def source_of(reader: Reader) -> MqttSource:
    assert isinstance(reader.source, MqttSource)
    return reader.source


def send(broker: MqttUnderTest, start: int, stop: int) -> None:
    """Messages with these numbers."""
    publish(broker, TOPIC, *(b"%d" % number for number in range(start, stop)))


def numbers(received: list[Received]) -> list[int]:
    return [int(one.message.value) for one in received]


def taken(reader: Reader, count: int, at_once: int = 64) -> list[int]:
    """So many messages, polled and acknowledged as they come."""
    got: list[int] = []
    deadline = time.monotonic() + 4 * reader.patience
    while len(got) < count and time.monotonic() < deadline:
        received = reader.poll(max_records=at_once, timeout=0.05)
        got += numbers(received)
        reader.acknowledge(received, wait=False)
    return got


def connected_again(reader: Reader, reconnects: int) -> list[Received]:
    """The records that come until the source has made so many further connections, and its subscriptions are
    granted."""
    return reader.until(lambda _: measured(reader, "reconnects") >= reconnects and source_of(reader).connected)


def measured(reader: Reader, name: str) -> float:
    return next(one.value for one in reader.source.metrics() if one.name == name)


class TestConnections:
    def test_a_connection_that_ends_at_any_byte_loses_nothing(
        self, start_mqtt: StartMqtt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Backoff, "wait", lambda backoff: 0.01)
        broker = start_mqtt()
        size = 2 + 2 + len(TOPIC) + 2 + 1 + 2
        with TcpProxy(broker.port) as proxy, Reader(source(proxy.port)) as reader:
            before = proxy.passed["to client"]
            proxy.cut()
            connected_again(reader, 1)
            greeting = proxy.passed["to client"] - before
            for at in range(greeting + size + 1):
                proxy.cut_after("to client", at + 1)
                proxy.cut()
                send(broker, at, at + 1)
                received = reader.take(1)
                assert numbers(received) == [at]
                reader.acknowledge(received)
            assert reader.listen(0.1) == []
            assert not reader.events(LaneEnded)
        assert left_at(broker, CLIENT) == []

    def test_of_what_comes_again_only_that_is_delivered_whose_acknowledgement_was_lost(
        self, start_mqtt: StartMqtt
    ) -> None:
        broker = start_mqtt()
        with TcpProxy(broker.port) as proxy, Reader(source(proxy.port)) as reader:
            send(broker, 0, 10)
            received = reader.take(10)
            proxy.swallow(direction="to server")
            reader.acknowledge(received[:4], wait=False)
            proxy.cut()
            proxy.swallow(False)
            again = reader.take(4)
            assert numbers(again) == [0, 1, 2, 3]
            reader.until(lambda _: source_of(reader).counts.matched == 6)
            reader.acknowledge(received)
            reader.acknowledge(again)
            send(broker, 10, 11)
            last = reader.take(1)
            assert numbers(last) == [10]
            reader.acknowledge(last)
        assert left_at(broker, CLIENT) == []

    def test_a_message_that_was_lost_on_its_way_is_not_skipped_for_its_duplicate_flag(
        self, start_mqtt: StartMqtt
    ) -> None:
        broker = start_mqtt()
        with TcpProxy(broker.port, keeps=True) as proxy, Reader(source(proxy.port)) as reader:
            proxy.swallow(direction="to client")
            send(broker, 0, 1)
            reader.until(lambda _: TOPIC.encode() in proxy.came["to client"])
            proxy.cut()
            proxy.swallow(False)
            received = reader.take(1)
            assert numbers(received) == [0]
            assert dict(received[0].message.extras)["duplicate"] is True
            reader.acknowledge(received)
        assert left_at(broker, CLIENT) == []

    def test_late_acknowledgements_of_a_lost_session_are_none_of_new_messages_with_the_same_ids(
        self, start_mqtt: StartMqtt
    ) -> None:
        broker = start_mqtt(persistence="false")
        with Reader(source(broker.port)) as reader:
            send(broker, 0, 2)
            old = reader.take(2)
            if isinstance(broker, FaultyMqtt):
                broker.forget(CLIENT)
            else:
                broker.kill()
                broker.restart()
            reader.until(lambda _: bool(reader.events(LaneEnded)) and bool(reader.lanes))
            connected_again(reader, 1)
            send(broker, 7, 9)
            new = reader.take(2)
            assert numbers(new) == [7, 8]
            reader.acknowledge(old)
        assert left_at(broker, CLIENT) == [b"7", b"8"]

    def test_a_broker_that_is_restarted_with_its_store_loses_nothing(self, start_mqtt: StartMqtt) -> None:
        broker = start_mqtt()
        with Reader(source(broker.port)) as reader:
            send(broker, 0, 10)
            received = reader.take(10)
            broker.restart()
            reader.until(lambda _: source_of(reader).counts.matched == 10)
            reader.acknowledge(received)
            assert not reader.events(LaneEnded)
        assert left_at(broker, CLIENT) == []

    def test_a_frozen_broker_is_left_and_gives_the_rest_when_it_goes_on(self, start_mqtt: StartMqtt) -> None:
        broker = start_mqtt()
        with Reader(source(broker.port, keepalive=1)) as reader:
            send(broker, 0, 5)
            received = reader.take(5)
            broker.freeze()
            reader.until(lambda _: source_of(reader).down is not None)
            broker.thaw()
            reader.until(lambda _: source_of(reader).counts.matched == 5)
            reader.acknowledge(received)
            send(broker, 5, 10)
            rest = reader.take(5)
            assert numbers(rest) == [5, 6, 7, 8, 9]
            reader.acknowledge(rest)
        assert left_at(broker, CLIENT) == []


class TestFlow:
    def test_a_window_smaller_than_a_batch_stands_in_nobodys_way(self, start_mqtt: StartMqtt) -> None:
        broker = start_mqtt(window=8)
        with Reader(source(broker.port)) as reader:
            send(broker, 0, 400)
            assert taken(reader, 400) == list(range(400))
        assert left_at(broker, CLIENT) == []

    def test_a_flood_of_retained_messages_is_taken_as_it_is_polled(self, start_mqtt: StartMqtt) -> None:
        flood(start_mqtt(), 3000)

    @pytest.mark.soak
    @pytest.mark.timeout(900)
    def test_a_hundred_thousand_retained_messages_are_taken_as_they_are_polled(self, start_mqtt: StartMqtt) -> None:
        flood(start_mqtt(max_queued_messages="0"), 100_000)

    @pytest.mark.soak
    @pytest.mark.timeout(900)
    def test_more_messages_than_there_are_packet_ids_arrive_with_as_many_under_way_as_there_can_be(
        self, start_mqtt: StartMqtt
    ) -> None:
        broker = start_mqtt(max_queued_messages="0", max_inflight_messages="0")
        with Reader(source(broker.port, window=60_000), patience=300) as reader:
            got: list[int] = []
            for first in range(0, 150_000, 50_000):
                send(broker, first, first + 50_000)
                received = reader.take(50_000, max_records=5000)
                got += numbers(received)
                for at in range(5000, 50_001, 5000):
                    reader.acknowledge(received[:at])
            assert got == list(range(150_000))
        assert left_at(broker, CLIENT) == []

    def test_a_clock_that_jumps_changes_nothing(self, start_mqtt: StartMqtt, monkeypatch: pytest.MonkeyPatch) -> None:
        broker = start_mqtt()
        with Reader(source(broker.port, keepalive=2)) as reader:
            now = time.time()
            monkeypatch.setattr(time, "time", lambda: now - 1e6)
            send(broker, 0, 1)
            received = reader.take(1)
            monkeypatch.setattr(time, "time", lambda: now + 1e6)
            assert reader.listen(0.3) == []
            reader.acknowledge(received)
            assert measured(reader, "reconnects") == 0


def flood(broker: MqttUnderTest, count: int) -> None:
    """So many retained topics at a new subscription: all come, marked, and little is held at any time."""
    publish(broker, "factory/a/%d", *(b"%d" % number for number in range(count)), retain=True)
    with Reader(source(broker.port)) as reader:
        got: list[int] = []
        most = 0
        deadline = time.monotonic() + 10 * reader.patience
        while len(got) < count and time.monotonic() < deadline:
            received = reader.poll(max_records=500, timeout=0.05)
            assert all(dict(one.message.extras)["retained"] for one in received)
            got += numbers(received)
            most = max(most, source_of(reader).held_bytes)
            reader.acknowledge(received, wait=False)
        assert sorted(got) == list(range(count))
        assert most < 3 << 20
    with Reader(source(broker.port, client_id="another", retained="skip")) as reader:
        assert reader.listen(0.2) == []


class TestRights:
    def test_two_sources_with_one_client_id_are_told_of_each_other(
        self, start_mqtt: StartMqtt, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A broker that says why it ends a connection ends the first one. Mosquitto 2.0.11 does not, in MQTT 5 either:
        then the two go on, with longer and longer waits, and both say that another client may have the same id.
        """
        monkeypatch.setattr(Backoff, "wait", lambda backoff: 0.01)
        broker = start_mqtt()
        with (
            Reader(source(broker.port)) as first,
            Reader(source(broker.port)) as second,
            caplog.at_level(logging.WARNING),
        ):

            def fight() -> None:
                deadline = time.monotonic() + first.patience
                while "another client" not in caplog.text and time.monotonic() < deadline:
                    first.poll(timeout=0.05)
                    second.poll(timeout=0.05)

            if isinstance(broker, FaultyMqtt):
                with pytest.raises(ConnectorError, match="taken over the session") as raised:
                    fight()
                assert not raised.value.retriable
                assert len(broker.connects) == 2
            else:
                with suppress(ConnectorError):
                    fight()
                    assert f'perhaps another client has the client id "{CLIENT}"' in caplog.text

    def test_a_token_that_is_refused_once_is_asked_for_again(
        self, start_mqtt: StartMqtt, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "aging_tokens.py").write_text(
            "given = ['old', 'new']\n\ndef token(setting):\n    return given.pop(0), 3600.0\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "aging_tokens", raising=False)
        login = {"username": "me", "token": "aging_tokens:token"}
        passwords = tmp_path / "passwords"
        if (program := shutil.which("mosquitto_passwd")) is not None:
            subprocess.run([program, "-c", "-b", passwords, "me", "new"], check=True, capture_output=True)
        broker = start_mqtt(allow_anonymous="false", password_file=str(passwords))
        if isinstance(broker, FaultyMqtt):
            broker.faults.refuse_connects = deque([ReasonCode.BAD_USER_NAME_OR_PASSWORD])
        elif program is None:
            pytest.skip("mosquitto_passwd is not installed")
        with Reader(source(broker.port, **login)) as reader:
            connected_again(reader, 0)
            with MqttClient(broker.host, broker.port, login=("me", "new")) as client:
                client.publish(TOPIC, b"0", 1)
            assert numbers(reader.take(1)) == [0]

    def test_a_session_that_hears_nothing_any_more_is_noticed_and_hears_again(
        self, start_mqtt: StartMqtt, tmp_path: Path
    ) -> None:
        """Mosquitto takes messages away in silence from a client that may not read them any more."""
        rights = tmp_path / "rights"
        rights.write_text("topic readwrite #\n")
        rights.chmod(0o700)
        broker = start_mqtt(acl_file=str(rights))
        with Reader(source(broker.port, canary={"every": 1})) as reader:
            reader.until(lambda _: measured(reader, "canary_seconds") > 0)
            if isinstance(broker, FaultyMqtt):
                broker.unsubscribe(CLIENT)
            else:
                reload_rights(broker, rights, "topic write #\n")
            reader.until(lambda _: measured(reader, "canaries_missed") >= 1)
            if isinstance(broker, LocalMosquitto):
                assert source_of(reader).down is not None
                reload_rights(broker, rights, "topic readwrite #\n")
            reader.until(lambda _: source_of(reader).connected and source_of(reader).down is None)
            send(broker, 0, 1)
            assert numbers(reader.take(1)) == [0]


class TestServices:
    def test_at_qos_2_a_message_comes_out_once_however_often_both_connections_are_cut(
        self, start_mqtt: StartMqtt, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between client and broker, both ways: only a crash of the service repeats a result."""
        monkeypatch.setattr(Backoff, "wait", lambda backoff: 0.01)
        broker = start_mqtt()
        count, bursts = 40, 6
        with (
            TcpProxy(broker.port) as inward,
            TcpProxy(broker.port) as outward,
            MqttClient(broker.host, broker.port, version=MQTTv5) as reader,
            MqttClient(broker.host, broker.port, version=MQTTv5) as sender,
        ):
            assert reader.subscribe("out", 2) == 2
            service = streamer.loads(f"""
name: twice
source: {{type: mqtt, url: "mqtt://127.0.0.1:{inward.port}", topics: in, qos: 2, codec: json}}
pipeline: []
batch: {{max_records: 7}}
sink: {{type: mqtt, url: "mqtt://127.0.0.1:{outward.port}", topic: out, qos: 2, codec: json}}
""")
            # Its session exists already, so that messages published before it has subscribed wait for it.
            with MqttClient(broker.host, broker.port, "twice-mqtt", version=MQTTv5, clean=False) as session:
                assert session.subscribe("in", 2) == 2
            with service:
                assert until(lambda: inward.connections and outward.connections)
                for burst in range(bursts):
                    for number in range(burst * count, (burst + 1) * count):
                        last = sender.client.publish("in", b'{"seq":%d}' % number, 2)
                    (inward, outward)[burst % 2].cut()
                    last.wait_for_publish(60)
                found = [json.loads(one.payload)["seq"] for one in reader.take(count * bursts)]
                assert reader.nothing()
        assert sorted(found) == list(range(count * bursts))
        assert min(inward.connections, outward.connections) > 1

    def test_birth_and_will_tell_others_whether_a_sink_is_there(self, start_mqtt: StartMqtt) -> None:
        broker = start_mqtt()
        with (
            CuttablePort(broker.port) as port,
            MqttClient(broker.host, broker.port, version=MQTTv5) as reader,
        ):
            reader.subscribe("presence", 1)
            sink = MqttSinkConfig.model_validate(
                {
                    "url": f"mqtt://127.0.0.1:{port.port}",
                    "topic": "out",
                    "client_id": "edge",
                    "birth": {"topic": "presence", "payload": "online"},
                    "will": {"topic": "presence", "payload": "offline"},
                }
            ).build()
            sink.open()
            assert [bytes(one.payload) for one in reader.take(1)] == [b"online"]
            port.cut()
            assert [bytes(one.payload) for one in reader.take(1)] == [b"offline"]
            port.mend()
            assert [bytes(one.payload) for one in reader.take(1)] == [b"online"]
            sink.close()
            assert [bytes(one.payload) for one in reader.take(1)] == [b"offline"]
            assert reader.nothing()

    def test_members_of_a_share_divide_the_messages(self, start_mosquitto: StartMosquitto) -> None:
        broker = start_mosquitto()
        with (
            Reader(source(broker.port, share="group", client_id="one")) as one,
            Reader(source(broker.port, share="group", client_id="two")) as two,
        ):
            for member in (one, two):
                connected_again(member, 0)
            send(broker, 0, 200)
            parts: list[list[int]] = [[], []]
            deadline = time.monotonic() + one.patience
            while sum(map(len, parts)) < 200 and time.monotonic() < deadline:
                for member, part in zip((one, two), parts, strict=True):
                    received = member.poll(timeout=0.02)
                    part += numbers(received)
                    member.acknowledge(received)
            assert sorted(parts[0] + parts[1]) == list(range(200))
            assert all(parts)
        assert left_at(broker, "one") == left_at(broker, "two") == []


def reload_rights(broker: LocalMosquitto, file: Path, text: str) -> None:
    file.write_text(text)
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGHUP)
