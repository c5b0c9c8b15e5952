"""The faults that MQTT tests rely on do happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from faultymqtt import BatchWindow, FaultyMqtt, OverrunWindow, Window
from mqttclient import MqttClient
from paho.mqtt.client import MQTTv5
from waiting import until

from connectors.mqtt.protocol.packets import Packet, Publish


@pytest.fixture
def broker() -> Iterator[FaultyMqtt]:
    with FaultyMqtt() as started:
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


def test_packets_get_lost_in_both_directions(broker: FaultyMqtt) -> None:
    def lost(packet: Packet) -> bool:
        return isinstance(packet, Publish) and packet.payload.startswith(b"lose")

    broker.faults.drop = lost
    with client(broker) as reader:
        reader.subscribe("t", 1)
        broker.publish("t", b"lose me", b"keep me")
        assert [m.payload for m in reader.take(1)] == [b"keep me"]
        assert not reader.published("t", b"lose this", 1, seconds=0.5)
