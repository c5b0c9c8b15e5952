"""When failures are the records' and when they are everyone's."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import pipelines
from pipelines import Data
from pipelines.errors import StepError
from streamer import testing
from streamer.definition.service import Service
from streamer.delivery.failures import FailureWatch


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Python's collector of cycles does nothing meanwhile."""
    gc.disable()
    yield
    gc.enable()


def failing(rows: range, step: str = "0:ONNX") -> dict[int, Exception]:
    return {row: StepError("no", step=step) for row in rows}


def test_a_few_bad_records_are_no_reason_to_stop() -> None:
    watch = FailureWatch(0.5, 200)
    for _ in range(10):
        watch.add(100, failing(range(30)))
        assert watch.broken is None
        assert watch.suspect is None


def test_a_step_that_fails_for_more_than_half_stops_the_service() -> None:
    watch = FailureWatch(0.5, 200)
    watch.add(200, failing(range(101)))
    assert watch.broken == "0:ONNX"
    assert "101 of the last 200" in watch.text()


def test_too_few_rows_are_suspect_but_not_proof() -> None:
    watch = FailureWatch(0.5, 200)
    watch.add(10, failing(range(10)))
    assert watch.suspect == "0:ONNX"
    assert watch.broken is None


def test_failures_of_different_steps_are_not_added_up() -> None:
    watch = FailureWatch(0.5, 200)
    watch.add(200, {**failing(range(90), "a"), **failing(range(90, 180), "b")})
    assert watch.broken is None


def test_old_failures_are_forgotten() -> None:
    watch = FailureWatch(0.5, 200)
    watch.add(150, failing(range(150)))
    watch.add(100, {})
    watch.add(100, {})
    assert watch.suspect is None


def test_a_ratio_of_one_never_stops() -> None:
    watch = FailureWatch(1.0, 10)
    watch.add(100, failing(range(100)))
    assert watch.broken is None


@pytest.mark.usefixtures("uncollected")
def test_a_record_that_failed_leaves_nothing_of_its_batch_behind() -> None:
    class Large:
        pass

    left: list[weakref.ref[Any]] = []

    def function(data: Data) -> Data:
        large = Large()
        left.append(weakref.ref(large))
        if data["n"] == 1:
            try:
                raise KeyError("first")
            except KeyError as error:
                raise ValueError("no") from error
        return data

    fields: dict[str, Any] = {
        "source": {"type": "memory", "topic": "in"},
        "pipeline": pipelines.Sequence([function]),
        "sink": {"type": "memory", "topic": "out"},
        "dead_letter": {"type": "memory", "topic": "dead"},
    }
    report = testing.run(Service(**fields), [Data({"n": number}) for number in range(3)])
    assert len(report.dead) == 1
    assert len(left) == 3
    assert not any(one() for one in left)
