"""The endpoint between its clients and a service: acknowledgements, answers, and bounds."""

from __future__ import annotations

import queue
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mqttclient import MqttClient, publish_properties
from paho.mqtt.client import MQTTv5, MQTTv311
from waiting import until

import streamer
from connectors.contract.reader import Reader, Received
from connectors.mqtt.endpoint import MqttEndpointSinkConfig, MqttEndpointSourceConfig
from connectors.mqtt.endpoint.sink import MqttEndpointSink
from connectors.mqtt.endpoint.source import MqttEndpointSource
from connectors.mqtt.protocol.packets import V5, V311, Connect, Puback, Publish, Pubrec, Pubrel
from connectors.mqtt.protocol.writing import encode
from connectors.records import Messages
from connectors.source import LaneEnded
from pipelines.errors import ConnectorError, DefinitionError, MissingPackageError
from streamer.agent.running import agent_of

Serve = Callable[..., tuple[Reader, MqttEndpointSource]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """`serve(topics=["a/+"])` opens an endpoint with these fields; a reader of it, and its source."""
    sources: list[MqttEndpointSource] = []

    def begin(**fields: Any) -> tuple[Reader, MqttEndpointSource]:
        config = MqttEndpointSourceConfig(listen="127.0.0.1:0", **{"name": uuid.uuid4().hex, **fields})
        source = MqttEndpointSource(config)
        reader = Reader(source)
        reader.__enter__()
        sources.append(source)
        return reader, source

    yield begin
    for source in sources:
        source.close()


def client(source: MqttEndpointSource, client_id: str = "device", **options: Any) -> MqttClient:
    host, port = source.address
    return MqttClient(host, port, client_id, **options)


def answering(source: MqttEndpointSource, **fields: Any) -> MqttEndpointSink:
    sink = MqttEndpointSink(MqttEndpointSinkConfig(**fields).in_service("", [source.config]))
    sink.open()
    return sink


def messages(*values: bytes, key: bytes | None = b"device", topic: str = "t-out") -> Messages:
    count = len(values)
    return Messages(np.arange(count), list(values), None if key is None else [key] * count, topics=[topic] * count)


def soon() -> float:
    return time.monotonic() + 30


class Bare:
    """A connection that sends the packets of a test."""

    def __init__(self, source: MqttEndpointSource, version: int = 4) -> None:
        self.socket = socket.create_connection(source.address)
        self.socket.settimeout(30)
        self.send(encode(Connect("bare", version=V5 if version == 5 else V311), V311))
        self.read(2)
        self.read(2 if version == 4 else 1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def read(self, count: int) -> bytes:
        found = b""
        while len(found) < count and (more := self.socket.recv(count - len(found))):
            found += more
        return found

    def nothing(self) -> bool:
        self.socket.settimeout(0.3)
        try:
            return self.socket.recv(1) is None
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(30)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [MQTTv311, MQTTv5], ids=["3.1.1", "5.0"])
def test_a_message_is_acknowledged_when_it_is_done_and_not_before(qos: int, version: int, serve: Serve) -> None:
    reader, source = serve()
    with client(source, version=version) as device:
        sent = device.client.publish("t", b"x", qos)
        received = reader.take(1)
        sent.wait_for_publish(0.3)
        assert not sent.is_published()
        reader.acknowledge(received)
        sent.wait_for_publish(30)
        assert sent.is_published()


@pytest.mark.parametrize(("tombstones", "empty"), [("forward", b""), ("skip", None)])
def test_an_empty_message_is_a_tombstone_where_the_service_says_what_becomes_of_those(
    tombstones: str, empty: bytes | None, serve: Serve
) -> None:
    reader, source = serve(tombstones=tombstones)
    with client(source) as device:
        for payload in (b"x", b""):
            device.client.publish("t", payload, 1)
        assert [one.message.value for one in reader.take(2)] == [b"x", empty]


def test_the_log_says_which_client_is_sent_away_or_sends_elsewhere_and_why_once(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    _, source = serve(topics=["t"])
    with client(source, "pump-7", version=MQTTv311) as device:
        for _ in range(3):
            device.client.publish("elsewhere", b"x", 1).wait_for_publish(30)
    bare = Bare(source)
    bare.send(b"\x00\x00")
    assert until(lambda: "disconnected" in caplog.text)
    told = [record.getMessage() for record in caplog.records if "client" in record.getMessage()]
    assert len(told) == 2
    assert "client 'pump-7' at 127.0.0.1:" in told[0]
    assert "its message for 'elsewhere' is refused, as no filter of `topics` matches" in told[0]
    assert "client 'bare' at 127.0.0.1:" in told[1]
    assert "disconnected: MQTT: " in told[1]


def test_the_log_says_that_two_devices_have_the_same_client_id(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    _, source = serve()
    with client(source, "pump-7"), client(source, "pump-7"):
        assert until(lambda: "each device needs a client id of its own" in caplog.text)


def test_a_refused_login_is_in_the_log_and_thousands_of_them_do_not_flood_it(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    _, source = serve(users={"known": "secret"})
    for number in range(60):
        refused = socket.create_connection(source.address)
        refused.sendall(encode(Connect(f"device-{number}", version=V311), V311))
        refused.settimeout(30)
        assert refused.recv(4)[3] == 4
        refused.close()
    told = [record.getMessage() for record in caplog.records if "bad user name or password" in record.getMessage()]
    assert len(told) == 20
    assert "client 'device-0' at 127.0.0.1:" in told[0]


def test_acknowledgements_leave_in_the_order_of_arrival_only_for_what_is_done(serve: Serve) -> None:
    reader, source = serve()
    device = Bare(source)
    for packet_id in (7, 3, 9):
        device.send(encode(Publish("t", b"", 1, packet_id=packet_id), V311))
    received = reader.take(3)
    reader.acknowledge(received[:2])
    assert device.read(8) == encode(Puback(7), V311) + encode(Puback(3), V311)
    assert device.nothing()
    reader.acknowledge(received)
    assert device.read(4) == encode(Puback(9), V311)


def test_a_message_of_qos_2_comes_once_however_often_it_is_sent(serve: Serve) -> None:
    reader, source = serve()
    device = Bare(source)
    for dup in (False, True, True):
        device.send(encode(Publish("t", b"once", 2, dup=dup, packet_id=5), V311))
    received = reader.take(1) + reader.listen(0.2)
    assert len(received) == 1
    reader.acknowledge(received)
    assert device.read(4) == encode(Pubrec(5), V311)
    # As if that had been lost on its way.
    device.send(encode(Publish("t", b"once", 2, dup=True, packet_id=5), V311))
    assert device.read(4) == encode(Pubrec(5), V311)
    device.send(encode(Pubrel(5), V311))
    assert device.read(4) == b"\x70\x02\x00\x05"
    device.send(encode(Publish("t", b"new", 2, packet_id=5), V311))
    assert [one.message.value for one in reader.take(1)] == [b"new"]


def test_a_packet_id_in_use_for_another_message_ends_the_connection(serve: Serve) -> None:
    reader, source = serve()
    device = Bare(source)
    device.send(encode(Publish("t", b"1", 1, packet_id=5), V311) + encode(Publish("t", b"2", 1, packet_id=5), V311))
    assert device.read(1) == b""
    assert [one.message.value for one in reader.take(1)] == [b"1"]


def test_when_a_client_goes_away_its_lane_ends_and_what_is_in_hand_is_finished(serve: Serve) -> None:
    reader, source = serve()
    with client(source) as device:
        for number in range(5):
            device.client.publish("t", b"%d" % number, 1)
        first = reader.take(2, max_records=2)
        assert until(lambda: source.counts.received == 5)
        device.cut()
    rest = reader.take(3)
    assert [one.message.value for one in first + rest] == [b"0", b"1", b"2", b"3", b"4"]
    assert reader.until(lambda r: bool(r.events(LaneEnded))) == []
    assert [(event.lane, event.finish) for event in reader.events(LaneEnded)] == [(first[0].lane, True)]
    # Too late, as the client is gone: nothing happens.
    reader.acknowledge(first + rest)
    with client(source) as device:
        device.client.publish("t", b"again", 1)
        (again,) = reader.take(1)
        assert again.lane.epoch > first[0].lane.epoch


def test_a_second_client_of_the_same_id_takes_over(serve: Serve) -> None:
    reader, source = serve()
    with client(source, version=MQTTv5) as first:
        first.client.publish("t", b"old", 1)
        old = reader.take(1)
        with client(source, version=MQTTv5) as second:
            assert first.ended.get(timeout=30).value == 0x8E
            second.client.publish("t", b"new", 1)
            new = reader.take(1)
            assert new[0].lane != old[0].lane


def test_a_client_id_belongs_to_the_user_who_has_it(serve: Serve) -> None:
    """Its answers go to the client id: nobody else may have it, not even when its user is not connected."""
    _, source = serve(users={"press": "p", "saw": "s"})
    for version in (MQTTv5, MQTTv311):
        device_id = f"press-{version}"
        with client(source, device_id, version=version, login=("press", "p")) as press:
            with pytest.raises(ConnectionError, match=r"(?i)identifier"):
                client(source, device_id, version=version, login=("saw", "s")).__enter__()
            press.client.publish("t", b"mine", 1)
            assert source.poll(1, 1 << 20, 30).extras_of(0)["user"] == "press"
        with pytest.raises(ConnectionError, match=r"(?i)identifier"):
            client(source, device_id, version=version, login=("saw", "s")).__enter__()
        with client(source, device_id, version=version, login=("press", "p")):
            pass


def test_without_users_no_user_is_told_whatever_name_a_client_gives(serve: Serve) -> None:
    _, source = serve()
    with client(source, login=("root", "x")) as device:
        device.client.publish("t", b"x", 1)
        assert "user" not in source.poll(1, 1 << 20, 30).extras_of(0)


def test_connections_that_never_log_in_make_room_for_those_that_do(serve: Serve) -> None:
    _, source = serve(connections=20, users={"me": "secret"})
    with client(source, "first", login=("me", "secret")) as first:
        silent = [socket.create_connection(source.address) for _ in range(60)]
        with client(source, "second", login=("me", "secret")):
            assert first.ended.empty()
            assert source.counts.connected == 2
        for one in silent:
            one.close()


def test_one_address_has_no_more_connections_than_per_address(serve: Serve) -> None:
    _, source = serve(per_address=2)
    with client(source, "first") as first, client(source, "second") as second:
        with pytest.raises((ConnectionError, OSError)):
            client(source, "third", seconds=2).__enter__()
        assert first.ended.empty()
        assert second.ended.empty()
    assert until(lambda: source.counts.connected == 0)
    with client(source, "third"):
        pass


def test_only_topics_that_are_listened_to_are_taken_and_their_levels_have_names(serve: Serve) -> None:
    _, source = serve(topics=["factory/{line}/+"])
    with client(source, version=MQTTv5) as device:
        told: queue.SimpleQueue[int] = queue.SimpleQueue()
        device.client.on_publish = lambda c, u, mid, reason, properties: told.put(reason.value)
        device.publish("elsewhere", b"x", 1)
        device.publish("elsewhere", b"x", 2)
        # paho goes on with the handshake of a message of QoS 2 that was refused, and is told that there is none.
        assert [told.get(timeout=30) for _ in range(2)] == [0x87, 0x92]
        device.client.publish("factory/7/a", b"y", 1)
        records = source.poll(1, 1 << 20, 30)
        context = records.context(0)
        assert (context.topic, context.key, context.extras["levels.line"]) == ("factory/7/a", b"device", "7")
        assert (context.extras["qos"], context.extras["retained"]) == (1, False)
    with client(source, "old", version=MQTTv311) as device:
        # It cannot be told, so it is acknowledged.
        device.publish("elsewhere", b"x", 1)
        device.publish("elsewhere", b"x", 2)
    assert source.counts.refused == 4


def test_properties_become_metadata(serve: Serve) -> None:
    _, source = serve()
    with client(source, version=MQTTv5) as device:
        told: dict[str, Any] = {"ContentType": "a/b", "ResponseTopic": "back", "CorrelationData": b"\1\2"}
        device.client.publish("t", b"", 0)
        device.client.publish("t", b"x", 1, properties=None)
        records = source.poll(2, 1 << 20, 30)
        assert not any(name in records.extras_of(0) for name in ("content_type", "correlation"))
    with client(source, version=MQTTv5) as device:
        made = publish_properties(UserProperty=[("a", "1"), ("a", "2")], **told)
        device.client.publish("t", b"", 1, properties=made)
        found = source.poll(1, 1 << 20, 30)
        extras = found.extras_of(0)
        assert (extras["content_type"], extras["response_topic"], extras["correlation"]) == ("a/b", "back", b"\1\2")
        assert found.context(0).headers == (("a", b"1"), ("a", b"2"))


def test_a_client_without_the_right_login_is_refused(serve: Serve) -> None:
    _, source = serve(users={"me": "secret"})
    for login in (None, ("me", "wrong"), ("you", "secret"), ("", "")):
        with pytest.raises(ConnectionError, match=r"(?i)bad user ?name"):
            client(source, login=login).__enter__()
    with client(source, login=("me", "secret")):
        pass


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [MQTTv311, MQTTv5], ids=["3.1.1", "5.0"])
def test_answers_go_to_their_client_and_are_confirmed_when_it_has_them(qos: int, version: int, serve: Serve) -> None:
    _, source = serve()
    sink = answering(source, qos=qos)
    with client(source, version=version) as device, client(source, "other", version=version) as other:
        other.subscribe("#", 2)
        values = [b"%03d" % number for number in range(300)]
        assert sink.send(messages(*values), soon()) == {}
        assert [(m.payload, m.topic, m.qos) for m in device.take(300)] == [(v, "t-out", qos) for v in values]
        assert sink.barrier(soon()) == {}
        assert sorted(np.concatenate(sink.confirmed()).tolist()) == list(range(300))
        assert sink.behind() == 0
        assert other.nothing()
    sink.close()


def test_an_answer_that_is_not_acknowledged_is_not_confirmed_until_its_client_is_given_up(serve: Serve) -> None:
    _, source = serve()
    sink = answering(source, qos=1, timeout=1.5)
    with client(source, manual=True) as device:
        sink.send(messages(b"x"), soon())
        device.take(1)
        with pytest.raises(ConnectorError, match="1 answers were not acknowledged") as error:
            sink.barrier(time.monotonic() + 0.3)
        assert error.value.retriable
        assert sink.behind() > 0
        assert sink.barrier(soon()) == {}
        device.ended.get(timeout=30)
    assert source.counts.unanswered == 1


def test_an_answer_to_a_client_that_is_gone_is_counted_and_holds_nothing_up(serve: Serve) -> None:
    _, source = serve()
    sink = answering(source)
    assert sink.send(messages(b"x", b"y", key=b"nobody"), soon()) == {}
    assert sink.barrier(soon()) == {}
    assert source.counts.unanswered == 2


def test_a_result_without_its_clients_id_or_with_no_topic_is_refused_alone(serve: Serve) -> None:
    _, source = serve()
    sink = answering(source)
    block = messages(b"a", b"b", b"c")
    block.keys = [b"device", None, b"device"]
    block.topics = ["t-out", "t-out", "a/#"]
    refused = sink.send(block, soon())
    assert sorted(refused) == [1, 2]
    assert "has no receiver" in str(refused[1])
    assert "not a topic" in str(refused[2])
    assert not any(error.retriable for error in refused.values())


def test_a_full_sink_waits_and_then_refuses_the_rest(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.mqtt.endpoint.sink.MAX_IN_FLIGHT", 10_000)
    _, source = serve()
    sink = answering(source, qos=1)
    with client(source, manual=True) as device:
        refused = sink.send(messages(*[bytes(1000)] * 30), time.monotonic() + 0.5)
        assert refused
        assert all(error.retriable for error in refused.values())
        assert list(refused) == list(range(30 - len(refused), 30))
        for message in device.take(30 - len(refused)):
            device.acknowledge(message)
        assert sink.barrier(soon()) == {}


def test_a_client_that_takes_no_large_packets_gets_none(serve: Serve) -> None:
    _, source = serve()
    sink = answering(source)
    with client(source, version=MQTTv5, properties={"MaximumPacketSize": 100}) as device:
        sink.send(messages(bytes(200), b"small"), soon())
        assert [m.payload for m in device.take(1)] == [b"small"]
        assert sink.barrier(soon()) == {}


@pytest.mark.parametrize("qos", [0, 1])
def test_a_flood_is_held_up_and_arrives_complete(qos: int, serve: Serve) -> None:
    reader, source = serve(max_held="1MiB")
    device = client(source)
    device.client.max_inflight_messages_set(1000)
    with device:
        for number in range(300):
            device.client.publish("t", (b"%04d" % number).ljust(20_000), qos)
        time.sleep(0.5)
        assert source.held < 2 << 20
        received: list[Received] = []
        while len(received) < 300:
            some = reader.take(1) + reader.poll(max_records=50)
            reader.acknowledge(some)
            received += some
        assert [one.message.value[:4] for one in received] == [b"%04d" % number for number in range(300)]


def test_a_client_that_floods_does_not_keep_others_waiting(serve: Serve) -> None:
    reader, source = serve()
    with client(source, "loud") as loud, client(source, "quiet") as quiet:
        for _ in range(800):
            loud.client.publish("loud", b"x", 0)
        assert until(lambda: source.held > 50_000)
        quiet.client.publish("quiet", b"y", 0)
        assert until(lambda: source.counts.received == 801)
        assert b"y" in [one.message.value for one in reader.poll(max_records=20)]


def test_a_message_comes_again_after_a_rewind_and_is_acknowledged_then(serve: Serve) -> None:
    reader, source = serve()
    with client(source) as device:
        sent = device.client.publish("t", b"x", 1)
        (first,) = reader.take(1)
        source.rewind([first.lane])
        again = reader.take(1)
        assert again[0].message.value == b"x"
        assert again[0].lane.epoch > first.lane.epoch
        reader.acknowledge(again)
        sent.wait_for_publish(30)
        assert sent.is_published()


def test_a_port_that_is_taken_is_named(serve: Serve) -> None:
    _, source = serve()
    host, port = source.address
    with pytest.raises(ConnectorError, match=f"cannot listen on {host}:{port}"):
        MqttEndpointSourceConfig(listen=f"{host}:{port}", name="second").build().open()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"listen": "1883"}, "host:port is needed"),
        ({"listen": "localhost:70000"}, "host:port is needed"),
        ({"topics": ["a#"]}, "wildcard #"),
        ({"topics": ["$share/g/t"]}, "nothing is shared here"),
        ({"tls": {"key": "k.pem"}}, "cert names none"),
        ({"window": 0}, "greater than or equal to 1"),
    ],
)
def test_wrong_fields_say_what_is_wrong(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        MqttEndpointSourceConfig(**fields)


def test_a_sink_needs_an_endpoint_to_answer_for() -> None:
    with pytest.raises(DefinitionError, match="the service has no mqtt_endpoint source; for a broker use type: mqtt"):
        MqttEndpointSinkConfig().build()
    source = MqttEndpointSourceConfig(name="one").in_service("s")
    with pytest.raises(DefinitionError, match='no mqtt_endpoint source "two"'):
        MqttEndpointSinkConfig(source="two").in_service("s", [source]).build()
    with pytest.raises(DefinitionError, match=r"use \{record.topic\} alone"):
        MqttEndpointSinkConfig(topic="{label}").for_dead_letters()


def test_a_certificate_that_has_to_be_made_needs_cryptography(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MissingPackageError, match=r"tls\.cert.*needs the package cryptography"):
        serve(tls={})


def test_a_certificate_file_that_is_wrong_is_named(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "c.pem").write_text("nonsense")
    with pytest.raises(ConnectorError, match=r"tls: .*check cert .*c\.pem"):
        serve(tls={"cert": tmp_path / "c.pem"})


def test_a_service_of_its_own_answers_and_acknowledges_what_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        """
name: hello
source: {type: mqtt_endpoint, listen: "127.0.0.1:0", topics: "ask/{who}", codec: json, into: {levels.who: who}}
pipeline: {steps: [{"@type": LOGGING}]}
sink: {type: mqtt_endpoint, topic: "answer/{record.levels.who}", codec: json}
dead_letter: {type: mqtt_endpoint}
"""
    )
    service = streamer.load(path)
    with service:
        source = next(iter(_sources(service)))
        with client(source, version=MQTTv5) as device:
            device.publish("ask/me", b'{"x": 1}', 1)
            (answer,) = device.take(1)
            assert (answer.topic, answer.qos, answer.retain) == ("answer/me", 1, False)
            assert b'"who"' in answer.payload
            device.publish("ask/me", b"bad", 1)
            (answer,) = device.take(1)
            assert answer.topic == "ask/me-out"
            assert b"errorMessage" in answer.payload


