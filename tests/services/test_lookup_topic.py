"""LOOKUP in a topic, on a real Kafka: the table is read whole before the first record, and followed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafkatopics import read
from waiting import until

import pipelines
import streamer
from connectors.tables import topictable
from pipelines import Data, Lookup, StepError
from pipelines.executors.executor import Executor
from pipelines.runners.tables import followedtable
from streamer.devbroker import Broker, create_topics

pytestmark = pytest.mark.slow


@dataclass
class Machines:
    """A compacted topic with rows of machines."""

    bootstrap: str
    topic: str

    def put(self, rows: Mapping[str, Any], **more: Any) -> None:
        """Write rows by their keys; bytes as they are, `None` as a tombstone."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, row in rows.items():
            value = row if row is None or isinstance(row, bytes) else json.dumps(row).encode()
            producer.produce(self.topic, value, key, **more)
        assert producer.flush(60) == 0

    def step(self, **fields: Any) -> Lookup:
        table = {"topic": self.topic, "codec": "json", "bootstrap": self.bootstrap, **fields.pop("table", {})}
        return Lookup(**{"by": "machine", "table": table, "take": ["line"], **fields})

    def opened(self, **fields: Any) -> Executor:
        return pipelines.Sequence([self.step(**fields)]).open()


@pytest.fixture
def machines(kafka: Broker, topics: Callable[..., str]) -> Machines:
    return Machines(kafka.bootstrap, topics(3, "machines", cleanup_policy="compact"))


def metric(executor: Executor, name: str) -> object:
    return executor.metrics["0:LOOKUP"][name].samples()[0][1]


def line(executor: Executor, machine: str) -> Any:
    """The line that a record of this machine gets, or the text of its error."""
    (result,) = executor.run_many([Data({"machine": machine})])
    return str(result) if isinstance(result, StepError) else result["line"]  # type: ignore[index, call-overload]


def test_the_newest_row_of_each_key_in_all_partitions_is_there_for_the_first_record(machines: Machines) -> None:
    machines.put({f"m{number}": {"line": "old"} for number in range(3000)})
    machines.put({f"m{number}": {"line": f"line {number}"} for number in range(0, 3000, 2)})
    with machines.opened() as executor:
        results = executor.run_many([Data({"machine": f"m{number}", "n": number}) for number in range(3000)])
        assert results == [
            Data({"machine": f"m{number}", "n": number, "line": "old" if number % 2 else f"line {number}"})
            for number in range(3000)
        ]
        assert metric(executor, "streamer_lookup_rows") == 3000


def test_a_changed_row_is_used_and_one_with_a_tombstone_is_gone(machines: Machines) -> None:
    machines.put({"m1": {"line": "north"}, "m2": {"line": "south"}})
    with machines.opened() as executor:
        assert (line(executor, "m1"), line(executor, "m2")) == ("north", "south")
        assert "has no row for machine 'm3'" in line(executor, "m3")
        machines.put({"m1": {"line": "west"}, "m2": None, "m3": {"line": "east"}})
        until(lambda: line(executor, "m3") == "east" and "no row" in line(executor, "m2"))
        until(lambda: line(executor, "m1") == "west")
        assert metric(executor, "streamer_lookup_outdated") == 0


def test_values_inside_of_others_are_reached_by_dots(machines: Machines) -> None:
    machines.put({"m1": {"limits": {"max": 7.5, "names": ["a"]}, "a.b": 1}, "m2": {"limits": 3}})
    with machines.opened(take={"limit": "limits.max", "names": "limits.names", "ab": "a.b"}) as executor:
        assert executor.run({"machine": "m1"}) == Data({"machine": "m1", "limit": 7.5, "names": ["a"], "ab": 1})
        assert executor.run({"machine": "m2"}) == Data({"machine": "m2"})


def test_keys_that_are_numbers_are_those_of_numbers(machines: Machines) -> None:
    machines.put({"x": {"line": "text"}})
    producer = Producer({"bootstrap.servers": machines.bootstrap})
    producer.produce(machines.topic, b'{"line": "north"}', (7).to_bytes(8, "big"))
    assert producer.flush(60) == 0
    with machines.opened(table={"key": "long"}) as executor:
        for number in (7, 7.0):
            assert executor.run({"machine": number}) == Data({"machine": number, "line": "north"})
        assert "leave out key of the table if its keys are texts" in line(executor, "7")


