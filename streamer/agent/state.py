"""What a running service tells of itself, for its dashboard: counters as they are, and the state of its parts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pipelines.observe.histogram import Histogram
from streamer.agent.assembly import Assembly
from streamer.agent.intakes import Intake
from streamer.observe.metrics import OUTCOMES, ServiceMeters

MOST_PARTITIONS: Final = 100
"""The most partitions whose lag is told: those that are furthest behind."""


def state(assembly: Assembly, meters: ServiceMeters, intakes: Sequence[Intake]) -> dict[str, Any]:
    """Plain data about a service with these parts. From any thread; it waits for nothing.

    Counters only grow, and `clock` is in seconds: two states make rates.
    """
    run, sources = meters.run, list(meters.sources.values())
    lag = sorted(meters.lag().items(), key=lambda item: -item[1])
    oldest = meters.oldest()
    return {
        "clock": time.monotonic(),
        "started": meters.started,
        "records": {outcome: meters.total(outcome) for outcome in OUTCOMES},
        "sources": _sources(assembly, meters, {intake.source.name: intake for intake in intakes}),
        "batches": _timed(each.batch_records for each in sources),
        "closed": dict(_sum(list(each.closed.items()) for each in sources)),
        "stages": {
            **{stage: _timed(each.stages[stage] for each in sources) for stage in ("poll", "decode")},
            **{stage: _timed([histogram]) for stage, histogram in list(run.stages.items())},
        },
        "steps": {step: _timed([histogram]) for step, histogram in list(run.steps.items())},
        "errors": [
            {"step": step, "error": error, "records": count} for (step, error), count in list(run.errors.items())
        ],
        "latency": _spread(run.latency),
        "residence": _spread(run.residence),
        "lag": {
            "records": sum(behind for _, behind in lag),
            "partitions": [
                {"topic": topic, "partition": partition, "records": behind}
                for (topic, partition), behind in lag[:MOST_PARTITIONS]
            ],
        },
        "in_flight": {
            "bytes": meters.in_flight(),
            "most": assembly.service.limits.in_flight,
            "oldest_seconds": 0.0 if oldest is None else time.monotonic() - oldest,
        },
        "letters": [route.name for route in assembly.letters],
        "pages": [
            {"sink": route.name, "port": route.sink.page[1]} for route in assembly.result_routes if route.sink.page
        ],
    }


def _sources(
    assembly: Assembly, meters: ServiceMeters, intakes: Mapping[str, Intake]
) -> list[dict[str, str | None | int | dict[str, int]]]:
    return [
        {
            "name": name,
            "type": config.type,
            **_health(intakes.get(name)),
            "records": {outcome: meters.outcome(name, outcome) for outcome in OUTCOMES},
        }
        for name, config, _ in assembly.sources
    ]


def _health(intake: Intake | None) -> dict[str, str | None]:
    if intake is None or not intake.watch.has_reported:
        return {"state": "starting", "reason": None}
    if intake.state.paused:
        return {"state": "paused", "reason": intake.watch.down}
    if intake.watch.down is not None:
        return {"state": "down", "reason": intake.watch.down}
    return {"state": "ended" if intake.watch.has_ended else "running", "reason": intake.source.waits}


def _timed(histograms: Iterable[Histogram]) -> dict[str, float]:
    """How many values there were, and their sum."""
    every = list(histograms)
    return {"count": sum(each.count for each in every), "sum": sum(each.total for each in every)}


def _spread(histogram: Histogram) -> dict[str, Any]:
    """How many values fell below each bound and above the one before; the last count is of those above all bounds."""
    return {"bounds": histogram.bounds.tolist(), "counts": histogram.counts.tolist()}


def _sum(counts: Iterable[Iterable[tuple[str, int]]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for items in counts:
        for key, count in items:
            total[key] += count
    return total
