"""The faults that MQTT tests rely on do happen."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

import pytest
from faultymqtt import BatchWindow, FaultyMqtt, OverrunWindow
from memorybroker.window import Window
from mqttclient import MqttClient, until
from paho.mqtt.client import MQTTv5
from tcpproxy import TcpProxy

from connectors.mqtt.protocol.packets import Packet, Publish
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.writing import encode


@pytest.fixture
def broker() -> Iterator[FaultyMqtt]:
    with FaultyMqtt() as started:
        assert isinstance(started, FaultyMqtt)
        yield started


def client(broker: FaultyMqtt, client_id: str = "reader", **options: object) -> MqttClient:
    return MqttClient(broker.host, broker.port, client_id, **options)  # type: ignore[arg-type]


NUMBERS = [b"%03d" % number for number in range(300)]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (lambda: Window(1), [1, 1, 1]),
        (lambda: Window(20), [20, 20, 20]),
        (BatchWindow, [1, 50, 49]),
        (OverrunWindow, [64, 127, 190]),
    ],
    ids=["one", "twenty", "HiveMQ", "mosquitto"],
)
def test_a_window_is_the_brokers_own(window: Callable[[], Window], expected: list[int], broker: FaultyMqtt) -> None:
    broker.faults.window = lambda connect: window()
    with client(broker, manual=True) as reader:
        reader.subscribe("t", 1)
        broker.publish("t", *NUMBERS)
        in_flight = [broker.in_flight("reader")]
        for done in (1, 2):
            reader.acknowledge(reader.take(1)[0])
            assert until(lambda count=done: len(broker.acknowledgements) == count)  # type: ignore[misc]
            in_flight.append(broker.in_flight("reader"))
        assert in_flight == expected
        assert broker.unacknowledged("reader") == len(NUMBERS) - 2


def test_acknowledgements_out_of_order_end_the_connection_where_the_broker_is_strict(broker: FaultyMqtt) -> None:
    broker.faults.strict = True
    with client(broker, manual=True, version=MQTTv5) as reader:
        reader.subscribe("t", 1)
        broker.publish("t", b"0", b"1")
        first, second = reader.take(2)
        reader.acknowledge(first)
        reader.acknowledge(second)
        broker.publish("t", b"2", b"3")
        third, fourth = reader.take(2)
        reader.acknowledge(fourth)
        reader.ended.get(timeout=30)
    assert broker.acknowledgements == [first.mid, second.mid, fourth.mid]
    assert third.mid not in broker.acknowledgements


def test_messages_that_the_broker_delivers_again_may_look_new(broker: FaultyMqtt) -> None:
    broker.faults.redeliver_as_new = True
    with client(broker, clean=False, manual=True) as reader:
        reader.subscribe("t", 1)
        broker.publish("t", *NUMBERS[:3])
        first = reader.take(3)
        broker.cut("reader")
        reader.ended.get(timeout=30)
    with client(broker, clean=False) as reader:
        again = reader.take(3)
        assert [m.payload for m in again] == [m.payload for m in first]
        assert not any(m.dup for m in again)
        assert not {m.mid for m in again} & {m.mid for m in first}


def test_clients_are_refused_and_sent_away_with_any_reason(broker: FaultyMqtt) -> None:
    broker.faults.refuse_connects.append(ReasonCode.SERVER_BUSY)
    with pytest.raises(ConnectionError, match="Server busy"):
        client(broker, version=MQTTv5).__enter__()
    with client(broker, version=MQTTv5) as reader:
        broker.disconnect("reader", ReasonCode.ADMINISTRATIVE_ACTION)
        assert reader.ended.get(timeout=30).value == ReasonCode.ADMINISTRATIVE_ACTION
    assert [connect.client_id for connect in broker.connects] == ["reader", "reader"]


def test_less_is_granted_than_was_asked_for(broker: FaultyMqtt) -> None:
    broker.faults.granted = Properties(session_expiry_interval=5, receive_maximum=7)
    broker.faults.grant = lambda topic, qos: ReasonCode.NOT_AUTHORIZED if topic == "secret" else ReasonCode.SUCCESS
    with client(broker, version=MQTTv5, clean=False) as reader:
        assert (reader.connack["SessionExpiryInterval"], reader.connack["ReceiveMaximum"]) == (5, 7)
        assert reader.subscribe("secret", 1) == 0x87
        assert reader.subscribe("t", 1) == 0
        broker.publish("t", b"x")
        assert reader.take(1)[0].qos == 0


def test_a_publisher_is_refused_with_any_reason(broker: FaultyMqtt) -> None:
    broker.faults.refuse = lambda packet: ReasonCode.QUOTA_EXCEEDED if packet.payload == b"bad" else None
    with client(broker, version=MQTTv5) as writer:
        told: queue.SimpleQueue[int] = queue.SimpleQueue()
        writer.client.on_publish = lambda client, userdata, mid, reason, properties: told.put(reason.value)
        writer.publish("t", b"bad", 1)
        assert told.get(timeout=30) == 0x97
        writer.publish("t", b"good", 1)
        assert told.get(timeout=30) == 0x10


def test_packets_get_lost_in_both_directions(broker: FaultyMqtt) -> None:
    def lost(packet: Packet) -> bool:
        return isinstance(packet, Publish) and packet.payload.startswith(b"lose")

    broker.faults.drop = lost
    with client(broker) as reader:
        reader.subscribe("t", 1)
        broker.publish("t", b"lose me", b"keep me")
        assert [m.payload for m in reader.take(1)] == [b"keep me"]
        assert not reader.published("t", b"lose this", 1, seconds=0.5)


def test_a_forgotten_session_is_gone_and_a_deaf_one_hears_nothing(broker: FaultyMqtt) -> None:
    with client(broker, clean=False) as reader:
        reader.subscribe("t", 1)
        broker.forget("reader")
        reader.ended.get(timeout=30)
    with client(broker, clean=False) as reader:
        assert not reader.session_present
        reader.subscribe("t", 1)
        broker.unsubscribe("reader")
        broker.publish("t", b"x")
        assert reader.nothing()
        assert broker.clients == {"reader"}


def test_a_frozen_broker_goes_on_where_it_was_and_a_restarted_one_has_its_sessions(broker: FaultyMqtt) -> None:
    with client(broker, clean=False) as reader:
        reader.subscribe("t", 1)
        broker.freeze()
        assert not reader.published("t", b"x", 1, seconds=0.3)
        broker.thaw()
        assert [m.payload for m in reader.take(1)] == [b"x"]
        assert until(lambda: broker.unacknowledged("reader") == 0)
        port = broker.port
        broker.restart()
        assert broker.port == port
        reader.ended.get(timeout=30)
    broker.publish("t", b"meanwhile")
    with client(broker, clean=False) as reader:
        assert [m.payload for m in reader.take(1)] == [b"meanwhile"]


def test_a_proxy_cuts_after_every_byte_and_the_message_comes_again(broker: FaultyMqtt) -> None:
    publish = encode(Publish("t", b"payload", 1, packet_id=1), 4)
    with client(broker, clean=False) as reader:
        reader.subscribe("t", 1)
    broker.publish("t", b"payload")
    connack = 4
    for count in range(connack, connack + len(publish)):
        with TcpProxy(broker.port) as proxy:
            proxy.cut_after("to client", count)
            with MqttClient(proxy.host, proxy.port, "reader", clean=False) as reader:
                reader.ended.get(timeout=30)
                assert reader.nothing(0)
            assert proxy.passed["to client"] == count
    with client(broker, clean=False) as reader:
        assert [m.payload for m in reader.take(1)] == [b"payload"]


def test_a_proxy_swallows_everything_until_it_does_not(broker: FaultyMqtt) -> None:
    with TcpProxy(broker.port, keeps=True) as proxy, MqttClient(proxy.host, proxy.port, "reader") as reader:
        reader.subscribe("t", 1)
        proxy.swallow()
        broker.publish("t", b"lost")
        assert until(lambda: b"lost" in proxy.came["to client"])
        assert reader.nothing()
        proxy.swallow(False)
        broker.publish("t", b"seen")
        assert [m.payload for m in reader.take(1)] == [b"seen"]
