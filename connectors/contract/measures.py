"""The checks of measures in the contracts of sources and sinks."""

from __future__ import annotations

import time

from connectors.measures import Measure
from connectors.sink import Sink
from connectors.source import Source


def check_measures(connector: Source | Sink) -> None:
    """Check that its metrics are returned at once, from any thread, and that none is there twice.

    Raises:
        AssertionError: They are not.
    """
    began = time.monotonic()
    measures = list(connector.metrics())
    assert time.monotonic() - began < 1
    assert all(isinstance(measure, Measure) for measure in measures)
    series = [(measure.name, tuple(sorted(measure.labels.items()))) for measure in measures]
    assert len(set(series)) == len(series), f"a measure is returned twice: {measures}"
    for name in {measure.name for measure in measures}:
        assert len({tuple(measure.labels) for measure in measures if measure.name == name}) == 1, (
            f"{name} has different labels"
        )
