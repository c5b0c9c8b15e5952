"""Metrics of steps: counters, gauges, timers and label counts that their own code keeps.

A runner takes them from `OpenContext.metrics` when it opens; a function that is a step calls `counter`, `gauge`,
`timer` and `labels` of this module while it runs. The numbers are those of one open pipeline: `executor.metrics`;
`summed` are those of several.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from pipelines.errors import DefinitionError
from pipelines.observe.meters import MAX_LABELS, Counter, Gauge, Labels, Meter, Reading, Timer

OWN: Final = "streamer_"
"""How the names of a service's own metrics begin; steps of others must not use it."""

LABELS: Final = "streamer_labels"
"""Name of the metric in which classifying steps count their labels."""
FILLED: Final = "streamer_model_filled"
"""Name of the metric in which models of a fixed batch count the samples that their calls are filled up with."""
RETRIES: Final = "streamer_step_retries"
"""Name of the metric in which executors count the records that they run again."""
RETRIES_TEXT: Final = "Records that a step ran again."
KEYS: Final = "streamer_state_keys"
"""Name of the metric in which steps with a state for each key say how many they remember."""
EVICTED: Final = "streamer_state_evicted"
"""Name of the metric in which such steps count keys that they forgot because there were too many."""
LATE_RECORDS: Final = "streamer_window_late"
"""Name of the metric in which windows by time count the records that came after their windows had closed."""
SHORT_WINDOWS: Final = "streamer_window_short"
SHORT_HELP: Final = "Windows by count that ended before they were full."
"""Name of the metric in which windows by count are counted that ended before they were full."""
JOIN_WAITING: Final = "streamer_join_waiting"
"""Name of the metric in which JOIN says how many records wait for those of other topics."""
JOIN_MISSING: Final = "streamer_join_missing"
"""Name of the metric in which it counts those for which none came."""
JOIN_EVICTED: Final = "streamer_join_evicted"
"""Name of the metric in which it counts those that no longer wait because there are too many."""
LOOKUP_MISSING: Final = "streamer_lookup_missing"
"""Name of the metric in which LOOKUP counts the records that its table has no row for."""
LOOKUP_ROWS: Final = "streamer_lookup_rows"
"""Name of the metric in which it says how many rows its table has."""
LOOKUP_OUTDATED: Final = "streamer_lookup_outdated"
"""Name of the metric in which it says that a newer table cannot be read."""
_SERVICES: Final = frozenset(
    {
        *(LABELS, FILLED, RETRIES, KEYS, EVICTED, LATE_RECORDS, SHORT_WINDOWS),
        *(JOIN_WAITING, JOIN_MISSING, JOIN_EVICTED, LOOKUP_MISSING, LOOKUP_ROWS, LOOKUP_OUTDATED),
    }
)

Kind = TypeVar("Kind", bound=Meter)


class StepMetrics(Mapping[str, Meter]):
    """The metrics of one step, by name. Asking for one that there is gives that one.

    Names are those of Prometheus: letters, digits and `_`; dots and dashes become `_`. `DefinitionError` for another
    name, for one that begins with `streamer_`, and for one that is a metric of another kind already, in any step.
    """

    def __init__(self, step: str, kinds: dict[str, str]) -> None:
        self.step = step
        self._kinds = kinds
        self._meters: dict[str, Meter] = {}

    def counter(self, name: str, text: str = "") -> Counter:
        """The counter `name`: a number that only grows."""
        return self._meter(Counter, name, lambda known: Counter(known, text))

    def gauge(self, name: str, text: str = "") -> Gauge:
        """The gauge `name`: a number that goes up and down."""
        return self._meter(Gauge, name, lambda known: Gauge(known, text))

    def timer(self, name: str, text: str = "") -> Timer:
        """The timer `name`: a histogram of durations in seconds."""
        return self._meter(Timer, name, lambda known: Timer(known, text))

    def labels(self, name: str, text: str = "", *, limit: int = MAX_LABELS) -> Labels:
        """The counts `name` by label, for at most `limit` labels."""
        return self._meter(Labels, name, lambda known: Labels(known, text, limit))

    def _meter(self, kind: type[Kind], given: str, make: Callable[[str], Kind]) -> Kind:
        meter = self._meters.get(given)
        if meter is None:
            name = _checked(given)
            known = self._kinds.setdefault(name, kind.kind)
            if known != kind.kind:
                raise DefinitionError(f'the metric "{name}" is a {known} already; give the {kind.kind} another name')
            meter = self._meters.setdefault(name, make(name))
        if not isinstance(meter, kind):
            raise DefinitionError(f'the metric "{given}" is a {meter.kind} already; give the {kind.kind} another name')
        return meter

    def __getitem__(self, name: str) -> Meter:
        return self._meters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._meters))

    def __len__(self) -> int:
        return len(self._meters)

    def __repr__(self) -> str:
        return repr(self._meters)


