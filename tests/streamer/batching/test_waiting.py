"""How long records wait where `batch.target_latency` says how long results may take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines.data.rowrange import row_range
from streamer.batching.batcher import SoftBatcher
from streamer.batching.residence import FEW, Arrivals, Residence
from streamer.batching.waiting import WaitRule
from streamer.definition.settings import BatchSettings
from streamer.observe.metrics import RunMeters


def after(rule: WaitRule, *seconds: float) -> float:
    """The wait after batches that took so long."""
    for took in seconds:
        rule.handed_over(100.0, 100.0 + took)
    return rule.max_wait


def test_before_eight_batches_records_wait_a_quarter_of_the_target_or_5_ms() -> None:
    assert WaitRule(0.008).max_wait == 0.002
    rule = WaitRule(1.0)
    assert after(rule, *[0.3] * 7) == 0.005
    assert after(rule, 0.3) == pytest.approx(0.6)


def test_records_wait_for_what_nine_of_ten_batches_leave_of_nine_tenths_of_the_target() -> None:
    assert after(WaitRule(0.1), *[0.01] * 57, *[0.5] * 7) == 0.0
    assert after(WaitRule(0.1), *[0.01] * 58, *[0.5] * 6) == pytest.approx(0.08)


def test_only_the_last_64_batches_count() -> None:
    rule = WaitRule(0.1)
    rng = np.random.default_rng(0)
    took = rng.exponential(0.02, 500).tolist()
    for at, seconds in enumerate(took):
        wait = after(rule, seconds)
        if at >= 7:
            expected = np.quantile(took[max(0, at - 63) : at + 1], 0.9, method="inverted_cdf")
            assert wait == pytest.approx(max(0.0, 0.09 - expected))


def test_batches_that_take_longer_than_the_target_for_a_minute_are_reported_once() -> None:
    rule, log, meters = WaitRule(0.02), Log(), RunMeters()
    for now in range(200):
        rule.handed_over(now - 0.03, now)
        if rule.is_out_of_reach(now):
            log.warning("", now=now)
    assert log.said == [{"now": 67}], "the first eight batches say nothing, then a minute is over"
    after(rule, *[0.001] * 64)
    for now in range(300, 400):
        rule.handed_over(now - 0.03, now)
        if rule.is_out_of_reach(now):
            log.warning("", now=now)
    assert len(log.said) == 2
    residence = Residence(meters, BatchSettings(target_latency=0.02), log)
    assert residence.rule is not None
    residence.rule._exceeded_since = 0.0
    residence.rule.handed_over(0.0, 1.0)
    residence.handed_over(None, range(0), -1.0)
    assert log.said[-1]["target_latency"] == 0.02


def test_a_soft_batcher_asks_the_rule_how_long_it_waits() -> None:
    batcher = SoftBatcher(10, 1000, 60.0)
    batcher.wait_rule = rule = WaitRule(1.0)
    batcher._since = 5.0
    assert batcher.deadline() == 5.005
    after(rule, *[0.3] * 8)
    assert batcher.deadline() == pytest.approx(5.6)


@pytest.mark.parametrize("blocks", [1, 3, 2 * FEW])
def test_each_record_counts_from_its_own_arrival(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    monkeypatch.setattr("streamer.batching.residence.time.monotonic", lambda: 100.0)
    meters = RunMeters()
    residence = Residence(meters, BatchSettings(target_latency=3.5), None)
    arrivals = Arrivals(40, [(100.0 - at, 2) for at in range(blocks, 0, -1)])
    residence.handed_over(arrivals, row_range(40, 2 * blocks), 99.0)
    assert meters.residence.count == 2 * blocks
    assert meters.residence.total == blocks * (blocks + 1)
    assert meters.late.value == 2 * max(0, blocks - 3)


def test_of_a_part_of_a_batch_only_its_own_records_count() -> None:
    arrivals = Arrivals(40, [(1.0, 2), (2.0, 3), (3.0, 1)])
    assert arrivals.of(row_range(40, 6)) == [(1.0, 2), (2.0, 3), (3.0, 1)]
    assert arrivals.of(row_range(41, 3)) == [(1.0, 1), (2.0, 2), (3.0, 0)]
    assert arrivals.of(np.array([40, 44, 45])) == [(1.0, 1), (2.0, 1), (3.0, 1)]
    assert arrivals.of(row_range(43, 0)) == [(1.0, 0), (2.0, 0), (3.0, 0)]
    assert Arrivals(40, [(1.0, 6)]).of(row_range(43, 2)) == [(1.0, 2)]


def test_without_a_target_records_are_counted_and_none_is_late() -> None:
    meters = RunMeters()
    residence = Residence(meters, BatchSettings(), None)
    residence.handed_over(Arrivals(0, [(0.0, 4)]), row_range(0, 4), 0.0)
    assert (residence.rule, meters.late.value, meters.batch_wait.value) == (None, 0, 0.005)
    assert meters.residence.count == 4


class Log:
    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def warning(self, _: str, **fields: Any) -> None:
        self.said.append(fields)
