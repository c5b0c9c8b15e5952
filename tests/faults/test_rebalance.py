"""Members come and go while the pipeline is slower than the topic: every partition must be read to its end.

A source that stands still pauses its partitions, and the client keeps what was paused over revocations: partitions once
stayed so for ever, in a group that seemed well.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from exactlyonce import wait_for

pytestmark = pytest.mark.slow

SLOW = 1.2
"""Seconds that a batch of 200 records takes: longer than a second without polling, after which a source pauses."""
BACK_PRESSURE = "limits: {batches: 1}"


def churn(ledger: Any, bench: Any, assignor: str, times: int, seed: int) -> None:
    """One member stays, a second one comes and goes `times` times; then there is more to read."""
    chance = random.Random(seed)
    # What one member takes a few seconds more for than all this.
    records = 1200 * times
    ledger.write(records, seed)
    made = bench(ledger, BACK_PRESSURE, assignor=assignor)
    first = made.start(SLOW)
    wait_for(ledger, 1, 120, first)
    for _ in range(times):
        second = made.start(SLOW)
        time.sleep(chance.uniform(2.0, 7.0))
        if chance.random() < 0.5:
            assert second.stop() == 0, second.text()
        else:
            second.kill()
        time.sleep(chance.uniform(0.0, 3.0))
    ledger.write(600, seed + 1)
    wait_for(ledger, records + 600, 240, first)
    assert first.stop() == 0, first.text()
    ledger.check()


@pytest.mark.timeout(600)
def test_every_partition_is_read_to_its_end_when_members_come_and_go_under_back_pressure(
    ledger: Any, bench: Any
) -> None:
    churn(ledger, bench, "range", times=2, seed=6)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("assignor", ["range", "consumer", "cooperative-sticky"])
def test_every_partition_is_read_to_its_end_with_every_assignor(
    ledger: Any, bench: Any, assignor: str, seed: int
) -> None:
    churn(ledger, bench, assignor, times=6, seed=100 * seed)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("assignor", ["range", "consumer", "cooperative-sticky"])
def test_every_partition_is_read_to_its_end_after_a_broker_stood_still_for_a_minute(
    private_kafka: Any, ledger_on: Any, bench: Any, assignor: str
) -> None:
    ledger = ledger_on(private_kafka.bootstrap)
    ledger.write(4000)
    made = bench(ledger, BACK_PRESSURE, assignor=assignor)
    members = [made.start(0.2), made.start(0.2)]
    wait_for(ledger, 200, 120, *members)
    private_kafka.freeze()
    time.sleep(60)
    private_kafka.thaw()
    ledger.write(2000, seed=2)
    wait_for(ledger, 6000, 240, *members)
    for member in members:
        assert member.stop() == 0, member.text()
    ledger.check()
