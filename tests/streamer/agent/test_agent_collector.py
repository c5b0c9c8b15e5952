"""What a running service changes in its process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pipelines import Data
from streamer import testing
from streamer.agent.agent import COLLECT_AFTER
from streamer.definition.service import Service


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def same(data: Data) -> Data:
    return data


def run() -> None:
    ends = {"source": {"type": "memory", "topic": "in"}, "sink": {"type": "memory", "topic": "out"}}
    service = Service.model_validate({"pipeline": [same], **ends})
    assert len(testing.run(service, [Data({"x": 1})]).results) == 1


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize("before", [(700, 10, 10), (0, 10, 10), (500_000, 5, 5)])
def test_cycles_are_looked_for_less_often_unless_they_are_anyway(before: tuple[int, int, int]) -> None:
    gc.set_threshold(*before)
    run()
    young, *older = gc.get_threshold()
    assert young == (COLLECT_AFTER if before[0] == 700 else before[0])
    assert older == list(before[1:])