REQUESTS = """
name: requests
source: {{type: mqtt_endpoint, listen: "127.0.0.1:0", topics: "ask/+", codec: json}}
pipeline: {{steps: [{{"@type": LOGGING}}]}}
sink: {{type: mqtt_endpoint, codec: json, {sink}}}
dead_letter: {{type: mqtt_endpoint}}
errors: {{stop_ratio: 1}}
"""


@pytest.mark.parametrize("sink", ["qos: 1", "headers: false"])
def test_an_answer_goes_to_the_response_topic_of_its_request_with_its_correlation_data(sink: str) -> None:
    """Results and failures go to the response topic, with correlation data, as MQTT 5 demands; neither is a user
    property. A request without a response topic is answered on `topic`."""
    with streamer.loads(REQUESTS.format(sink=sink)) as service:
        source = next(iter(_sources(service)))
        with client(source, version=MQTTv5) as device:
            device.publish("ask/1", b'{"x": 1}', 1, ResponseTopic="for/me", CorrelationData=b"\x00\xff")
            device.publish("ask/2", b"bad", 1, ResponseTopic="for/me", CorrelationData=b"text")
            device.publish("ask/3", b'{"x": 3}', 1, CorrelationData=b"3")
            device.publish("ask/4", b'{"x": 4}', 1)
            answers = device.take(4)
    told = {one.topic: one for one in answers if one.topic != "for/me"}
    results = [one for one in answers if one.topic == "for/me"]
    assert [(one.properties.CorrelationData, b"errorMessage" in one.payload) for one in results] == [  # type: ignore[union-attr]
        (b"\x00\xff", False),
        (b"text", True),
    ]
    assert told["ask/3-out"].properties.CorrelationData == b"3"  # type: ignore[union-attr]
    assert not hasattr(told["ask/4-out"].properties, "CorrelationData")
    assert not any(hasattr(one.properties, "UserProperty") for one in answers)


