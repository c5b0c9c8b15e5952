"""Steps that keep state by lane: they are told each row's lane, and when no more of it comes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar

import numpy as np
import pytest

import pipelines
from connectors.memory import MemorySession, MemorySessionSource, MemorySource, MemoryTopic
from connectors.message import Message
from connectors.records import Lane
from pipelines import Data
from pipelines.data.columns import Column
from pipelines.data.record import RecordContext
from streamer.definition.service import Service


class CountStep(pipelines.Step):
    """Numbers the records of each lane."""

    type_name: ClassVar[str] = "TEST_COUNTS"


class Counts(pipelines.StatefulRunner):
    """`y` is how many records of the row's lane have come; `counted` is the state."""

    def __init__(self) -> None:
        self.counted: dict[Hashable, int] = {}
        self.forgotten: list[Hashable] = []

    def run_batch(self, batch: pipelines.Batch) -> pipelines.Result:
        found = []
        for lane in batch.lanes():
            self.counted[lane] = self.counted.get(lane, 0) + 1
            found.append(self.counted[lane])
        return pipelines.Result(batch.with_columns({"y": Column.of(found)}))

    def tick(self, now: float) -> pipelines.Result:
        return pipelines.Result(pipelines.Batch.of([]))

    def flush(self) -> pipelines.Result:
        return pipelines.Result(pipelines.Batch.of([]))

    def forget(self, lanes: Iterable[Hashable]) -> None:
        for lane in lanes:
            self.forgotten.append(lane)
            self.counted.pop(lane, None)


class Counting(pipelines.Sequence):
    """A pipeline of this one step, whose runner a test looks into."""

    runner: Counts

    def open(self, *args: Any, **settings: Any) -> Any:
        registry = pipelines.Registry(plugins=False)
        registry.add_step(CountStep)
        registry.add_runner(self)
        return super().open(*args, **{**settings, "registry": registry})

    step_type, name, priority, requires = "TEST_COUNTS", "test", 0, ()

    def create(self, step: Any, context: pipelines.OpenContext) -> pipelines.Runner:
        self.runner = Counts()
        return self.runner


@pytest.fixture
def counting() -> Counting:
    return Counting([CountStep()])


def test_a_stateful_step_knows_the_lane_of_every_row(
    counting: Counting, define: Callable[..., Service], serve: Any, eventually: Any
) -> None:
    source = MemorySource(topic=MemoryTopic("in", 2), name="memory")
    serving = serve(define().model_copy(update={"pipeline": counting}), sources={"memory": source})
    for partition, count in ((0, 2), (1, 3), (0, 1)):
        source.feed(*[Message(Data({"x": 0}).to_bytes(), partition=partition) for _ in range(count)])
    eventually(lambda: len(serving.results()) == 6)
    assert sorted(serving.results()) == [1, 1, 2, 2, 3, 3]
    eventually(lambda: set(serving.agent.acknowledged) == set(counting.runner.counted))


def test_a_lane_that_is_taken_away_is_forgotten(
    counting: Counting, define: Callable[..., Service], serve: Any, eventually: Any
) -> None:
    topic = MemoryTopic("in", 2)
    source = MemorySource(topic=topic, name="memory")
    serving = serve(define().model_copy(update={"pipeline": counting}), sources={"memory": source})
    source.feed(*[Message(Data({"x": 0}).to_bytes(), partition=n % 2) for n in range(8)])
    eventually(lambda: len(serving.results()) == 8)
    other = MemorySource(topic=topic, name="other")
    other.open()
    eventually(lambda: len(counting.runner.forgotten) == 1)
    assert len(counting.runner.counted) == 1


def test_a_lane_whose_session_is_lost_is_forgotten_once_its_last_record_is_done(
    counting: Counting, define: Callable[..., Service], serve: Any, eventually: Any
) -> None:
    session = MemorySession()
    source = MemorySessionSource(session, name="memory")
    serving = serve(define().model_copy(update={"pipeline": counting}), sources={"memory": source})
    serving.sink.topic.faults.cut()
    session.feed([Message(Data({"x": 0}).to_bytes()) for _ in range(3)])
    eventually(lambda: counting.runner.counted == {Lane("memory", "0", 0): 3})
    session.forget()
    session.feed([Message(Data({"x": 0}).to_bytes())])
    eventually(lambda: Lane("memory", "0", 1) in counting.runner.counted)
    assert counting.runner.forgotten == []
    serving.sink.topic.faults.mend()
    eventually(lambda: counting.runner.forgotten == [Lane("memory", "0", 0)])
    assert counting.runner.counted == {Lane("memory", "0", 1): 1}
    assert serving.results() == [1, 2, 3, 1]


def test_a_batch_names_the_lane_of_each_row_however_it_was_put_together() -> None:
    lanes = [Lane("s", "0", 0), Lane("s", "1", 0)]
    datas = [Data({"x": n}, record=RecordContext("s", "t", offset=n, lane=lanes[n % 2])) for n in range(4)]
    batch = pipelines.Batch.of(datas, first=10)
    assert batch.lanes() == [lanes[0], lanes[1], lanes[0], lanes[1]]
    joined = pipelines.Batch.concat([batch.take(np.array([1])), pipelines.Batch.of(datas[:1], first=99)])
    assert joined.lanes() == [lanes[1], lanes[0]]
    window = pipelines.Batch(
        {}, 2, rows=np.array([11, 12, 13, 10]), splits=np.array([0, 3, 4], np.int64), origin=batch.origin
    )
    assert window.lanes() == [lanes[1], lanes[0]]
    assert pipelines.Batch.of([Data({"x": 1})]).lanes() == [None]
