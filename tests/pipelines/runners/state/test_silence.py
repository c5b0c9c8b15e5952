"""`Silence`: a key is silent from its last record on, in ticks."""

from __future__ import annotations

import numpy as np
import pytest
from statefulrun import StatefulRun, record

from pipelines import Window
from pipelines.runners.state.silence import Silence


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
