"""Services over MQTT while brokers are killed and frozen, sinks are away, and messages are bad. Nothing may be lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError
from cuttable import CuttablePort
from failingkafka import brokers_that_fail
from faultymqtt import FaultyMqtt, Window
from mqttbrokers import MqttUnderTest, StartMosquitto, StartMqtt, left_at, publish, stored
from mqttclient import MqttClient
from mqttledger import Numbered, Publisher, duplicates, in_file, in_payloads
from paho.mqtt.client import MQTTv5
from tcpproxy import TcpProxy
from waiting import until

import streamer
from connectors.contract import Reader
from connectors.memory import memory_topic
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.protocol.fields import written_varint
from connectors.mqtt.protocol.packets import Puback
from connectors.mqtt.protocol.reading import PacketReader, Role
from connectors.mqtt.source import MqttSource
from pipelines.hotpath import HotPath
from protos import sparkplug_pb2 as pb
from streamer.agent.agent import Agent

pytestmark = pytest.mark.slow


SERVICE = """
name: {name}
source: {{type: mqtt, url: "{url}", topics: "proof/{{device}}", codec: json, client_id: proof, {source}}}
pipeline: {pipeline}
batch: {{{batch}}}
sink: {sink}
dead_letter: {{type: memory, topic: {name}-dead}}
errors: {{stop_ratio: 1}}
"""


@pytest.fixture
def ours() -> Iterator[FaultyMqtt]:
    """Our own broker, which can be told to fail."""
    with FaultyMqtt() as broker:
        yield broker


class Run:
    """A service in this process, over topics `proof/DEVICE`; its results are in memory unless it has another sink."""

    def __init__(
        self,
        url: str,
        name: str,
        *,
        source: str = "keepalive: 2",
        pipeline: str = "[]",
        batch: str = "max_records: 64",
        sink: str | None = None,
    ) -> None:
        self.out, self.dead = memory_topic(f"{name}-out"), memory_topic(f"{name}-dead")
        sink = sink or f"{{type: memory, topic: {name}-out, codec: json}}"
        text = SERVICE.format(name=name, url=url, source=source, pipeline=pipeline, batch=batch, sink=sink)
        self.service = streamer.loads(text)

    def found(self) -> Counter[Numbered]:
        return in_payloads(one.value for one in self.out.messages())

    def has(self, expected: set[Numbered]) -> bool:
        return expected <= set(self.found())


@pytest.fixture
def name(tmp_path: Path) -> str:
    return tmp_path.name.replace("_", "-")


def payloads(start: int, stop: int, device: int = 0) -> list[bytes]:
    return [b'{"device":%d,"seq":%d}' % (device, number) for number in range(start, stop)]


def numbered(start: int, stop: int, device: int = 0) -> set[Numbered]:
    return {(device, number) for number in range(start, stop)}


def raw_publish(topic: bytes, packet_id: int, properties: bytes = b"", payload: bytes = b"") -> bytes:
    """A PUBLISH of QoS 1 and MQTT 5, right or wrong."""
    body = len(topic).to_bytes(2, "big") + topic + packet_id.to_bytes(2, "big")
    body += bytes([len(properties)]) + properties + payload
    return b"\x32" + written_varint(len(body)) + body


def at_rest(broker: FaultyMqtt) -> bool:
    """Whether everything is acknowledged."""
    return until(lambda: broker.unacknowledged("proof") == 0)


def begin_session(broker: MqttUnderTest) -> None:
    """The service's session exists already, so that messages published before it connects wait for it."""
    with MqttClient(broker.host, broker.port, "proof", version=MQTTv5, clean=False) as client:
        client.subscribe("proof/+", 1)


def acknowledged(proxy: TcpProxy) -> list[int]:
    """The packet ids of every PUBACK that came from the one client of this proxy, passed on or not."""
    packets = PacketReader(Role.SERVER).feed(bytes(proxy.came["to server"]))
    return [one.packet_id for one in packets if isinstance(one, Puback)]


