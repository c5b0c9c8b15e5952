"""`Silence`: a key is silent from its last record on, in ticks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from statefulrun import StatefulRun, record

import pipelines
from pipelines import Batch, Window
from pipelines.runners.state.silence import Silence
from pipelines.runners.state.tickclock import TickClock
from pipelines.steps.code.pipeline import PipelineStep


def test_time_before_a_record_does_not_count_for_its_key() -> None:
    silence = Silence(0.5)
    silence.heard(np.array([0, 1]), 64)
    assert silence.due(10.0, np.array([0, 1])).tolist() == []
    silence.heard(np.array([1]), 64)
    assert silence.due(10.9, np.array([0, 1])).tolist() == [0]
    assert silence.due(11.4, np.array([0, 1])).tolist() == [0, 1]


def test_a_pause_counts_as_a_second() -> None:
    silence = Silence(1.5)
    silence.heard(np.array([70]), 128)
    assert [len(silence.due(now, np.array([70]))) for now in (0.0, 3600.0, 3600.4, 3600.5)] == [0, 0, 0, 1]


def test_a_key_whose_records_may_wait_is_not_silent() -> None:
    silence = Silence(0.5)
    silence.heard(np.array([0]), 64)
    key = np.array([0])
    assert silence.due(10.0, key, 9.0).tolist() == []
    assert silence.due(10.9, key, 10.4).tolist() == []
    assert silence.due(11.5, key, 10.6).tolist() == [0]


def test_the_records_of_a_pause_may_wait_too() -> None:
    """It counts as a second, so by the computer's clock everything was run a second ago at most."""
    silence = Silence(0.5)
    silence.heard(np.array([0]), 64)
    key = np.array([0])
    assert silence.due(0.0, key, 0.0).tolist() == []
    assert silence.due(3600.0, key, 3599.4).tolist() == []
    assert silence.due(3600.1, key, 3599.6).tolist() == [0]


def test_how_far_all_was_run_does_not_go_back() -> None:
    clock = TickClock()
    for now, caught_up in [(10.0, math.inf), (10.5, 10.4), (11.0, 10.2), (11.5, -math.inf)]:
        clock.tick(now, caught_up)
    assert clock.seconds == 1.5
    assert clock.caught_up == pytest.approx(0.4)


@pytest.mark.parametrize("size", [4, "10s"])
def test_a_window_does_not_end_by_idle_while_records_wait(size: int | str) -> None:
    emit = {"short": "emit"} if size == 4 else {}
    run = StatefulRun(Window(by="d", size=size, values="x", output_name="s", idle="500ms", **emit))
    run.run([record({"d": "a", "x": 0}, 0)])
    for second in range(60):
        run.tick(second, 0.4)
    run.run([record({"d": "a", "x": 1}, 1)])
    run.tick(60, 59.9)
    assert not run.outcomes.emitted
    run.tick(61, 60.5)
    assert [values["count"] for values in run.outcomes.values] == [2]


@pytest.mark.parametrize("size", [4, "10s"])
def test_a_window_does_not_end_by_idle_while_its_records_come(size: int | str) -> None:
    """A batch may take longer than `idle`."""
    emit = {"short": "emit"} if size == 4 else {}
    run = StatefulRun(Window(by="d", size=size, values="x", output_name="s", idle="500ms", **emit))
    run.tick(0.0)
    for number in range(3):
        run.run([record({"d": "a", "x": number}, number)])
        run.tick(0.9 * (number + 1))
    assert not run.outcomes.emitted
    run.tick(3.3)
    assert [values["count"] for values in run.outcomes.values] == [3]


def within(place: str) -> Any:
    step = Window(by="d", size=4, values="x", output_name="s", idle="500ms", short="emit")
    if place == "sequence":
        return pipelines.Sequence([step])
    if place == "pipeline in a step":
        return pipelines.Sequence([PipelineStep(pipeline=pipelines.Sequence([step]))])
    builder = pipelines.GraphBuilder()
    return builder.build(builder.input.then("window", step))


@pytest.mark.parametrize("place", ["sequence", "pipeline in a step", "graph"])
def test_every_pipeline_tells_its_steps_by_when_all_had_come_that_was_run(place: str) -> None:
    with within(place).open() as executor:
        executor.run_batch(Batch.of([record({"d": "a", "x": 0}, 0)]))
        sizes = [executor.tick(now, caught_up).batch.size for now, caught_up in [(0.0, 0.0), (0.9, 0.4), (1.8, 0.6)]]
        assert sizes == [0, 0, 1]
        executor.run_batch(Batch.of([record({"d": "a", "x": 0}, 1)], 1))
        assert [executor.tick(now).batch.size for now in (2.0, 2.6)] == [0, 1]
