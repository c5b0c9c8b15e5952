"""The development broker does what mosquitto does: each test runs on both, with paho as the client."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from memorybroker import MemoryBroker
from mqttclient import MqttClient, until
from paho.mqtt.client import MQTTv5, MQTTv311
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from streamer.devbroker import BrokerError
from streamer.devbroker.mqtt import LocalMosquitto

Broker = MemoryBroker | LocalMosquitto
StartMosquitto = Callable[..., LocalMosquitto]


@pytest.fixture(params=["development", "mosquitto"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Both brokers in turn, fresh for each test."""
    if request.param == "mosquitto":
        yield request.getfixturevalue("start_mosquitto")()
        return
    with MemoryBroker() as started:
        yield started


@pytest.fixture(params=[MQTTv311, MQTTv5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> int:
    """Both versions in turn."""
    found: int = request.param
    return found


def client(broker: Broker, client_id: str = "", **options: object) -> MqttClient:
    return MqttClient(broker.host, broker.port, client_id, **options)  # type: ignore[arg-type]


def test_messages_arrive_in_order_with_the_lower_qos_of_both_sides(broker: Broker, version: int) -> None:
    with client(broker, version=version) as reader, client(broker, version=version) as writer:
        for qos in (0, 1, 2):
            assert reader.subscribe(f"to/{qos}", qos) == qos
            for sent in (0, 1, 2):
                writer.publish(f"to/{qos}", b"%d" % sent, sent)
            received = reader.take(3)
            assert [(m.payload, m.qos) for m in received] == [(b"%d" % sent, min(sent, qos)) for sent in (0, 1, 2)]
            assert not any(m.retain or m.dup for m in received)


@pytest.mark.parametrize(
    ("filter", "topics"),
    [
        ("a/+/c", ["a/b/c", "a//c"]),
        ("a/#", ["a", "a/b", "a/b/c", "a//c"]),
        ("#", ["a", "a/b", "a/b/c", "a//c", "/"]),
        ("+", ["a"]),
        ("+/+", ["a/b", "/"]),
        ("$mine/#", ["$mine/x"]),
    ],
)
def test_wildcards_match_whole_levels_and_no_topic_that_begins_with_a_dollar(
    filter: str, topics: list[str], broker: Broker
) -> None:
    with client(broker) as reader, client(broker) as writer:
        reader.subscribe(filter, 1)
        for topic in ("a", "a/b", "a/b/c", "a//c", "/", "$mine/x"):
            writer.publish(topic, b"", 1)
        assert [m.topic for m in reader.take(len(topics))] == topics
        assert reader.nothing()


def test_overlapping_subscriptions_give_one_copy_and_unsubscribing_none(broker: Broker) -> None:
    if isinstance(broker, LocalMosquitto):
        pytest.skip("mosquitto delivers one copy for each subscription, as the standard allows")
    with client(broker) as reader, client(broker) as writer:
        reader.subscribe("a/#", 0)
        reader.subscribe("a/b", 1)
        writer.publish("a/b", b"once", 1)
        assert [(m.payload, m.qos) for m in reader.take(1)] == [(b"once", 1)]
        assert reader.nothing()
        reader.client.unsubscribe("a/#")
        reader.client.unsubscribe("a/b")
        reader.subscribe("end", 1)
        writer.publish("a/b", b"nobody", 1)
        writer.publish("end", b"", 1)
        assert [m.topic for m in reader.take(1)] == ["end"]


def test_a_retained_message_waits_for_subscribers_until_it_is_taken_away(broker: Broker, version: int) -> None:
    with client(broker, version=version) as writer:
        writer.publish("state/a", b"old", 1, retain=True)
        writer.publish("state/a", b"new", 1, retain=True)
        writer.publish("state/b", b"b", 1, retain=True)
        writer.publish("state/b", b"", 1, retain=True)
    with client(broker, version=version) as reader, client(broker, version=version) as writer:
        reader.subscribe("state/+", 1)
        assert [(m.topic, m.payload, m.retain) for m in reader.take(1)] == [("state/a", b"new", True)]
        writer.publish("state/a", b"live", 1, retain=True)
        assert [(m.payload, m.retain) for m in reader.take(1)] == [(b"live", False)]


def test_retain_handling_and_retain_as_published_are_minded(broker: Broker) -> None:
    with client(broker, version=MQTTv5) as reader, client(broker, version=MQTTv5) as writer:
        writer.publish("t", b"kept", 1, retain=True)
        reader.subscribe("t", 1, retainHandling=2, retainAsPublished=True)
        assert reader.nothing()
        reader.subscribe("t", 1, retainHandling=1, retainAsPublished=True)
        assert reader.nothing()
        reader.subscribe("t", 1, retainHandling=0, retainAsPublished=True)
        assert reader.take(1)[0].retain
        writer.publish("t", b"live", 1, retain=True)
        assert [(m.payload, m.retain) for m in reader.take(1)] == [(b"live", True)]


def test_a_will_is_published_when_the_client_is_lost_and_not_when_it_says_goodbye(broker: Broker, version: int) -> None:
    with client(broker, version=version) as reader:
        reader.subscribe("wills", 1)
        with client(broker, "polite", version=version, will=("wills", b"polite", 1, False)):
            pass
        lost = client(broker, "lost", version=version, will=("wills", b"lost", 1, False))
        with lost:
            lost.cut()
            assert [m.payload for m in reader.take(1)] == [b"lost"]
        assert reader.nothing()


def test_a_session_gets_what_came_while_it_was_away_and_a_clean_start_forgets_it(broker: Broker, version: int) -> None:
    with client(broker, "reader", version=version, clean=False) as reader:
        assert not reader.session_present
        reader.subscribe("t", 2)
    with client(broker, version=version) as writer:
        for qos in (0, 1, 2):
            writer.publish("t", b"%d" % qos, qos)
        with client(broker, "reader", version=version, clean=False) as reader:
            assert reader.session_present
            # mosquitto queues QoS 0 for a client that is away only where it is told to; so do we never.
            assert [m.payload for m in reader.take(2)] == [b"1", b"2"]
        writer.publish("t", b"never", 1)
        with client(broker, "reader", version=version) as reader:
            assert not reader.session_present
            assert reader.nothing()
    with client(broker, "reader", version=version, clean=False) as reader:
        assert not reader.session_present


def test_a_session_ends_when_it_expires(broker: Broker) -> None:
    with client(broker, "short", version=MQTTv5, clean=False, expiry=1) as reader:
        reader.subscribe("t", 1)

    def gone() -> bool:
        time.sleep(1.2)
        with client(broker, "short", version=MQTTv5, clean=False, expiry=1) as again:
            return not again.session_present

    assert until(gone)


@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_messages_come_again_in_order_marked_as_duplicates(
    qos: int, broker: Broker, version: int
) -> None:
    reader = client(broker, "reader", version=version, clean=False, manual=True)
    with reader, client(broker, version=version) as writer:
        reader.subscribe("t", 1)
        for number in range(6):
            writer.publish("t", b"%d" % number, qos)
        first = reader.take(6)
        for message in first[:2]:
            reader.acknowledge(message)
        # Confirmed when the broker has read the acknowledgements, which were sent before.
        reader.publish("other", b"", 1)
        reader.cut()
    with client(broker, "reader", version=version, clean=False) as reader:
        assert reader.session_present
        again = reader.take(4)
        assert [m.payload for m in again] == [m.payload for m in first[2:]]
        assert all(m.dup for m in again)
        assert [m.mid for m in again] == [m.mid for m in first[2:]]
        assert reader.nothing()


def test_no_more_is_in_flight_than_the_client_can_take() -> None:
    with MemoryBroker() as broker:
        asked = {"ReceiveMaximum": 3}
        reader = client(broker, "reader", version=MQTTv5, manual=True, properties=asked)
        with reader, client(broker) as writer:
            reader.subscribe("t", 1)
            for number in range(10):
                writer.publish("t", b"%d" % number, 1)
            first = reader.take(3)
            assert reader.nothing()
            reader.acknowledge(first[0])
            assert [m.payload for m in reader.take(1)] == [b"3"]
            assert reader.nothing()


def test_a_message_expires_and_says_how_long_it_has_left(broker: Broker) -> None:
    with client(broker, "reader", version=MQTTv5, clean=False) as reader:
        reader.subscribe("t", 1)
    with client(broker, version=MQTTv5) as writer:
        writer.publish("t", b"short", 1, MessageExpiryInterval=1)
        writer.publish("t", b"long", 1, MessageExpiryInterval=1000)
        writer.publish("t", b"never", 1)
    # mosquitto looks at whole seconds.
    time.sleep(2.2)
    with client(broker, "reader", version=MQTTv5, clean=False) as reader:
        long, never = reader.take(2)
        assert (long.payload, never.payload) == (b"long", b"never")
        assert 900 < long.properties.MessageExpiryInterval < 1000  # type: ignore[union-attr]
        assert not hasattr(never.properties, "MessageExpiryInterval")


def test_properties_go_with_the_message_and_a_topic_alias_stands_for_its_topic(broker: Broker) -> None:
    with client(broker, version=MQTTv5) as reader, client(broker, version=MQTTv5) as writer:
        reader.subscribe("t/#", 1)
        told: dict[str, Any] = {
            "ContentType": "text/plain",
            "ResponseTopic": "back",
            "CorrelationData": b"\0x",
            "UserProperty": [("a", "1"), ("a", "2")],
            "PayloadFormatIndicator": 1,
        }
        writer.publish("t/1", b"first", 1, TopicAlias=1, **told)
        writer.client.publish("", b"second", 1, properties=_alias(1))
        first, second = reader.take(2)
        assert (first.topic, second.topic, second.payload) == ("t/1", "t/1", b"second")
        found = {name: getattr(first.properties, name) for name in told}
        assert found == told
        assert not hasattr(first.properties, "TopicAlias")


def _alias(number: int) -> Properties:
    found = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    found.TopicAlias = number
    return found


def test_members_of_a_shared_subscription_take_turns(broker: Broker, version: int) -> None:
    with (
        client(broker, version=version) as one,
        client(broker, version=version) as two,
        client(broker, version=version) as all_of_it,
        client(broker, version=version) as writer,
    ):
        one.subscribe("$share/group/t/+", 1)
        two.subscribe("$share/group/t/+", 1)
        all_of_it.subscribe("t/+", 1)
        for number in range(20):
            writer.publish("t/x", b"%02d" % number, 1)
        shared = [m.payload for m in one.take(10)] + [m.payload for m in two.take(10)]
        assert sorted(shared) == [m.payload for m in all_of_it.take(20)]
        assert one.nothing()
        assert two.nothing()


def test_a_second_client_of_the_same_id_takes_over_and_the_first_is_told(broker: Broker, version: int) -> None:
    with client(broker, "same", version=version) as first, client(broker, "same", version=version) as second:
        reason = first.ended.get(timeout=30)
        # Of mosquitto 2.0 only the end of the connection is heard.
        if version == MQTTv5 and isinstance(broker, MemoryBroker):
            assert reason.value == 0x8E
        assert second.subscribe("t", 1) == 1


def test_a_client_that_says_nothing_is_disconnected_after_its_keep_alive(broker: Broker) -> None:
    with client(broker) as reader, socket.create_connection((broker.host, broker.port)) as silent:
        reader.subscribe("wills", 1)
        # CONNECT of MQTT 5: keep alive of one second, a will of QoS 1 without properties.
        body = b"\x00\x04MQTT\x05\x0e\x00\x01\x00" + b"\x00\x06silent" + b"\x00\x00\x05wills\x00\x06silent"
        silent.sendall(b"\x10" + bytes([len(body)]) + body)
        silent.settimeout(30)
        received = b""
        while chunk := silent.recv(100):
            received += chunk
        assert received[:1] == b"\x20"
        if isinstance(broker, MemoryBroker):
            # DISCONNECT with reason 0x8D.
            assert received.count(b"\xe0") == 1
            assert received[received.index(b"\xe0") + 2] == 0x8D
        assert [m.payload for m in reader.take(1)] == [b"silent"]


def test_no_local_and_subscription_identifiers(broker: Broker) -> None:
    with client(broker, version=MQTTv5) as both, client(broker, version=MQTTv5) as other:
        both.subscribe("t", 1, noLocal=True)
        both.publish("t", b"mine", 1)
        other.publish("t", b"theirs", 1)
        assert [m.payload for m in both.take(1)] == [b"theirs"]


def test_only_those_who_know_the_password_get_in(version: int) -> None:
    with MemoryBroker(users={"me": "secret"}) as broker:
        for login in (None, ("me", "wrong"), ("you", "secret")):
            with pytest.raises(ConnectionError, match=r"(?i)bad user ?name"):
                client(broker, version=version, login=login).__enter__()
        with client(broker, version=version, login=("me", "secret")) as known:
            assert known.subscribe("t", 1) == 1


def test_a_client_without_an_id_gets_one(broker: Broker) -> None:
    with client(broker, version=MQTTv5) as one, client(broker, version=MQTTv5) as two:
        assert one.connack["AssignedClientIdentifier"] != two.connack["AssignedClientIdentifier"]


def test_a_publisher_is_told_that_nobody_listens(broker: Broker) -> None:
    with client(broker, version=MQTTv5) as writer:
        told: list[int] = []
        writer.client.on_publish = lambda client, userdata, mid, reason, properties: told.append(reason.value)
        writer.publish("nobody", b"", 1)
        assert until(lambda: told == [0x10])


def test_a_taken_port_is_named() -> None:
    with MemoryBroker() as broker, pytest.raises(BrokerError, match=f"127.0.0.1:{broker.port}.* another port"):
        MemoryBroker(broker.port).start()


@pytest.mark.parametrize("flag", ["mqttv311", "mqttv5"])
def test_the_clients_of_mosquitto_get_on_with_the_development_broker(flag: str) -> None:
    if shutil.which("mosquitto_sub") is None:
        pytest.skip("mosquitto-clients are not installed")
    with MemoryBroker() as broker:
        to = ["-h", broker.host, "-p", str(broker.port), "-V", flag]
        reading = subprocess.Popen(
            ["mosquitto_sub", *to, "-t", "t/#", "-q", "2", "-C", "4", "-F", "%t %q %p"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert until(lambda: broker.ask(lambda inside: any(s.subscriptions for s in inside.sessions.values())))
        for qos in ("0", "1", "2"):
            subprocess.run(["mosquitto_pub", *to, "-t", f"t/{qos}", "-q", qos, "-m", f"m{qos}"], check=True, timeout=60)
        subprocess.run(["mosquitto_pub", *to, "-t", "t/big", "-q", "2", "-s"], input=b"x" * 3_000_000, check=True)
        out, _ = reading.communicate(timeout=60)
        assert out.splitlines()[:3] == ["t/0 0 m0", "t/1 1 m1", "t/2 2 m2"]
        assert len(out.splitlines()[3]) == 3_000_000 + len("t/big 2 ")
