"""What a running service shows of its steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pipelines import ClassifierOutput, Data, Sequence
from pipelines.observe import metrics


def counting(data: Data) -> Data:
    seen = metrics.counter("requests")
    metrics.gauge("level").set(0.1 * seen.value)
    seen.add()
    return data


def finished(data: Data) -> Data:
    if data["x"] < 0:
        raise ValueError("negative")
    return Data({"y": data["x"]})


def page(meters: Any) -> dict[tuple[str, str], float]:
    """The samples by name and step, of those that have a step and no bucket."""
    registry = CollectorRegistry()
    registry.register(meters)
    return {
        (sample.name, sample.labels["step"]): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if "step" in sample.labels and "le" not in sample.labels
    }


def test_after_i_requests_the_page_of_a_service_says_i_and_a_tenth_of_i_minus_1(
    define: Callable[..., Any], serve: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    serving = serve(define(Sequence([counting, Sequence([counting, finished])])))
    for i in range(1, 5):
        serving.feed(i)
        eventually(lambda i=i: len(serving.results()) == i)
        found = page(serving.agent.meters)
        for step in ("0:PIPELINE/0:FUNCTION", "0:PIPELINE/1:PIPELINE/0:FUNCTION"):
            assert found["requests_total", step] == i
            assert found["level", step] == pytest.approx(0.1 * (i - 1))
            assert found["streamer_step_seconds_count", step] == i
        assert found["streamer_step_seconds_count", "0:PIPELINE"] == i


def test_an_error_inside_a_pipeline_is_counted_under_the_step_that_made_it(
    define: Callable[..., Any], serve: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    serving = serve(define(Sequence([finished])))
    serving.feed(1, -1)
    eventually(lambda: len(serving.buried()) == 1)
    assert serving.agent.meters.run.errors == {("0:PIPELINE/0:FUNCTION", "ValueError"): 1}


def test_a_classifying_service_counts_its_labels(
    define: Callable[..., Any], serve: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    def scored(data: Data) -> Data:
        return Data({"p": np.eye(2, dtype="f4")[data["x"]], "y": 0})

    serving = serve(define(Sequence([scored, ClassifierOutput(input_name="p", labels=("cat", "dog"))])))
    serving.feed(0, 1, 1)
    eventually(lambda: len(serving.results()) == 3)
    text = generate_latest(_registry(serving.agent.meters)).decode()
    step = 'step="0:PIPELINE/1:CLASSIFIER_OUTPUT"'
    assert f'streamer_labels_total{{label="cat",service="test",{step}}} 1.0' in text
    assert f'streamer_labels_total{{label="dog",service="test",{step}}} 2.0' in text


def _registry(meters: Any) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(meters)
    return registry


def test_each_record_is_counted_with_the_time_that_it_was_in_the_service(
    define: Callable[..., Any], serve: Callable[..., Any], eventually: Callable[..., None]
) -> None:
    serving = serve(define(finished, batch={"target_latency": "1h", "max_records": 4}))
    serving.feed(*range(8))
    serving.feed(-1)
    # The last record waits for others.
    eventually(lambda: len(serving.results()) == 8)
    serving.stop()
    meters = serving.agent.meters.run
    assert (meters.residence.count, meters.late.value) == (9, 0)
    assert serving.buried() == [-1]