def test_with_response_topic_false_answers_go_to_the_topic_of_the_sink() -> None:
    with streamer.loads(REQUESTS.format(sink="response_topic: false")) as service:
        source = next(iter(_sources(service)))
        with client(source, version=MQTTv5) as device:
            device.publish("ask/1", b'{"x": 1}', 1, ResponseTopic="for/me", CorrelationData=b"1")
            (answer,) = device.take(1)
    assert (answer.topic, answer.properties.CorrelationData) == ("ask/1-out", b"1")  # type: ignore[union-attr]


def test_a_client_that_writes_our_headers_itself_harms_nobody() -> None:
    """They are user properties like any other, and a dead letter does not believe them."""
    with streamer.loads(REQUESTS.format(sink="qos: 1")) as service:
        source = next(iter(_sources(service)))
        with client(source, version=MQTTv5) as device:
            for value in ("{", "[]", '{"correlation": {"base64": "!"}}', '{"correlation": {"base64": 1}}'):
                device.publish("ask/1", b"bad", 1, UserProperty=[("streamer-record", value)])
            device.publish("ask/2", b'{"x": 1}', 1, UserProperty=[("streamer-mqtt-response-topic", "a/#")])
            answers = device.take(5)
    assert [one.topic for one in answers] == ["ask/1-out"] * 4 + ["ask/2-out"]


def _sources(service: Any) -> Iterator[MqttEndpointSource]:
    agent = agent_of(service)
    assert agent is not None
    for intake in agent._loop.intakes:
        assert isinstance(intake.source, MqttEndpointSource)
        yield intake.source
