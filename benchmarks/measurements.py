"""What was measured, kept until the table is made."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from benchmarks.drain import Drained
from benchmarks.paced import Paced


@dataclass(slots=True)
class Cell:
    """The rounds of one program in one row."""

    runs: list[Drained] = field(default_factory=list)

    @property
    def least(self) -> float:
        """The least CPU microseconds for a message: what disturbs can only add to it."""
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
    together: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    """Number of processes to messages a second and CPU microseconds for one, a pair for each round."""
    failed: list[str] = field(default_factory=list)
    """Runs that came to nothing, and why."""

    def add_drained(self, row: str, program: str, run: Drained) -> None:
        """One run of a saturated row."""
        self.drained.setdefault(row, {}).setdefault(program, Cell()).runs.append(run)

    def add_paced(self, row: str, program: str, run: Paced) -> None:
        """One run at half load."""
        self.paced.setdefault(row, {}).setdefault(program, []).append(run)
