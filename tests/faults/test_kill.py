"""Services are killed, and members come and go, while tens of thousands of records pass. Nothing may be lost."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from exactlyonce import EXACTLY_ONCE, wait_for

pytestmark = pytest.mark.slow


def kill_again_and_again(ledger: Any, bench: Any, kills: int, seed: int) -> float:
    chance = random.Random(seed)
    # So many, and so slow, that the backlog outlasts the kills: 200 records take 100 ms or more, and a member lives for
    # two seconds or so after its first.
    records = 5000 * (kills + 1)
    ledger.write(records)
    made = bench(ledger)
    sleep = 0.1
    for _ in range(kills):
        member = made.start(sleep)
        wait_for(ledger, ledger.sample() + 1, 120, member)
        time.sleep(chance.uniform(0.0, 0.7))
        member.kill()
        ledger.sample()
    member = made.start()
    wait_for(ledger, records, 240, member)
    assert member.stop() == 0, member.text()
    return float(ledger.check())


@pytest.mark.usefixtures("hot_path")
@pytest.mark.timeout(600)
def test_nothing_is_lost_when_the_service_is_killed_twice(ledger: Any, bench: Any) -> None:
    duplicates = kill_again_and_again(ledger, bench, 2, seed=3)
    assert duplicates < 3, "far more was repeated than was in flight"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_nothing_is_lost_when_the_service_is_killed_ten_times(ledger: Any, bench: Any) -> None:
    print(f"\nrepeated: {kill_again_and_again(ledger, bench, 10, seed=10):.1%}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("extra", ["", EXACTLY_ONCE], ids=["at_least_once", "exactly_once"])
@pytest.mark.parametrize(
    "assignor",
    ["range", *[pytest.param(other, marks=pytest.mark.soak) for other in ("consumer", "cooperative-sticky")]],
)
def test_the_guarantee_holds_when_members_join_leave_and_die(
    ledger: Any, bench: Any, extra: str, assignor: str
) -> None:
    records = 16_000
    ledger.write(records)
    made = bench(ledger, extra, assignor=assignor)
    first = made.start(0.05)
    wait_for(ledger, 1, 120, first)
    second = made.start(0.05)
    wait_for(ledger, records // 4, 180, first, second)
    assert first.stop() == 0, first.text()
    third = made.start(0.02)
    wait_for(ledger, records // 2, 180, second, third)
    second.kill()
    wait_for(ledger, records, 240, third)
    assert third.stop() == 0, third.text()
    ledger.check(once=made.members if extra else None)
