from __future__ import annotations

from typing import Any

import pipelines
from pipelines.observe.metrics import Metrics, summed


def readings(metrics: Metrics) -> dict[tuple[str, ...], Any]:
    return {(reading.name, *labels): value for reading in metrics.readings() for labels, value in reading.samples}


def test_metrics_of_all_executors_are_shown_as_sums() -> None:
    parts = [Metrics(), Metrics(), Metrics()]
    for number, part in enumerate(parts, 1):
        step = part.of("step")
        step.counter("records", "Records.").add(number)
        step.timer("wait").record(0.5 * number)
        step.labels("kinds", limit=2).add("cat", number)
        step.labels("kinds").add(f"only {number}")
    parts[2].of("other").counter("rare").add()
    values = readings(summed(parts))
    assert values["records", "step"] == 6
    assert values["rare", "other"] == 1
    assert (values["wait_seconds", "step"].count, values["wait_seconds", "step"].total) == (3, 3.0)
    # The limit of labels holds for the sum, too.
    assert {key: value for key, value in values.items() if key[0] == "kinds"} == {
        ("kinds", "step", "cat"): 6,
        ("kinds", "step", "only 1"): 1,
        ("kinds", "step", "other"): 2,
    }
    assert {reading.name: reading.text for reading in summed(parts).readings()}["records"] == "Records."


def test_a_gauge_shows_what_was_set_last_in_any_executor() -> None:
    first, second = Metrics(), Metrics()
    for part, value in ((first, 1.0), (second, 2.0), (first, 3.0)):
        part.of("step").gauge("level").set(value)
    assert readings(summed([first, second]))["level", "step"] == 3.0
    assert readings(summed([second, first]))["level", "step"] == 3.0


def test_a_gauge_that_is_only_changed_is_summed() -> None:
    parts = [Metrics(), Metrics()]
    for part in parts:
        part.of("step").gauge("open").add(2)
    assert readings(summed(parts))["open", "step"] == 4.0


def test_a_metric_of_another_kind_in_another_executor_does_no_harm() -> None:
    first, second = Metrics(), Metrics()
    first.of("step").counter("x").add(2)
    second.of("step").gauge("x").set(9)
    assert readings(summed([first, second]))["x", "step"] == 2


def test_the_metrics_of_one_executor_are_its_own() -> None:
    with pipelines.Sequence([lambda data: data]).open() as executor:
        assert summed([executor.metrics]) is executor.metrics
