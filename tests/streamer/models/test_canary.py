"""A variant gets more and more records, as long as it does no worse than the current version."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pipelines import Batch, Data
from pipelines.data.result import Result
from streamer.models.canary import Canary
from streamer.models.choice import Choice
from streamer.models.files import State
from streamer.models.settings import CanarySettings
from streamer.models.tally import Tally
from streamer.models.version import Version
from streamer.observe.logs import logger

EACH = 60.0


class Traffic:
    """A canary, and records that are divided as it says; its clock is moved by hand."""

    def __init__(self, **settings: Any) -> None:
        self.choice = Choice({"current": 90.0, "next": 10.0, "third": 0.0})
        self.tally = Tally(self.choice.names, labels=True)
        chosen = CanarySettings(**{"weights": (1, 10, 50, 100), "each": EACH, **settings})
        self.canary = Canary("next", chosen, self.choice, self.tally, logger())
        self.version = Version("4", State({}, ()))
        self.now = 0.0
        self.draw = random.Random(5)
        self.canary.look(self.version, self.now)

    @property
    def weights(self) -> tuple[float, float]:
        weights = self.choice.weights
        return weights["current"], weights["next"]

    def minute(
        self, errors: float = 0.0, slow: float = 1.0, label: str = "cat", sizes: tuple[int, int] = (8, 512)
    ) -> None:
        """A minute of records: those of the canary fail, take longer and have a label as given here."""
        for _ in range(40):
            self.run("current", self.draw.randint(*sizes) * self.weights[0] / 100, 0.0, 1.0, "cat")
            self.run("next", self.draw.randint(*sizes) * self.weights[1] / 100, errors, slow, label)
        self.now += EACH
        self.canary.look(self.version, self.now)

    def run(self, name: str, count: float, errors: float, slow: float, label: str) -> None:
        rows = round(count)
        if not rows:
            return
        failed = {row: ValueError() for row in range(rows) if self.draw.random() < errors}
        emitted = Batch.of([Data({"label": label})] * (rows - len(failed)))
        seconds = slow * (0.001 + 0.00002 * rows) * self.draw.uniform(0.8, 1.25)
        self.tally.add(name, rows, Result(emitted, failed), seconds)


def test_an_equal_version_reaches_all_records_and_stays() -> None:
    traffic = Traffic()
    seen = [traffic.weights]
    for _ in range(8):
        traffic.minute()
        seen.append(traffic.weights)
    assert list(dict.fromkeys(seen)) == [(99.0, 1.0), (90.0, 10.0), (50.0, 50.0), (0.0, 100.0)]
    traffic.minute(errors=0.5)
    assert traffic.weights == (0.0, 100.0)
    assert traffic.version.state == "READY"


@pytest.mark.parametrize("seed", range(20))
def test_an_equal_version_is_not_thought_worse_by_chance(seed: int) -> None:
    traffic = Traffic(max_labels=0.1)
    traffic.draw.seed(seed)
    for _ in range(6):
        traffic.minute()
    assert traffic.version.state == "READY"


@pytest.mark.parametrize(
    ("worse", "reason"),
    [
        ({"errors": 0.05}, r"\d\.\d% of \d+ records failed, and 0\.0% of \d+ in current"),
        ({"slow": 2.0}, r"takes \d+\.\d\d ms, [12]\.\d times as long as in current"),
        ({"label": "dog"}, r'have the label "(cat|dog)", and'),
    ],
)
def test_a_worse_version_gets_no_records_any_more_and_the_reason_has_the_numbers(worse: Any, reason: str) -> None:
    import re

    traffic = Traffic(weights=(10, 50), max_labels=0.2)
    for _ in range(2):
        traffic.minute(**worse)
    assert traffic.weights == (100.0, 0.0)
    assert traffic.version.state == "REJECTED"
    assert re.search(reason, traffic.version.reason), traffic.version.reason
    assert traffic.canary.rollbacks == 1
    traffic.minute()
    assert traffic.weights == (100.0, 0.0), "it stays so"
    traffic.choice.weigh("next", 5)
    traffic.minute(**worse)
    assert (traffic.version.state, traffic.version.reason) == ("READY", ""), "somebody has decided otherwise"


def test_another_version_begins_with_the_first_weight() -> None:
    traffic = Traffic()
    while traffic.version.state == "READY":
        traffic.minute(errors=0.3)
    traffic.version = Version("5", State({}, ()))
    traffic.canary.look(traffic.version, traffic.now)
    assert traffic.weights == (99.0, 1.0)
    assert traffic.canary.stage == 0


def test_few_records_prove_nothing_and_the_canary_waits() -> None:
    traffic = Traffic(records=10_000_000)
    for _ in range(5):
        traffic.minute(errors=0.5)
    assert traffic.weights == (99.0, 1.0)
    assert traffic.version.state == "READY"


def test_weights_that_somebody_sets_by_hand_stay() -> None:
    traffic = Traffic()
    traffic.choice.weigh("next", 5)
    for _ in range(5):
        traffic.minute()
    assert traffic.weights == (99.0, 5.0)


def test_smaller_parts_of_a_batch_are_not_slower_and_calls_of_one_size_do_not_deceive() -> None:
    """The canary's calls are a tenth of the others, and so take longer for each record."""
    for sizes in ((64, 64), (60, 68), (16, 512)):
        traffic = Traffic(weights=(10, 11, 12, 13))
        for _ in range(5):
            traffic.minute(sizes=sizes)
        assert traffic.version.state == "READY", traffic.version.reason


def test_a_call_that_something_else_held_up_proves_nothing() -> None:
    traffic = Traffic(records=20, weights=(50,))
    for _ in range(30):
        traffic.run("current", 1, 0.0, 1.0, "cat")
        traffic.run("next", 1, 0.0, 1.0, "cat")
    traffic.run("next", 1, 0.0, 40.0, "cat")
    traffic.now += 1
    traffic.canary.look(traffic.version, traffic.now)
    assert traffic.version.state == "READY", traffic.version.reason


@pytest.mark.parametrize("wrong", [(), (10, 10), (50, 10), (0, 10), (10, 200)])
def test_weights_rise(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="weights"):
        CanarySettings(weights=wrong)
