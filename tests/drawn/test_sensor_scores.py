"""The picture of the machines' scores is of the model and the machines as they are today."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from drawn import sensorscores
from drawn.sensorscores import IN_A_ROW, LIMIT, Course

from pipelines import Change
from streamer.demo.machines import example

FILE = Path(__file__).parents[2] / "docs" / "pictures" / "sensor-scores.svg"


@pytest.fixture(scope="module")
def course() -> Course:
    return sensorscores.measured()


def test_every_fault_is_found_in_the_time_in_which_it_grows_and_no_sound_machine_gives_an_alert(course: Course) -> None:
    assert len(course.faults) == 4
    for failing in course.faults:
        after = course.alert(failing)
        assert after is not None
        assert 0 < after < failing.grows
    assert course.false_alerts() == 0


def test_alerts_are_those_of_the_service() -> None:
    (step,) = example.services("localhost:1883", "drawn")[1].pipeline.steps
    assert isinstance(step, Change)
    assert (step.on, step.after) == (LIMIT, IN_A_ROW)


def test_at_the_end_the_four_and_no_others_are_above_the_limit(course: Course) -> None:
    last = np.median(course.scores[-30:], axis=0)
    above = {name for name, score in zip(course.machines, last, strict=True) if score > LIMIT}
    assert above == {failing.machine for failing in course.faults}


def test_the_file_in_the_documentation_shows_these_scores(course: Course) -> None:
    fresh, kept = sensorscores.drawing(course), FILE.read_text()
    assert fresh.count("<polyline") == 12
    number = re.compile(r"\d+\.\d+")
    # Processors round the last digits differently.
    assert number.sub("N", fresh) == number.sub("N", kept)
    drawn, there = (np.array(number.findall(text), float) for text in (fresh, kept))
    assert np.allclose(drawn, there, rtol=0, atol=0.5)
