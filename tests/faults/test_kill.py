"""Services are killed, and members come and go, while tens of thousands of records pass. Nothing may be lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.usefixtures("hot_path"), pytest.mark.slow]

RECORDS = 50_000


def wait_for(ledger: Any, count: int, seconds: float, alive: Callable[[], Any]) -> None:
    """Until `count` records are committed; samples on the way."""
    deadline = time.monotonic() + seconds
    while ledger.sample() < count:
        alive()
        assert time.monotonic() < deadline, f"{ledger.sample()} of {count} records are committed"
        time.sleep(0.3)


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
        before = ledger.sample()
        deadline = time.monotonic() + 120
        while ledger.sample() <= before:
            assert member.process.poll() is None, member.text()
            assert time.monotonic() < deadline, member.text()
            time.sleep(0.2)
        time.sleep(chance.uniform(0.0, 0.7))
        member.kill()
        ledger.sample()
    member = made.start()

    def alive() -> None:
        assert member.process.poll() is None, member.text()

    wait_for(ledger, records, 240, alive)
    assert member.stop() == 0, member.text()
    return float(ledger.check())


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_the_service_is_killed_three_times(ledger: Any, bench: Any) -> None:
    duplicates = kill_again_and_again(ledger, bench, 3, seed=3)
    assert duplicates < 3, "far more was repeated than was in flight"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_nothing_is_lost_when_the_service_is_killed_ten_times(ledger: Any, bench: Any) -> None:
    print(f"\nrepeated: {kill_again_and_again(ledger, bench, 10, seed=10):.1%}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "assignor",
    ["range", *[pytest.param(other, marks=pytest.mark.soak) for other in ("consumer", "cooperative-sticky")]],
)
def test_nothing_is_lost_when_members_join_and_leave(ledger: Any, bench: Any, assignor: str) -> None:
    ledger.write(RECORDS)
    made = bench(ledger, assignor=assignor)
    first = made.start(0.02)
    wait_for(ledger, 1, 120, lambda: None)
    second = made.start(0.02)
    wait_for(ledger, RECORDS // 4, 180, lambda: None)
    assert first.stop() == 0, first.text()
    third = made.start(0.02)
    wait_for(ledger, RECORDS // 2, 180, lambda: None)
    second.kill()
    wait_for(ledger, RECORDS, 240, lambda: None)
    assert third.stop() == 0, third.text()
    ledger.check()
