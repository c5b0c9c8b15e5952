"""Metrics that the steps' own code keeps, as families for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from pipelines.observe.metrics import LABELS, Counter, Gauge, Labels, Meter, Metrics, Timer


def families(service: str, metrics: Metrics) -> Iterator[Metric]:
    """A family for each name, with the labels `service` and `step`, those of label counts with `label` too.

    Counters get `_total` behind their names, timers `_seconds`.
    """
    by_name: dict[str, list[tuple[str, Meter]]] = {}
    for step, meter in metrics.all():
        by_name.setdefault(meter.name, []).append((step, meter))
    # The service's own is there from the start.
    yield _labels(service, LABELS, "Samples that a step gave this label.", by_name.pop(LABELS, []))
    for name, meters in by_name.items():
        yield _family(service, name, meters)


def _family(service: str, name: str, meters: list[tuple[str, Meter]]) -> Metric:
    example = meters[0][1]
    text = next((meter.text for _, meter in meters if meter.text), f"A {example.kind} of a step.")
    if isinstance(example, Timer):
        return _timers(service, name if name.endswith("_seconds") else f"{name}_seconds", text, meters)
    if isinstance(example, Labels):
        return _labels(service, name, text, meters)
    kind = CounterMetricFamily if isinstance(example, Counter) else GaugeMetricFamily
    numbers = kind(name, text, labels=("service", "step"))
    for step, meter in meters:
        if isinstance(meter, (Counter, Gauge)):
            numbers.add_metric((service, step), meter.value)
    return numbers


def _labels(service: str, name: str, text: str, meters: list[tuple[str, Meter]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("service", "step", "label"))
    for step, meter in meters:
        if isinstance(meter, Labels):
            for label, count in list(meter.counts.items()):
                family.add_metric((service, step, label), float(count))
    return family


def _timers(service: str, name: str, text: str, meters: list[tuple[str, Meter]]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=("service", "step"))
    for step, meter in meters:
        if isinstance(meter, Timer):
            family.add_metric((service, step), meter.histogram.buckets(), meter.histogram.total)
    return family
