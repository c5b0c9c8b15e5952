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
    found = list(connector.metrics())
    assert time.monotonic() - began < 1
    assert all(isinstance(one, Measure) for one in found)
    told = [(one.name, tuple(sorted(one.labels.items()))) for one in found]
    assert len(set(told)) == len(told), f"a measure is returned twice: {found}"
    for name in {one.name for one in found}:
        assert len({tuple(one.labels) for one in found if one.name == name}) == 1, f"{name} has different labels"