def test_a_row_that_cannot_be_read_is_not_there_and_its_records_are_told_why(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pipelines.runners.tables.followedtable")
    machines.put({"m1": {"line": "north"}, "m2": {"line": "south"}})
    machines.put({"m2": b'{"line": ', "m3": {"line": "east"}})
    with machines.opened() as executor:
        assert (line(executor, "m1"), line(executor, "m3")) == ("north", "east")
        assert "has no row for machine 'm2': " in line(executor, "m2")
        assert "no JSON" in line(executor, "m2")
        assert sum("1 records of topic" in message for message in caplog.messages) == 1
        machines.put({"m2": {"line": "west"}})
        until(lambda: line(executor, "m2") == "west")


def test_a_stated_type_is_that_of_all_values(machines: Machines) -> None:
    machines.put({"m1": {"line": "7"}, "m2": {"line": "seven"}, "m3": {"line": 8}})
    with machines.opened(types={"line": "integer"}) as executor:
        assert (line(executor, "m1"), line(executor, "m3")) == (7, 8)
        assert "seven" in line(executor, "m2")


def test_a_table_that_is_too_large_is_refused_with_the_field_to_raise(machines: Machines) -> None:
    machines.put({f"m{number}": {"line": "x" * 100} for number in range(50)})
    with pytest.raises(StepError, match="more than 49 rows; raise maxRows of the step"):
        machines.opened(max_rows=49)
    with pytest.raises(StepError, match="more than 5,000 bytes; raise maxBytes of the step"):
        machines.opened(max_bytes=5000)


def test_a_row_that_is_one_too_many_later_is_not_there_and_said(
    machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    machines.put({"m1": {"line": "north"}})
    with machines.opened(max_rows=1) as executor:
        machines.put({"m2": {"line": "south"}})
        until(lambda: "raise maxRows of the step" in line(executor, "m2"))
        machines.put({"m1": {"line": "west"}})
        until(lambda: line(executor, "m1") == "west")
        assert metric(executor, "streamer_lookup_outdated") == 1
        assert sum("rows that came last are not there" in message for message in caplog.messages) == 1


def test_a_topic_that_is_not_there_and_brokers_that_do_not_answer_are_named(machines: Machines) -> None:
    with pytest.raises(StepError, match='there is no topic "machin"'):
        machines.opened(table={"topic": "machin"})
    with pytest.raises(StepError, match="no Kafka answers on localhost:1"):
        machines.opened(table={"bootstrap": "localhost:1"})


def test_a_topic_that_was_made_again_is_read_anew(
    machines: Machines, kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followedtable, "AGAIN", 0.3)
    monkeypatch.setattr(topictable, "LOOK", 0.3)
    machines.put({"m1": {"line": "north"}, "m2": {"line": "south"}})
    with machines.opened() as executor:
        assert line(executor, "m1") == "north"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for done in admin.delete_topics([machines.topic]).values():
            done.result(60)
        until(lambda: line(executor, "m1") == "north" and metric(executor, "streamer_lookup_outdated") == 1)
        create_topics(kafka.bootstrap, {machines.topic: 1})
        machines.put({"m1": {"line": "west"}})
        until(lambda: line(executor, "m1") == "west")
        assert "no row" in line(executor, "m2")
        assert metric(executor, "streamer_lookup_outdated") == 0


def test_a_topic_that_was_made_again_with_as_many_records_is_read_anew(
    machines: Machines, kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followedtable, "AGAIN", 0.3)
    machines.put({"m1": {"line": "north"}})
    with machines.opened() as executor:
        assert line(executor, "m1") == "north"
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for done in admin.delete_topics([machines.topic]).values():
            done.result(60)
        # All of it between two looks.
        until(lambda: machines.topic not in admin.list_topics(timeout=60).topics)
        create_topics(kafka.bootstrap, {machines.topic: 3})
        machines.put({"m1": {"line": "west"}})
        monkeypatch.setattr(topictable, "LOOK", 0.3)
        until(lambda: line(executor, "m1") == "west")


def test_a_service_reads_the_table_from_the_brokers_of_its_source_once_for_all_threads(
    kafka: Broker, topics: Callable[..., str], machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    source, out = topics(1, "in"), topics(1, "out")
    machines.put({f"m{number}": {"line": f"line {number}"} for number in range(100)})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(100):
        producer.produce(source, json.dumps({"machine": f"m{number}"}).encode())
    assert producer.flush(60) == 0
    service = streamer.loads(f"""
name: {out}
source: {{type: kafka, bootstrap: "{kafka.bootstrap}", topics: {source}, codec: json}}
pipeline: [{{"@type": LOOKUP, by: machine, table: {{topic: {machines.topic}, codec: json}}, take: line}}]
sink: {{type: kafka, topic: {out}, codec: json}}
limits: {{parallel: 2}}
""")
    with service:
        results = read(kafka.bootstrap, out, 100)
    assert sorted((result["machine"], result["line"]) for result in map(json.loads, (r.value for r in results))) == (
        sorted((f"m{number}", f"line {number}") for number in range(100))
    )
    assert sum("has 100 rows, read in" in message for message in caplog.messages) == 1


def test_a_table_leaves_no_group_behind(machines: Machines) -> None:
    machines.put({"m1": {"line": "north"}})
    with machines.opened() as executor:
        assert line(executor, "m1") == "north"
    with closing(Consumer({"bootstrap.servers": machines.bootstrap, "group.id": "streamer-tables"})) as consumer:
        (committed,) = consumer.committed([TopicPartition(machines.topic, 0)], 30)
    assert committed.offset < 0
