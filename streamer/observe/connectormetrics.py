"""Metrics that connectors keep, as families for Prometheus."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from connectors.measures import Measure

_log = logging.getLogger(__name__)
_OTHERS: Final = re.compile(r"[^a-z0-9_]")


class Measured(NamedTuple):
    """A connector of a service that may have measures."""

    part: str
    """`source NAME` or `sink NAME`."""
    type: str
    """As in the service file."""
    measures: Callable[[], Sequence[Measure]]


def connector_families(service: str, connectors: Iterable[Measured]) -> Iterator[Metric]:
    """A family for each name, with the labels `service` and `part`, and those of its measures.

    If a connector raises, the error is logged and its metrics are left out: the others must not be lost with them.
    """
    families: dict[str, tuple[CounterMetricFamily | GaugeMetricFamily, tuple[str, ...]]] = {}
    for part, kind, measures in connectors:
        try:
            found = list(measures())
        except Exception as error:  # noqa: BLE001 - a plug-in may fail in any way
            _log.warning("the measures of %s cannot be read: %s", part, error)
            continue
        for one in found:
            name = f"streamer_{_OTHERS.sub('_', kind.lower())}_{one.name}"
            of_kind = CounterMetricFamily if one.kind == "counter" else GaugeMetricFamily
            own = tuple(one.labels)
            made = of_kind(name, one.text, labels=("service", "part", *own)), own
            family, labels = families.setdefault(name, made)
            if isinstance(family, of_kind) and labels == own:
                family.add_metric((service, part, *one.labels.values()), float(one.value))
    for family, _ in families.values():
        yield family
