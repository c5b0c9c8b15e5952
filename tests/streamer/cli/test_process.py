"""The garbage collector's threshold: `streamer run` raises it, a service inside somebody's program does not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines import Data
from streamer import testing
from streamer.agent.agent import Agent
from streamer.cli.process import COLLECT_AFTER, collect_less_often, pass_over_what_stays
from streamer.cli.together import run_together
from streamer.definition.service import Service

pytestmark = pytest.mark.usefixtures("thresholds")


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.unfreeze()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class Node:
    next: Node


def same(data: Data) -> Data:
    return data


@pytest.mark.parametrize("before", [(700, 10, 10), (0, 10, 10), (500_000, 5, 5)])
def test_cycles_are_looked_for_less_often_unless_they_are_anyway(before: tuple[int, int, int]) -> None:
    gc.set_threshold(*before)
    collect_less_often()
    young, *older = gc.get_threshold()
    assert young == (COLLECT_AFTER if before[0] == 700 else before[0])
    assert older == list(before[1:])


def test_what_is_there_when_services_are_open_is_not_looked_through_again() -> None:
    stays: list[list[int]] = [[]]
    pass_over_what_stays()
    comes: list[list[int]] = [[]]
    looked_at = {id(each) for each in gc.get_objects()}
    assert id(comes) in looked_at
    assert id(stays) not in looked_at


def test_cycles_of_the_start_are_freed_before_that() -> None:
    cycle = Node()
    cycle.next = cycle
    gone = weakref.ref(cycle)
    gc.disable()
    try:
        del cycle
        assert gone() is not None
        pass_over_what_stays()
    finally:
        gc.enable()
    assert gone() is None


def test_a_command_that_runs_services_passes_over_what_stays(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"x": 1}\n', encoding="utf-8")
    ends = {
        "source": {"type": "file", "path": str(tmp_path / "in.jsonl"), "format": "jsonl", "codec": "json"},
        "sink": {"type": "file", "path": str(tmp_path / "out.jsonl"), "format": "jsonl", "codec": "json"},
    }
    agent = Agent(Service.model_validate({"name": "s", "pipeline": [same], **ends}))
    before = gc.get_freeze_count()
    (summary,) = run_together([agent], started=lambda agent: None)
    assert (summary.ok, gc.get_freeze_count() > before + 10_000) == (1, True)


def test_a_service_inside_a_program_leaves_the_collector_alone() -> None:
    gc.set_threshold(700, 10, 10)
    ends = {"source": {"type": "memory", "topic": "in"}, "sink": {"type": "memory", "topic": "out"}}
    service = Service.model_validate({"pipeline": [same], **ends})
    assert len(testing.run(service, [Data({"x": 1})]).results) == 1
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0
