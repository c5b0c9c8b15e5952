"""What steps with a state for each key know outlives the process."""

from __future__ import annotations

import pytest
from builtintypes import STEPS

from pipelines import Change, Dedup, Join, Sequence, Step, Window

KEYED = [
    Window(by="device", size=4, values=["x"], output_name="samples"),
    Window(by="device", size="1m", aggregate={"most": {"max": "x"}}),
    Dedup(by="device", span=10),
    Change(by="device", value="x", on=1),
    Join(by="part", topics={"left": "a", "right": "b"}, within=5),
]


@pytest.mark.parametrize("step", KEYED, ids=lambda step: step.type_name)
def test_a_service_saves_what_the_step_knows(step: Step) -> None:
    with Sequence([step]).open() as executor:
        assert list(executor.saving_steps.values()) == [step]


def test_no_step_is_left_out() -> None:
    keyed = {step.type_name for step in STEPS if ".steps.keyed." in step.__module__}
    assert keyed == {step.type_name for step in KEYED}
