"""A topic that is deleted while a service writes to it: no record is blamed for it, and none is lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafkatopics import ReadTopic, read
from waiting import until

import streamer
from streamer.agent.agent import Agent
from streamer.delivery.deadletter import original
from streamer.devbroker import create_topics

pytestmark = pytest.mark.slow

# A broker that creates topics when asked for them would create these, too.
SERVICE = """
source: {{type: kafka, bootstrap: "{bootstrap}", topics: {source}, codec: json, group: {source}}}
pipeline: []
sink: {{type: kafka, topic: "{sink}", topics: ["^.*"], codec: json, {timeout}client: {client}}}
dead_letter: {{type: kafka, topic: {dead}, {timeout}client: {client}}}
errors: {{stop_ratio: 1}}
"""
CLIENT = "{allow.auto.create.topics: false, topic.metadata.propagation.max.ms: 1000}"


class Run:
    """One service between three topics of one partition, fed all the time."""

    def __init__(self, kafka: Any, topics: Any, timeout: str | None, sink: str | None) -> None:
        self.bootstrap = kafka.bootstrap
        self.source, self.sink, self.dead = topics(1, "miss-in"), topics(1, "miss-out"), topics(1, "miss-dead")
        self.text = SERVICE.format(
            bootstrap=self.bootstrap,
            source=self.source,
            sink=sink or self.sink,
            dead=self.dead,
            timeout="" if timeout is None else f"timeout: {timeout}, ",
            client=CLIENT,
        )
        self.written = 0
        self.fed = threading.Event()
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._agents: list[Agent] = []

    def start(self) -> Agent:
        agent = Agent(streamer.loads(self.text))
        self._agents.append(agent)
        agent.start()
        return agent

    def feed(self) -> None:
        """Write records all the time, every tenth of them no JSON, until `rest`."""
        self._feeder.start()

    def rest(self) -> None:
        self.fed.set()
        self._feeder.join()

    def busy(self) -> Agent:
        """A service that has committed some records, and is given more all the time."""
        agent = self.start()
        self.feed()
        until(lambda: self.committed() > 500)
        return agent

    def goes_on(self, agent: Agent, topic: str) -> None:
        """Create the topic again a while later; the service is ready then, and finishes."""
        time.sleep(1)
        self.create(topic)
        until(lambda: agent.ready() is None)
        time.sleep(1)
        self.rest()
        self.finish(agent)

    def finish(self, agent: Agent) -> None:
        """Wait until all is committed."""
        until(lambda: self.committed() == self.written or agent.summary is not None)
        assert agent.summary is None

    def delete(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result()

    def create(self, topic: str) -> None:
        create_topics(self.bootstrap, {topic: 1})

    def committed(self) -> int:
        return max(ReadTopic(self.bootstrap, self.source).committed(), 0)

    def results(self) -> list[int]:
        return [json.loads(one.value)["n"] for one in read(self.bootstrap, self.sink)]

    def letters(self) -> list[int]:
        origins = [original(one.headers) for one in read(self.bootstrap, self.dead)]
        return [one.offset for one in origins if one is not None]

    def end(self) -> None:
        self.fed.set()
        for agent in self._agents:
            agent.stop()
            agent.join(60)

    def _feed(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        while not self.fed.is_set():
            for _ in range(20):
                bad = self.written % 10 == 9
                producer.produce(self.source, b"\xff" if bad else b'{"n": %d}' % self.written, b"k")
                self.written += 1
            assert producer.flush(60) == 0
            time.sleep(0.01)


@pytest.fixture
def run(kafka: Any, topics: Any) -> Iterator[Callable[..., Run]]:
    """`run(timeout=, sink=)` makes topics and a service between them."""
    runs: list[Run] = []

    def made(timeout: str | None = None, sink: str | None = None) -> Run:
        runs.append(Run(kafka, topics, timeout, sink))
        return runs[-1]

    yield made
    for one in runs:
        one.end()


def good(start: int, stop: int) -> set[int]:
    return {number for number in range(start, stop) if number % 10 != 9}


def bad(start: int, stop: int) -> set[int]:
    return {number for number in range(start, stop) if number % 10 == 9}


def test_a_service_whose_topic_is_deleted_and_created_again_goes_on_and_blames_no_record(run: Any) -> None:
    here = run()
    agent = here.busy()
    here.delete(here.sink)
    until(lambda: agent.ready() is not None and "is gone" in agent.ready())
    assert agent.live() is None
    acknowledged = here.committed()
    here.goes_on(agent, here.sink)
    results = here.results()
    # From the first unconfirmed one on, all of them; confirmed ones were deleted with the topic.
    assert set(results) == good(min(results), here.written)
    assert min(results) >= acknowledged - 10
    assert set(here.letters()) == bad(0, here.written)
    # A record that comes again fails again, and counts again.
    assert agent.meters.total("dead") >= len(here.letters())


def test_a_service_whose_topic_stays_away_stops_and_acknowledges_nothing_more(run: Any) -> None:
    here = run(timeout="3s")
    agent = here.busy()
    here.delete(here.sink)
    summary = agent.join(60)
    here.rest()
    assert summary.reason == "failed"
    assert f'the topic "{here.sink}" is gone, and was not created again in 3 s' in str(summary.error)
    acknowledged = here.committed()
    assert set(here.letters()) <= bad(0, here.written)
    # The next run has everything from there on.
    here.create(here.sink)
    agent = here.start()
    here.finish(agent)
    assert set(here.results()) == good(acknowledged, here.written)
    assert set(here.letters()) == bad(0, here.written)


def test_a_topic_of_dead_letters_that_is_deleted_is_waited_for(run: Any) -> None:
    here = run()
    agent = here.busy()
    here.delete(here.dead)
    until(lambda: agent.ready() is not None and "is gone" in agent.ready())
    here.goes_on(agent, here.dead)
    letters = here.letters()
    assert set(letters) == bad(min(letters), here.written)
    assert set(here.results()) == good(0, here.written)


def test_a_topic_made_from_values_that_is_not_there_is_the_records_own_fault(run: Any) -> None:
    here = run(timeout="3s", sink="{to}")
    producer = Producer({"bootstrap.servers": here.bootstrap, "enable.idempotence": True})
    for number in range(20):
        to = "no-such-topic-anywhere" if number == 7 else here.sink
        producer.produce(here.source, json.dumps({"n": number, "to": to}).encode())
    assert producer.flush(60) == 0
    agent = here.start()
    until(lambda: here.committed() == 20 or agent.summary is not None)
    assert agent.summary is None
    assert here.letters() == [7]
    assert set(here.results()) == set(range(20)) - {7}