class Gate:
    """A step at which all records wait until it is open."""

    pipeline = '[{"@type": FUNCTION, function: "gate_steps:wait"}]'

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._file = folder / "open"
        (folder / "gate_steps.py").write_text(
            "import pathlib, time, pipelines\n\n@pipelines.batched\ndef wait(batch):\n"
            f"    while not pathlib.Path({str(self._file)!r}).exists():\n        time.sleep(0.01)\n    return batch\n"
        )
        patch.syspath_prepend(folder)
        patch.delitem(sys.modules, "gate_steps", raising=False)

    def open(self) -> None:
        self._file.touch()


class TestBrokers:
    def test_a_mosquitto_that_is_killed_and_comes_back_with_its_store_loses_nothing(
        self, start_mosquitto: StartMosquitto, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The service has them in hand, unacknowledged, when the broker dies: they come again and are known."""
        gate = Gate(tmp_path, monkeypatch)
        broker = start_mosquitto()
        begin_session(broker)
        run = Run(broker.url, name, pipeline=gate.pipeline)
        with run.service:
            with MqttClient(broker.host, broker.port, version=MQTTv5) as client:
                for one in payloads(0, 300):
                    client.publish("proof/0", one, 1)
                # It would lose messages that it accepted since it last wrote its store.
                stored(broker)
                broker.kill()
            broker.restart()
            with MqttClient(broker.host, broker.port, version=MQTTv5) as client:
                for one in payloads(300, 400):
                    client.publish("proof/0", one, 1)
            gate.open()
            assert until(lambda: run.has(numbered(0, 400)))
        # Acknowledgements that were written to the dead connection are lost.
        assert duplicates(run.found()) < 300

    def test_a_frozen_mosquitto_is_left_and_nothing_is_lost_when_it_goes_on(
        self, start_mosquitto: StartMosquitto, tmp_path: Path, name: str
    ) -> None:
        broker = start_mosquitto()
        begin_session(broker)
        run = Run(broker.url, name, source="keepalive: 1")
        with run.service, Publisher(broker.port, tmp_path / "taken", rate=1000) as publisher:
            assert until(lambda: bool(len(run.out)))
            broker.freeze()
            time.sleep(3)
            broker.thaw()
            time.sleep(0.5)
            taken = publisher.stop()
            assert until(lambda: run.has(taken))

    def test_a_window_smaller_than_the_batch_stands_in_nobodys_way(self, ours: FaultyMqtt, name: str) -> None:
        ours.faults.window = lambda connect: Window(8)
        run = Run(ours.url, name, batch="max_records: 64, max_wait: 30s")
        with run.service:
            assert until(lambda: "proof" in ours.subscribers)
            ours.publish("proof/0", *payloads(0, 400))
            assert until(lambda: run.has(numbered(0, 400)))
            assert at_rest(ours)
        assert ours.most_unacknowledged <= 8
        assert not duplicates(run.found())

    def test_another_client_with_its_name_ends_the_service_which_does_not_fight(
        self, ours: FaultyMqtt, name: str
    ) -> None:
        first, second = Agent(Run(ours.url, name).service), Run(ours.url, f"{name}-2")
        first.start()
        with second.service:
            error = first.join(30).error
            assert until(lambda: "proof" in ours.subscribers)
            ours.publish("proof/0", *payloads(0, 100))
            assert until(lambda: second.has(numbered(0, 100)))
        assert "another client" in str(error)
        assert len(ours.connects) == 2


class TestMessages:
    def test_ten_thousand_poisoned_messages_are_dead_letters_and_leave_no_hole_in_the_window(
        self, start_mqtt: StartMqtt, name: str
    ) -> None:
        """Each kind of poison a hundred times as often as the window is long."""
        poison = [b"", b"{", b"\xff\xfe", b"[1, 2]", b'{"device": NaNa}', b"null", b'{"device":1', b"\0" * 1000]
        broker = start_mqtt()
        begin_session(broker)
        run = Run(broker.url, name, source="window: 50")
        with run.service:
            for start in range(0, 100, 10):
                bad = (poison[number % len(poison)] for number in range(1000))
                publish(broker, "proof/0", *bad, *payloads(start, start + 10))
            assert until(lambda: len(run.dead) >= 10_000)
            assert until(lambda: run.has(numbered(0, 100)))
        assert left_at(broker, "proof") == []
        assert len(run.dead) == 10_000
        assert not duplicates(run.found())
        if isinstance(broker, FaultyMqtt):
            assert broker.most_unacknowledged <= 50
            assert [one.client_id for one in broker.connects].count("proof") == 3

    @pytest.mark.parametrize("into", ["", "into: {content_type: kind, levels.device: machine}"])
    def test_a_message_whose_topic_or_property_is_wrong_is_a_dead_letter_and_its_neighbours_go_on(
        self, ours: FaultyMqtt, name: str, into: str, hot_path: HotPath
    ) -> None:
        """Whether or not the service reads the malformed message: a broker that accepted it would send it for ever."""
        run = Run(ours.url, name, source=into)
        with run.service:
            assert until(lambda: "proof" in ours.subscribers)
            ours.publish("proof/0", *payloads(0, 5))
            wrong = [
                raw_publish(b"proof/\xff", 900, payload=payloads(900, 901)[0]),
                # Content Type, which may come once, twice.
                raw_publish(b"proof/0", 901, b"\x03\0\x01a\x03\0\x01b", payloads(901, 902)[0]),
                # A property that is none.
                raw_publish(b"proof/0", 902, b"\x7f\0", payloads(902, 903)[0]),
                raw_publish(b"proof/#", 903, payload=payloads(903, 904)[0]),
            ]
            ours.send_raw("proof", b"".join(wrong))
            ours.publish("proof/0", *payloads(5, 10))
            assert until(lambda: len(run.dead) == 4 and len(run.out) == 10)
            assert until(lambda: {900, 901, 902, 903} <= set(ours.acknowledgements))
            assert at_rest(ours)
        assert set(run.found()) == numbered(0, 10)
        letters = run.dead.messages()
        assert [in_payloads([letter.value]) for letter in letters] == [Counter([(0, n)]) for n in range(900, 904)]
        told = [dict(letter.headers or ())["streamer-text"] for letter in letters]
        assert all(b"breaks the rules" in (one or b"") for one in told)
        assert len(ours.connects) == 1

    def test_a_message_larger_than_the_source_takes_is_passed_over_over_3_1_1(self, ours: FaultyMqtt) -> None:
        """A broker of MQTT 5 does not send it."""
        fields = {"url": ours.url, "topics": "proof/+", "client_id": "proof", "version": "3.1.1", "max_message": 1000}
        source = MqttSource(MqttSourceConfig.model_validate(fields))
        with Reader(source, patience=3) as reader:
            ours.publish("proof/0", b"before", bytes(300_000), b"after")
            received = reader.take(2)
            assert [one.message.value for one in received] == [b"before", b"after"]
            reader.acknowledge(received)
            assert at_rest(ours)
        assert source.counts.too_large == 1

    def test_an_edge_node_whose_births_were_missed_sends_them_again(self, ours: FaultyMqtt, name: str) -> None:
        """Aliases mean something again from then on; the messages before are dead letters."""
        described = pb.Metric(name="Speed", alias=7, datatype=pb.DOUBLE, double_value=1.0)
        reading = pb.Payload(metrics=[pb.Metric(alias=7, double_value=99.0)]).SerializeToString()
        topics, codec = "[spBv1.0/plant/NBIRTH/+, spBv1.0/plant/NDATA/+]", "{type: sparkplug, rebirth: 1s}"
        service = streamer.loads(f"""
name: {name}
source: {{type: mqtt, url: "{ours.url}", topics: {topics}, codec: {codec}, client_id: proof}}
pipeline: []
sink: {{type: memory, topic: {name}-out, codec: json}}
dead_letter: {{type: memory, topic: {name}-dead}}
errors: {{stop_ratio: 1}}
""")
        out, dead = memory_topic(f"{name}-out"), memory_topic(f"{name}-dead")
        with MqttClient(ours.host, ours.port, "edge") as edge, service:
            assert until(lambda: "proof" in ours.subscribers)
            edge.subscribe("spBv1.0/plant/NCMD/edge", 0)
            edge.publish("spBv1.0/plant/NDATA/edge", reading, 1)
            (command,) = edge.take(1)
            (metric,) = pb.Payload.FromString(bytes(command.payload)).metrics
            assert (metric.name, metric.boolean_value) == ("Node Control/Rebirth", True)
            edge.publish("spBv1.0/plant/NBIRTH/edge", pb.Payload(metrics=[described], seq=0).SerializeToString(), 0)
            edge.publish("spBv1.0/plant/NDATA/edge", reading, 1)
            assert until(lambda: len(out) == 2)
        assert len(dead) == 1
        assert [json.loads(one.value or b"") for one in out.messages()] == [{"Speed": 1.0}, {"Speed": 99.0}]

    def test_an_exception_in_a_step_makes_a_dead_letter_and_the_loop_goes_on(
        self, start_mqtt: StartMqtt, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "raising_steps.py").write_text(
            "def odd(data):\n    if data['seq'] % 2:\n        raise OSError('odd')\n    return data\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        broker = start_mqtt()
        begin_session(broker)
        run = Run(broker.url, name, pipeline='[{"@type": FUNCTION, function: "raising_steps:odd"}]')
        with run.service:
            publish(broker, "proof/0", *payloads(0, 1000))
            assert until(lambda: len(run.out) == 500 and len(run.dead) == 500)
        assert left_at(broker, "proof") == []
        assert set(run.found()) == {(0, number) for number in range(0, 1000, 2)}


class TestSinks:
    def test_nothing_is_acknowledged_when_a_sink_breaks_for_good(
        self, ours: FaultyMqtt, name: str, tmp_path: Path
    ) -> None:
        out = tmp_path / "out.jsonl"
        agent = Agent(Run(ours.url, name, sink=f"{{type: file, path: {out}, format: jsonl}}").service)
        agent.start()
        assert until(lambda: "proof" in ours.subscribers)
        ours.publish("proof/0", *payloads(0, 10))
        assert until(lambda: in_file(out).total() == 10)
        assert at_rest(ours)
        out.unlink()
        ours.publish("proof/0", *payloads(10, 20))
        assert "out.jsonl" in str(agent.join(60).error)
        assert ours.unacknowledged("proof") == 10

    def test_a_kafka_sink_that_fails_for_good_ends_the_service_and_nothing_is_acknowledged(
        self, start_mqtt: StartMqtt, name: str
    ) -> None:
        """The broker keeps everything for the next process."""
        broker = start_mqtt()
        begin_session(broker)
        with brokers_that_fail({0: [KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER] * 5}) as to:
            agent = Agent(Run(broker.url, name, sink=f"{{type: kafka, bootstrap: '{to}', topic: out}}").service)
            agent.start()
            publish(broker, "proof/0", *payloads(0, 100))
            summary = agent.join(60)
        assert summary.reason == "failed"
        assert "sequence desynchronization" in str(summary.error)
        run = Run(broker.url, name)
        with run.service:
            assert until(lambda: run.has(numbered(0, 100)))
        assert left_at(broker, "proof") == []
        assert not duplicates(run.found())

    def test_acknowledgements_leave_in_the_order_of_arrival_though_a_later_batch_is_done_first(
        self, start_mqtt: StartMqtt, name: str
    ) -> None:
        """One of two sinks stands still: our broker closes the connection at a PUBACK that is out of order."""
        broker = start_mqtt(window=200)
        begin_session(broker)
        if isinstance(broker, FaultyMqtt):
            broker.faults.strict = True
        with FaultyMqtt() as slow, TcpProxy(broker.port, keeps=True) as proxy:
            sinks = f"""
  - {{type: mqtt, name: slow, url: "{slow.url}", topic: out, when: {{device: 0}}, codec: json}}
  - {{type: memory, topic: {name}-out, when: {{device: 1}}, codec: json}}"""
            url = f"mqtt://127.0.0.1:{proxy.port}"
            run = Run(url, name, source="window: 200", sink=sinks, batch="max_records: 10, max_wait: 1ms")
            with run.service:
                assert until(lambda: bool(slow.clients and proxy.connections))
                slow.freeze()
                publish(broker, "proof/0", *payloads(0, 10, 0))
                for start in range(0, 100, 10):
                    publish(broker, "proof/1", *payloads(start, start + 10, 1))
                assert until(lambda: len(run.out) == 100)
                assert acknowledged(proxy) == []
                slow.thaw()
                assert until(lambda: len(acknowledged(proxy)) == 110)
        assert acknowledged(proxy) == list(range(1, 111))
        assert proxy.connections == 1
        assert left_at(broker, "proof") == []

    def test_records_are_acknowledged_while_their_results_wait_in_an_outbox_and_leave_in_order(
        self, ours: FaultyMqtt, mqtt_broker: Any, name: str, tmp_path: Path
    ) -> None:
        sink_is_away(ours, mqtt_broker, name, tmp_path, 2000, 0)

    @pytest.mark.soak
    @pytest.mark.timeout(600)
    def test_an_outbox_keeps_results_in_order_while_the_broker_is_away_for_a_minute(
        self, ours: FaultyMqtt, mqtt_broker: Any, name: str, tmp_path: Path
    ) -> None:
        sink_is_away(ours, mqtt_broker, name, tmp_path, 30_000, 60)


def sink_is_away(ours: FaultyMqtt, sink: Any, name: str, folder: Path, count: int, seconds: float) -> None:
    """The broker of the sink cannot be reached for so long, while so many messages come."""
    with MqttClient(sink.host, sink.port, version=MQTTv5) as reader, CuttablePort(sink.port) as port:
        reader.subscribe(f"{name}/out", 1)
        text = (
            f'{{type: mqtt, url: "mqtt://127.0.0.1:{port.port}", topic: {name}/out, codec: json, '
            f"outbox: {{path: {folder / 'kept.outbox'}}}}}"
        )
        run = Run(ours.url, name, sink=text)
        with run.service:
            assert until(lambda: "proof" in ours.subscribers)
            port.cut()
            for start in range(0, count, 1000):
                ours.publish("proof/0", *payloads(start, start + 1000))
                time.sleep(seconds * 1000 / count)
            assert at_rest(ours)
            assert reader.nothing(0.2)
            port.mend()
            found: list[Numbered] = []
            while len(found) < count:
                found += in_payloads(one.payload for one in reader.take(1000))
    assert found == [(0, number) for number in range(count)]


class Process:
    """`streamer run` on `service.yaml` in a process of its own; its results are in `out.jsonl`."""

    def __init__(self, folder: Path, url: str, **fields: str) -> None:
        usual = {"source": "window: 500", "pipeline": "[]", "batch": "max_records: 64"}
        sink = "{type: file, path: out.jsonl, format: jsonl}"
        (folder / "service.yaml").write_text(SERVICE.format(name="proof", url=url, sink=sink, **{**usual, **fields}))
        self.out = folder / "out.jsonl"
        command = [sys.executable, "-m", "streamer", "run", "service.yaml"]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)


class TestProcesses:
    def test_a_kill_between_sink_and_acknowledgement_repeats_only_unacknowledged_messages(
        self, start_mqtt: StartMqtt, tmp_path: Path
    ) -> None:
        broker = start_mqtt(window=100)
        begin_session(broker)
        with (
            TcpProxy(broker.port, keeps=True) as proxy,
            Process(tmp_path, f"mqtt://127.0.0.1:{proxy.port}") as one,
        ):
            publish(broker, "proof/0", *payloads(0, 20))
            assert until(lambda: in_file(one.out).total() == 20)
            assert until(lambda: len(acknowledged(proxy)) == 20)
            proxy.swallow(direction="to server")
            publish(broker, "proof/0", *payloads(20, 50))
            assert until(lambda: len(acknowledged(proxy)) == 50)
        with (
            TcpProxy(broker.port, keeps=True) as proxy,
            Process(tmp_path, f"mqtt://127.0.0.1:{proxy.port}") as one,
        ):
            assert until(lambda: in_file(one.out).total() == 80)
            assert until(lambda: len(acknowledged(proxy)) == 30)
        found = in_file(one.out)
        assert {number for (_, number), times in found.items() if times == 2} == set(range(20, 50))
        assert set(found) == numbered(0, 50)

    def test_a_slow_service_takes_no_more_memory_while_a_broker_has_a_mountain_for_it(
        self, start_mqtt: StartMqtt, tmp_path: Path
    ) -> None:
        """120 MB wait; 2 MB a batch are under way."""
        broker = start_mqtt(persistence="false")
        (tmp_path / "slow_steps.py").write_text(
            "import time\nimport pipelines\n\n@pipelines.batched\ndef slow(batch):\n    time.sleep(0.1)\n"
            "    return batch.without(['filler'])\n"
        )
        size, count = 100_000, 1200
        begin_session(broker)
        pipeline = '[{"@type": FUNCTION, function: "slow_steps:slow"}]'
        fields = {"source": "window: 100", "batch": "max_records: 20", "pipeline": pipeline}
        filler = b"x" * size
        publish(
            broker,
            "proof/0",
            *(b'{"device":0,"seq":%d,"filler":"%b"}' % (number, filler) for number in range(count)),
            b'{"device":0,"seq":%d}' % count,
        )
        with Process(tmp_path, broker.url, **fields) as one:
            assert until(lambda: in_file(one.out).total() > 100)
            before = most = psutil.Process(one.process.pid).memory_info().rss
            while in_file(one.out).total() < 600:
                most = max(most, psutil.Process(one.process.pid).memory_info().rss)
                time.sleep(0.05)
        assert most - before < 60 << 20


def test_the_part_of_a_member_of_a_share_that_dies_waits_for_it(start_mosquitto: StartMosquitto) -> None:
    """What mosquitto does as long as the session of the dead member is kept: its part of what comes is its part still,
    also of what comes after its death. So `shard`, or a short `expiry`, is better than a share that loses members.
    """
    broker = start_mosquitto()

    def member(name: str) -> MqttClient:
        return MqttClient(broker.host, broker.port, name, version=MQTTv5, clean=False, manual=True)

    with member("one") as one, MqttClient(broker.host, broker.port, version=MQTTv5) as publisher:
        two = member("two").__enter__()
        for each in (one, two):
            assert each.subscribe("$share/group/proof/+", 1) == 1
        two.cut()
        for payload in payloads(0, 20):
            publisher.publish("proof/0", payload, 1)
        with member("two") as again:
            parts: list[set[Numbered]] = [set(), set()]

            def all_came() -> bool:
                for client, part in zip((one, again), parts, strict=True):
                    part |= set(in_payloads(message.payload for message in client.arrived()))
                return parts[0] | parts[1] == numbered(0, 20)

            assert until(all_came)
        assert all(parts)
        assert not parts[0] & parts[1]


def test_when_the_session_of_a_dead_member_of_a_share_ends_its_part_is_gone(start_mosquitto: StartMosquitto) -> None:
    """With mosquitto no other member gets the messages that it held for the member. The others get all later ones."""
    broker = start_mosquitto()

    def member(name: str, expiry: int) -> MqttClient:
        return MqttClient(broker.host, broker.port, name, version=MQTTv5, clean=False, manual=True, expiry=expiry)

    with member("one", 60) as one, MqttClient(broker.host, broker.port, version=MQTTv5) as publisher:
        two = member("two", 1).__enter__()
        for each in (one, two):
            assert each.subscribe("$share/group/proof/+", 1) == 1
        two.cut()
        for payload in payloads(0, 20):
            publisher.publish("proof/0", payload, 1)
        before = set(in_payloads(message.payload for message in one.listen(0.5)))
        assert 0 < len(before) < 20
        deadline = time.monotonic() + 60
        number = 20
        # Until two messages in a row come to the one that is left: then the other is no member any more.
        came: set[Numbered] = set()
        while not {(0, number - 2), (0, number - 1)} <= came and time.monotonic() < deadline:
            time.sleep(0.5)
            for payload in payloads(number, number + 4):
                publisher.publish("proof/0", payload, 1)
            number += 4
            came = set(in_payloads(message.payload for message in one.listen(0.2)))
        assert numbered(number - 4, number) <= came
        with member("two", 1) as again:
            assert not again.session_present
            assert again.listen(0.5) == []
