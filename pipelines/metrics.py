"""Metrics that a step's own code keeps: `pipelines.metrics.counter("hits").add()`, from `pipelines.observe.metrics`."""

from pipelines.observe.meters import Counter, Gauge, Labels, Timer
from pipelines.observe.metrics import counter, gauge, labels, timer

__all__ = ["Counter", "Gauge", "Labels", "Timer", "counter", "gauge", "labels", "timer"]
