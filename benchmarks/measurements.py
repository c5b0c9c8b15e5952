"""The measurements, kept until the tables are made; as JSON in `results.json`."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from benchmarks.drain import Drained
from benchmarks.environments import PEERS, TITLES, version_of
from benchmarks.paced import Paced
from benchmarks.pages import machine
from streamer.devbroker import KAFKA_VERSION


@dataclass(slots=True)
class Cell:
    """The rounds of one program in one row."""

    runs: list[Drained] = field(default_factory=list)

    @property
    def least(self) -> float:
        """The least CPU microseconds for a message: disturbances can only add to it."""
        return min(run.microseconds for run in self.runs)

    @property
    def median(self) -> float:
        """The median of them."""
        return statistics.median(run.microseconds for run in self.runs)

    @property
    def rate(self) -> float:
        """The best rate, messages a second."""
        return max(run.rate for run in self.runs)

    @property
    def rss(self) -> int:
        """The most memory, bytes."""
        return max(run.rss for run in self.runs)

    def ratio(self, other: Cell) -> float:
        """The median over the rounds of this program's cost by the other's in the same round."""
        pairs = zip(self.runs, other.runs, strict=False)
        return statistics.median(mine.microseconds / theirs.microseconds for mine, theirs in pairs)


@dataclass(slots=True)
class Measurements:
    """Everything, by row and program."""

    drained: dict[str, dict[str, Cell]] = field(default_factory=dict)
    paced: dict[str, dict[str, list[Paced]]] = field(default_factory=dict)
    together: dict[str, dict[int, list[tuple[float, float]]]] = field(default_factory=dict)
    """Program and number of processes to messages a second and CPU microseconds for one, a pair for each round."""
    failed: list[str] = field(default_factory=list)
    """Runs that came to nothing, and why."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Programs that could not run here, and why."""
    caption: str = ""
    """When and where it was measured, with which versions."""

    def add_drained(self, row: str, program: str, run: Drained) -> None:
        """One run of a saturated row."""
        self.drained.setdefault(row, {}).setdefault(program, Cell()).runs.append(run)

    def add_paced(self, row: str, program: str, run: Paced) -> None:
        """One run at half load."""
        self.paced.setdefault(row, {}).setdefault(program, []).append(run)

    def add_together(self, program: str, processes: int, rate: float, cost: float) -> None:
        """One run of several processes."""
        self.together.setdefault(program, {}).setdefault(processes, []).append((rate, cost))

    def close(self, minutes: float) -> None:
        """That was all: note when and where it was."""
        self.caption = _caption(minutes, peers=any(peer in cells for cells in self.drained.values() for peer in PEERS))

    def to_dict(self) -> dict[str, Any]:
        """As plain values; of a failure the first line only, as a program's output names folders of the machine."""
        return {**asdict(self), "failed": [failure.partition("\n")[0] for failure in self.failed]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """From the result of `to_dict`, also by way of JSON."""
        return cls(
            {
                row: {name: Cell([Drained(**run) for run in cell["runs"]]) for name, cell in cells.items()}
                for row, cells in data["drained"].items()
            },
            {
                row: {name: [Paced(**run) for run in runs] for name, runs in programs.items()}
                for row, programs in data["paced"].items()
            },
            {
                name: {int(processes): [(run[0], run[1]) for run in runs] for processes, runs in found.items()}
                for name, found in data["together"].items()
            },
            data["failed"],
            data["left_out"],
            data["caption"],
        )


def _caption(minutes: float, *, peers: bool) -> str:
    others = "; " + ", ".join(f"{TITLES[peer]} {version_of(peer)}" for peer in PEERS) if peers else ""
    return machine(minutes, f", Apache Kafka {KAFKA_VERSION} on the same machine{others}")
