"""The garbage collector's threshold: `streamer run` raises it, a service inside somebody's program does not."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pipelines import Data
from streamer import testing
from streamer.cli.process import COLLECT_AFTER, collect_less_often
from streamer.definition.service import Service

pytestmark = pytest.mark.usefixtures("thresholds")


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def same(data: Data) -> Data:
    return data


@pytest.mark.parametrize("before", [(700, 10, 10), (0, 10, 10), (500_000, 5, 5)])
def test_cycles_are_looked_for_less_often_unless_they_are_anyway(before: tuple[int, int, int]) -> None:
    gc.set_threshold(*before)
    collect_less_often()
    young, *older = gc.get_threshold()
    assert young == (COLLECT_AFTER if before[0] == 700 else before[0])
    assert older == list(before[1:])


def test_a_service_inside_a_program_leaves_the_collector_alone() -> None:
    gc.set_threshold(700, 10, 10)
    ends = {"source": {"type": "memory", "topic": "in"}, "sink": {"type": "memory", "topic": "out"}}
    service = Service.model_validate({"pipeline": [same], **ends})
    assert len(testing.run(service, [Data({"x": 1})]).results) == 1
    assert gc.get_threshold() == (700, 10, 10)
