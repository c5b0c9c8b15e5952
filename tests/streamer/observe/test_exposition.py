"""Every kind of metric, as the text that Prometheus reads: exposition.txt, name for name and value for value."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from connectors.measures import Measure
from pipelines.data.batch import Batch
from pipelines.observe.observing import StepRun
from streamer.observe.metrics import Measured, ServiceMeters
from streamer.observe.statemeters import StateMeters

EXPOSITION = Path(__file__).with_name("exposition.txt")


def test_all_metrics_are_exported_to_the_letter() -> None:
    registry = CollectorRegistry()
    registry.register(meters())
    # Only of counters and histograms: when the exporter has begun to count.
    lines = [line for line in generate_latest(registry).decode().splitlines(keepends=True) if "_created" not in line]
    # In another order they say the same.
    assert sorted(lines) == sorted(EXPOSITION.read_text(encoding="utf-8").splitlines(keepends=True))


def meters() -> ServiceMeters:
    """Those of a service with two sources, of which all that can be counted was."""
    found = ServiceMeters("plant", ["kafka", "line"])
    for place, source in enumerate(found.sources.values()):
        source.batches(130 + place, 64, "records")
        source.batches(3, 64, "wait")
        source.stage("poll", 0.0, 0.25, 3)
        source.stage("decode", 0.0, 0.0625, 3)
    found.sources["line"].untimed["line"] += 7
    found.run.outcomes["kafka", "ok"] += 130
    found.run.outcomes["line", "dead"] += 2
    found.run.dropped["view"] += 29
    found.run.transaction("committed", 0.5)
    found.run.transaction("aborted", 64.0)
    found.run.stage("run", 0.0, 0.125, 64)
    found.run.stage("send", 0.0, 2.0, 64)
    found.run.latency.add_one(0.75, 3)
    found.run.residence.add_one(0.015625, 3)
    found.run.batch_wait.set(0.03125)
    state = StateMeters(iter((10.0, 11.0, 11.5)).__next__)
    state.saved(0.25, 4096, 8192)
    state.is_saved()
    state.load.add_one(2.0)
    state.passed_over.add(3)
    found.state = state.readings
    found.run.late.add(2)
    for step in ("0:ONNX", "outer/b"):
        found.run.step(StepRun(step, "OnnxRunner", 0.0, 0.03125, 1, (), Batch({}, 0), {"WireError": 3}))
    found.in_flight = lambda: 1234
    found.lag = lambda: {("t", 3): 40, ("t", 4): 0}
    found.connectors = lambda: [
        Measured(
            "source line", "mqtt", lambda: [Measure("lost", "Lost.", 2), Measure("window", "Window.", 20, "gauge")]
        ),
        Measured("source bad", "bus", lambda: [Measure("Not A Name", "", 1)]),
        Measured("sink view", "my-bus.v2", lambda: [Measure("sent", "Sent.", 5, labels={"camera": "gate"})]),
        Measured("sink alerts", "mqtt", lambda: [Measure("lost", "Another text.", 1), Measure("window", "", 1)]),
        Measured("sink more", "my-bus.v2", lambda: [Measure("sent", "Without a camera.", 1)]),
    ]
    for step in ("a", "outer/b"):
        own = found.step_metrics.of(step)
        own.counter("requests", "Requests seen." if step == "outer/b" else "").add(3)
        own.gauge("level").set(0.25)
        own.timer("my.work").record(0.0078125)
        own.timer("wait_seconds", "Waiting.").record(16.0)
        own.labels("kinds", "Kinds.").add(5)
    labels = found.step_metrics.of("a").labels("streamer_labels", limit=1)
    labels.add("cat", 2)
    labels.add("dog", 5)
    found.step_metrics.of("a").counter("streamer_model_filled").add(7)
    found.step_metrics.of("outer/b").counter("streamer_step_retries").add(4)
    return found


def test_a_service_that_has_done_nothing_shows_its_metrics_all_the_same() -> None:
    types = {
        line.split()[2]: line.split()[3]
        for line in EXPOSITION.read_text(encoding="utf-8").splitlines()
        if line.startswith("# TYPE streamer_") and not any(part in line for part in ("bus", "mqtt", "streamer_state_"))
    }
    registry = CollectorRegistry()
    registry.register(ServiceMeters("plant", ["line"]))
    text = generate_latest(registry).decode()
    assert {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")} == types