class Metrics(Mapping[str, StepMetrics]):
    """The metrics of the steps of one open pipeline: `executor.metrics["step"]["name"].value`."""

    def __init__(self) -> None:
        self._steps: dict[str, StepMetrics] = {}
        self._kinds: dict[str, str] = {}

    def of(self, step: str) -> StepMetrics:
        """The metrics of one step, which need not have any yet."""
        metrics = self._steps.get(step)
        return self._steps.setdefault(step, StepMetrics(step, self._kinds)) if metrics is None else metrics

    def exchange(self, other: Metrics, step: str) -> None:
        """Have the metrics that `other` has of a step, which gets those that are here."""
        self._steps[step], other._steps[step] = other.of(step), self.of(step)

    def all(self) -> list[tuple[str, Meter]]:
        """Every metric with the name of its step."""
        return [(step, meter) for step, metrics in list(self._steps.items()) for meter in list(metrics.values())]

    def readings(self) -> Iterator[Reading]:
        """Every metric for the exporter, with the label `step`. The names of timers get `_seconds` at their end.

        Of a metric that several steps have the first help text counts.
        """
        # The service's own are there from the start.
        yield Reading(LABELS, "Samples that a step gave this label.", "counter", ("step", "label"), ())
        yield Reading(FILLED, "Samples that calls of a model were filled up with.", "counter", ("step",), ())
        yield Reading(RETRIES, RETRIES_TEXT, "counter", ("step",), ())
        meters = self.all()
        texts = {meter.name: meter.text for _, meter in reversed(meters) if meter.text}
        for step, meter in meters:
            name, _, kind, labels, samples = meter.reading()
            text = texts.get(name, f"A {meter.kind} of a step.")
            if isinstance(meter, Timer) and not name.endswith("_seconds"):
                name += "_seconds"
            yield Reading(name, text, kind, ("step", *labels), [((step, *values), value) for values, value in samples])

    def __getitem__(self, step: str) -> StepMetrics:
        return self._steps[step]

    def __iter__(self) -> Iterator[str]:
        return iter([step for step, metrics in list(self._steps.items()) if len(metrics)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr({step: self[step] for step in self})

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(step)}</td><td>{meter.name}</td><td>{meter.kind}</td>"
            f"<td>{html.escape(repr(meter))}</td></tr>"
            for step, meter in self.all()
        )
        return f"<table><tr><th>step</th><th>metric</th><th>kind</th><th>value</th></tr>{rows}</table>"


def summed(metrics: Sequence[Metrics]) -> Metrics:
    """The metrics of all executors at this moment, by step and name.

    Counters, timers and counts by label are sums. A gauge has the value that was set last, in whichever executor; the
    amounts by which gauges were only changed (`add`) are summed. Where executors have metrics of one name and of
    different kinds, the kind of the first counts.
    """
    if len(metrics) == 1:
        return metrics[0]
    total = Metrics()
    latest: dict[tuple[str, str], int] = {}
    for part in metrics:
        for step, meter in part.all():
            _add(total, step, meter, latest)
    return total


def counter(name: str, text: str = "") -> Counter:
    """The counter `name` of the step that is running; outside of a step it is a counter that is not exported."""
    return _running().counter(name, text)


def gauge(name: str, text: str = "") -> Gauge:
    """The gauge `name` of the step that is running."""
    return _running().gauge(name, text)


def timer(name: str, text: str = "") -> Timer:
    """The timer `name` of the step that is running."""
    return _running().timer(name, text)


def labels(name: str, text: str = "", *, limit: int = MAX_LABELS) -> Labels:
    """The counts by label `name` of the step that is running."""
    return _running().labels(name, text, limit=limit)


def begin(metrics: StepMetrics) -> Any:
    """Make `counter`, `timer` and the like use `metrics` in this thread, until `end` is called with the returned token.

    For executors, which call it around each step.
    """
    return _CURRENT.set(metrics)


def end(token: Any) -> None:
    """Undo the `begin` that returned `token`."""
    _CURRENT.reset(token)


_CURRENT: ContextVar[StepMetrics | None] = ContextVar("streamer_step_metrics", default=None)
_NOBODY: Final = Metrics().of("")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _running() -> StepMetrics:
    metrics = _CURRENT.get()
    # Not `or`: an empty `StepMetrics` is false.
    return _NOBODY if metrics is None else metrics


def _checked(given: str) -> str:
    name = given.replace(".", "_").replace("-", "_")
    if _NAME.fullmatch(name) is None:
        raise DefinitionError(f'invalid metric name "{given}"; use letters, digits and _, not a digit first')
    if name.startswith(OWN) and name not in _SERVICES:
        raise DefinitionError(f'the metric "{given}" has a name of the service\'s own; begin it with another word')
    return name


def _add(total: Metrics, step: str, meter: Meter, latest: dict[tuple[str, str], int]) -> None:
    into = total.of(step)
    known = into.get(meter.name)
    if known is not None and type(known) is not type(meter):
        return
    if isinstance(meter, Counter):
        into.counter(meter.name, meter.text).add(meter.value)
    elif isinstance(meter, Timer):
        timer = into.timer(meter.name, meter.text)
        timer.histogram = timer.histogram.merge(meter.histogram)
    elif isinstance(meter, Labels):
        counts = into.labels(meter.name, meter.text, limit=meter.limit)
        for label, count in list(meter.counts.items()):
            counts.add(label, count)
    elif isinstance(meter, Gauge):
        _add_gauge(into.gauge(meter.name, meter.text), meter, latest, (step, meter.name))


def _add_gauge(into: Gauge, meter: Gauge, latest: dict[tuple[str, str], int], key: tuple[str, str]) -> None:
    before, now = latest.get(key, -1), meter.last_set
    if before < 0 and now < 0:
        into.add(meter.value)
    elif now > before:
        into.value, latest[key] = meter.value, now
