"""`python -m benchmarks.publish`: put the last measurements into the pages and draw the plot; nothing is measured."""

from __future__ import annotations

import json

from benchmarks.contestants import TITLES
from benchmarks.environments import PEERS, ROOT
from benchmarks.measurements import Measurements
from benchmarks.pages import put
from benchmarks.plot import svg
from benchmarks.rows import ROWS
from benchmarks.table import as_markdown, grids, overview

RESULTS = ROOT / "benchmarks" / "results.json"
"""The measurements that the pages show."""
PLOT = ROOT / "docs" / "performance.svg"


def main() -> None:
    """Refresh the pages."""
    publish(Measurements.from_dict(json.loads(RESULTS.read_text(encoding="utf-8"))))


def save(found: Measurements) -> None:
    """Keep these measurements as the ones that the pages show."""
    RESULTS.write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")


def publish(found: Measurements) -> None:
    """Write the tables between their marks in `benchmarks/README.md` and `README.md`, and the plot."""
    tables = "\n\n".join([*notes(found), *map(as_markdown, grids(found))])
    put("bench", tables)
    put("performance", as_markdown(overview(found)))
    put("headline", headline(found), ROOT / "README.md")
    PLOT.write_text(plot(found), encoding="utf-8")


def plot(found: Measurements) -> str:
    """The plot of the first row, as SVG."""
    row = ROWS[0]
    return svg(found.drained[row.name], f"What one message costs: {row.title}", found.caption)


def headline(found: Measurements) -> str:
    """The costs of the plot in a sentence."""
    cells = found.drained[ROWS[0].name]
    ours = cells["ours-native"].median
    others = [(TITLES[name].partition(" (")[0], cells[name].median / ours) for name in PEERS if name in cells]
    peers = "".join(f", {ratio:.0f} times less than {name}" for name, ratio in others)
    hand = cells["handwritten"].median / ours
    return (
        f"For the same work `streamer` takes {hand:.0f} times less CPU time than a loop written by hand with "
        f"confluent-kafka{peers}."
    )


def notes(found: Measurements) -> list[str]:
    """Time and machine of the measurement, and the programs that could not be measured."""
    return [found.caption, *(f"Not measured: {TITLES[name]}, as {why}." for name, why in found.left_out.items())]


if __name__ == "__main__":
    main()
