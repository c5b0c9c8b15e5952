"""A service is killed while 4,000 messages a second come over MQTT: nothing that the broker took is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faultymqtt import FaultyMqtt
from mqttclient import MqttClient
from mqttledger import Numbered, Publisher, duplicates, in_file
from paho.mqtt.client import MQTTv5

from streamer.devbroker.mqtt import LocalMosquitto

pytestmark = pytest.mark.slow

WINDOW = 1000
SERVICE = """
name: killed
source: {{type: mqtt, url: "{url}", topics: "proof/{{device}}", codec: json, window: {window}}}
pipeline: [{{"@type": FUNCTION, function: "killed_steps:passed_on"}}]
batch: {{max_records: 200}}
sink: {{type: file, path: out.jsonl, format: jsonl}}
delivery: {delivery}
"""
STEPS = '''
"""The pipeline of the service under test; a batch is 200 records at most."""
import time
import pipelines

@pipelines.batched
def passed_on(batch):
    time.sleep({seconds})
    return batch
'''


Broker = LocalMosquitto | FaultyMqtt


class Killed:
    """A service over a mosquitto, whose processes are killed; its results are in a file."""

    def __init__(self, folder: Path, broker: Broker, delivery: str, seconds: float) -> None:
        """`seconds` is the duration of a batch."""
        self.folder, self.broker = folder, broker
        (folder / "killed_steps.py").write_text(STEPS.format(seconds=seconds))
        (folder / "service.yaml").write_text(SERVICE.format(url=broker.url, window=WINDOW, delivery=delivery))
        self.out = folder / "out.jsonl"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it; returns when more results are there than before."""
        before = self._size()
        command = [sys.executable, "-m", "streamer", "run", "service.yaml"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
        self.until(lambda: self._size() > before)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(30)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(90)

    def until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not happened():
            assert self.process is not None
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)

    def settled(self) -> Counter[Numbered]:
        """The contents of the file once no line was added for two seconds."""
        seen, since = -1, time.monotonic()
        while time.monotonic() < since + 2:
            assert self.process is not None
            assert self.process.poll() is None, self.text()
            if seen != (seen := self._size()):
                since = time.monotonic()
            time.sleep(0.05)
        return in_file(self.out)

    def text(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def _size(self) -> int:
        return self.out.stat().st_size if self.out.exists() else 0


Make = Callable[..., Killed]


@pytest.fixture(params=["mosquitto", "our broker"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A mosquitto that is not slowed down by its store, and a broker that keeps to the window it is told.

    Neither drops messages that wait for a service that is slow to start: on a busy machine that may be 100,000
    messages.
    """
    if request.param == "mosquitto":
        yield request.getfixturevalue("start_mosquitto")(persistence="false", max_queued_messages="0")
    else:
        with FaultyMqtt() as ours:
            yield ours


@pytest.fixture
def make(tmp_path: Path, broker: Broker) -> Iterator[Make]:
    """`make(delivery, seconds)` is a service over a broker of its own; it is gone at the end."""
    made: list[Killed] = []

    def build(delivery: str, seconds: float = 0.01) -> Killed:
        made.append(Killed(tmp_path, broker, delivery, seconds))
        return made[-1]

    yield build
    for one in made:
        if one.process is not None and one.process.poll() is None:
            one.kill()


def kill_again_and_again(killed: Killed, kills: int, rate: int = 4000) -> tuple[set[Numbered], Counter[Numbered]]:
    """The messages that the broker accepted, and those that the sink got, with so many kills meanwhile."""
    draw = random.Random(kills)
    # The session is there before the first message.
    with MqttClient(killed.broker.host, killed.broker.port, "killed-mqtt", version=MQTTv5, clean=False) as client:
        assert client.subscribe("proof/+", 1) == 1
    with Publisher(killed.broker.port, killed.folder / "taken", rate) as publisher:
        for _ in range(kills):
            killed.start()
            time.sleep(draw.uniform(0.3, 1.2))
            killed.kill()
        taken = publisher.stop()
        killed.start()
        found = killed.settled()
    assert killed.stop() == 0, killed.text()
    print(
        f"\n{publisher.said.strip()}, {len(taken)} messages, {kills} kills: "
        f"{len(taken - set(found))} lost, {duplicates(found)} duplicates"
    )
    return taken, found


def nothing_is_lost(make: Make, broker: Broker, kills: int, rate: int = 4000) -> None:
    taken, found = kill_again_and_again(make("at_least_once"), kills, rate)
    assert not taken - set(found)
    # A mosquitto that has a backlog sends more than the window ahead, and what it has not read of acknowledgements when
    # the connection ends is lost: more comes again then.
    if isinstance(broker, FaultyMqtt):
        assert duplicates(found) <= WINDOW * kills, "more was repeated than may be under way"


@pytest.mark.parametrize(
    ("broker", "kills", "rate"),
    [("mosquitto", 2, 4000), pytest.param("our broker", 2, 4000, marks=pytest.mark.soak)],
    indirect=["broker"],
)
def test_nothing_is_lost_when_the_service_is_killed(make: Make, broker: Broker, kills: int, rate: int) -> None:
    nothing_is_lost(make, broker, kills, rate)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_nothing_is_lost_when_the_service_is_killed_ten_times(make: Make, broker: Broker) -> None:
    nothing_is_lost(make, broker, 10)


@pytest.mark.parametrize("broker", ["mosquitto"], indirect=True)
def test_a_service_that_acknowledges_first_loses_what_it_had_when_it_is_killed(make: Make) -> None:
    """Faults that the tests above have to find."""
    # So slow that more always waits for it when it is killed.
    taken, found = kill_again_and_again(make("at_most_once", 0.1), 2, rate=1000)
    assert taken - set(found)
