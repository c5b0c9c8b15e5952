"""The tables of the MQTT measurements."""

from __future__ import annotations

import statistics

from benchmarks.mqtt.bench import Found
from benchmarks.mqtt.contestants import TITLES
from benchmarks.mqtt.rows import ROWS
from benchmarks.table import Grid, as_markdown

_BASELINE = "paho"
_OURS = "ours"


def grids(found: Found) -> list[Grid]:
    """The cost of a message in each program, and as a multiple of the baseline's and of ours."""
    titles = {row.name: row.title for row in ROWS}
    lines = []
    for row, programs in found.costs.items():
        for name in sorted(programs, key=list(TITLES).index):
            costs = programs[name]
            lines.append(
                [
                    titles[row],
                    TITLES[name],
                    f"{min(one.microseconds for one in costs):.2f}",
                    f"{statistics.median(one.microseconds for one in costs):.2f}",
                    *(_times(found.ratio(row, other, name)) for other in (_BASELINE, _OURS)),
                    f"{max(one.rate for one in costs):,.0f}",
                    f"{max(one.rss for one in costs) >> 20}",
                    f"{statistics.median(one.start for one in costs):.2f}",
                ]
            )
    heads = [
        "MQTT, QoS 1", "program", "us, least", "us, median", "/ paho", "/ streamer",
        "msg/s", "RSS, MiB", "start, s",
    ]  # fmt: skip
    return [Grid("", heads, lines)] if lines else []


def text(found: Found) -> str:
    """The text for the page."""
    left_out = [f"Not measured: {TITLES.get(name, name)}, as {why}." for name, why in found.left_out.items()]
    return "\n\n".join([found.caption, *left_out, *map(as_markdown, grids(found))])


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3g}"
