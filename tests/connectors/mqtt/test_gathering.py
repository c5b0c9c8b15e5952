"""A source that waits for more messages in any case reads many of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from connectors.mqtt import incoming, pacing, source
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.pacing import Gathering
from connectors.mqtt.protocol.packets import V5, Connack, Packet, Publish
from connectors.mqtt.protocol.writing import encode
from connectors.mqtt.session.inbound import Inbound
from connectors.mqtt.session.session import Session, SessionClient
from connectors.mqtt.session.settings import Granted, Settings
from connectors.mqtt.source import MqttSource


class Clock:
    """A time that passes when it is told to, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the source."""
    clock = Clock()
    for module in (incoming, pacing, source):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic, time_ns=clock.time_ns))
    return clock


class SteadyBroker(Session):
    """A session whose broker sends a message every `every` seconds, up to `last` of them."""

    unsent, down, connection, drained = 0, None, 1, True

    def __init__(
        self, clock: Clock, client: SessionClient, inbound: Inbound, settings: Settings, every: float, last: int
    ) -> None:
        self._clock, self._client, self._inbound = clock, client, inbound
        self._every, self._last, self._sent = every, last, 0
        self._began = clock.now
        self._woken = False
        self.readings = 0
        self.idled = 0.0
        self.woken_at = float("inf")
        inbound.begin(V5)
        client.begun(Granted.of(Connack(), settings, V5))
        client.subscribed({})

    def turn(self, timeout: float, *, read: bool = True) -> bool:
        due = self._due()
        if not due and timeout > 0:
            coming = self._began + self._every * (self._sent + 1) + 1e-9 if self._sent < self._last else float("inf")
            self._clock.now = min(self._clock.now + timeout, coming)
            due = self._due()
        if not due or not read:
            return False
        packets = [Publish("a/1", b"%d" % (self._sent + at), 1, packet_id=self._sent + at + 1) for at in range(due)]
        raw = b"".join(encode(packet, V5) for packet in packets)
        self._inbound.room()[: len(raw)] = raw
        self._sent += due
        self.readings += 1
        self._inbound.filled(len(raw), self._client.received)
        return True

    def _due(self) -> int:
        return min(int((self._clock.now - self._began) / self._every), self._last) - self._sent

    def idle(self, seconds: float) -> None:
        stop = min(self._clock.now + seconds, max(self.woken_at, self._clock.now))
        self._woken = self._woken or stop < self._clock.now + seconds
        self.idled += stop - self._clock.now
        self._clock.now = stop

    def send(self, packet: Packet) -> None: ...
    def write(self, data: bytes | bytearray | memoryview) -> None: ...
    def restart(self, reason: str, *, subscribe: bool = False) -> None: ...
    def renew(self) -> None: ...
    def close(self) -> None: ...
    def wake(self) -> None: ...

    def ping(self) -> int:
        return 0

    def answered(self, ticket: int) -> bool:
        return True

    def woken(self) -> bool:
        woken, self._woken = self._woken, False
        return woken


Make = Callable[[float, int], tuple[MqttSource, SteadyBroker]]


@pytest.fixture
def fed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a source with a steady broker."""

    def make(every: float, last: int) -> tuple[MqttSource, SteadyBroker]:
        made: list[SteadyBroker] = []

        def session(kind: str, settings: Settings, client: SessionClient, inbound: Inbound) -> Session:
            made.append(SteadyBroker(clock, client, inbound, settings, every, last))
            return made[0]

        monkeypatch.setattr(source, "session", session)
        built = MqttSource(MqttSourceConfig(url="mqtt://nowhere", topics=["a/+"], client_id="c", window=5000))
        built.open()
        return built, made[0]

    return make


def test_many_messages_are_read_at_a_time_and_the_batch_is_full_as_soon_as_before(clock: Clock, fed: Make) -> None:
    """5,000 a second, in batches of 500: those before the rate is known come one by one."""
    built, broker = fed(0.0002, 100_000)
    built.poll(500, 1 << 30, 1.0)
    read, began = broker.readings, clock.now
    records = built.poll(500, 1 << 30, 1.0)
    assert len(records) == 500
    assert [int(one or b"") for one in records.values] == list(range(500, 1000))
    assert broker.readings - read < 50
    assert clock.now - began < 0.1 + pacing.LONGEST


def test_a_poll_ends_when_its_time_is_over(clock: Clock, fed: Make) -> None:
    built, broker = fed(0.0002, 100_000)
    built.poll(500, 1 << 30, 1.0)
    began = clock.now
    records = built.poll(500, 1 << 30, 0.005)
    assert 10 < len(records) < 40
    assert clock.now - began == pytest.approx(0.005, abs=0.001)
    assert broker.idled > 0


def test_messages_that_come_seldom_are_read_as_they_come(clock: Clock, fed: Make) -> None:
    """100 a second."""
    built, broker = fed(0.01, 100_000)
    for _ in range(3):
        built.poll(10, 1 << 30, 1.0)
    assert broker.idled == 0
    assert broker.readings == 30


def test_the_last_messages_are_not_waited_for_again_and_again(clock: Clock, fed: Make) -> None:
    built, broker = fed(0.0002, 300)
    began = clock.now
    assert len(built.poll(500, 1 << 30, 1.0)) == 300
    assert clock.now - began <= 1.001
    assert broker.idled < 0.06 + 2 * pacing.LONGEST


def test_waking_ends_a_poll_that_lets_messages_gather(clock: Clock, fed: Make) -> None:
    built, broker = fed(0.0002, 100_000)
    built.poll(500, 1 << 30, 1.0)
    broker.woken_at = clock.now + 0.013
    began = clock.now
    assert 0 < len(built.poll(500, 1 << 30, 1.0)) < 500
    assert clock.now - began < 0.03


def test_messages_that_fill_a_batch_soon_are_waited_for_until_half_of_it_may_have_come(clock: Clock) -> None:
    rate = Gathering()
    clock.now += 0.1
    rate.came(500)
    assert rate.pause(1000) == pacing.LONGEST
    rate.came(0)
    assert rate.pause(40) == pytest.approx(20 / 5000, rel=0.01)
    rate.came(0)
    assert rate.pause(8) == 0.0
    rate.came(0)
    assert rate.pause(-3) == 0.0


def test_nothing_gathers_where_nothing_came_since(clock: Clock) -> None:
    rate = Gathering()
    clock.now += 0.1
    rate.came(500)
    assert rate.pause(1000) > 0
    assert rate.pause(1000) == 0.0
