"""The output of the demo while it runs: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamer.demo.drawing import curve, milliseconds
from streamer.demo.machines.board import POINTS, Count, FaultFinding, MachineState
from streamer.demo.screen import EVERY, DrawnScreen, Screen

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

FULL = 3.0
"""mm/s of a curve's highest bar."""
_COLUMNS = {"line": 70, "machine": 0, "vibration": 0, "C": 0, "score": 0, "state": 0, "in truth": 78}
"""The columns, each with the least width of a terminal that has room for it."""


@dataclass(frozen=True, slots=True)
class SensorsLook:
    """All that is shown at one moment."""

    elapsed: float
    seconds: float
    """How long the machines publish."""
    count: Count
    machines: list[MachineState]
    findings: list[FaultFinding]


class SensorsPlainScreen(Screen[SensorsLook]):
    """A line every two seconds, and one for each fault that is found."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._next = EVERY
        self._announced: set[str] = set()

    def show(self, look: SensorsLook) -> None:
        """Print each new finding, and a line if two seconds have passed since the last."""
        for finding in look.findings:
            if finding.after is not None and finding.machine not in self._announced:
                self._announced.add(finding.machine)
                self._console.print(
                    f"{finding.began + finding.after:4.0f} s  alert: {finding.machine}, "
                    f"{finding.after:.1f} s after its {finding.fault} began"
                )
        if look.elapsed < self._next:
            return
        self._next += EVERY
        count = look.count
        alerting = [machine.name for machine in look.machines if machine.alert]
        self._console.print(
            f"{look.elapsed:4.0f} s  {count.sent:,} windows sent, {count.scored:,} scored, latency p50 "
            f"{milliseconds(count.p50)} p99 {milliseconds(count.p99)}, alerts: {', '.join(alerting) or 'none'}"
        )


class SensorsLiveScreen(DrawnScreen[SensorsLook]):
    """A table that is drawn again several times a second, and gone at the end."""

    def __init__(self, console: Console, where: str) -> None:
        super().__init__(console)
        self._where = where

    def _panel(self, look: SensorsLook) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        count = look.count
        left = max(look.seconds - look.elapsed, 0.0)
        numbers = Text.assemble(
            (f"{count.sent:,}", "bold"),
            " windows sent, ",
            (f"{count.scored:,}", "bold"),
            " scored, ",
            (f"{count.alerts:,}", "bold"),
            f" alerts, latency p50 {milliseconds(count.p50)}",
        )
        bar = ProgressBar(total=look.seconds, completed=min(look.elapsed, look.seconds))
        return Panel(
            Group(numbers, Text(), self._table(look), Text(), bar),
            title="[bold]streamer demo sensors[/]  vibration -> autoencoder -> alerts",
            subtitle=f"{self._where.partition(', ')[0]}, {left:.0f} s to go",
            padding=(0, 2),
            width=min(self._console.width, 96),
        )

    def _table(self, look: SensorsLook) -> RenderableType:
        from rich.table import Table

        width = self._console.width
        points = POINTS if width >= 90 else POINTS // 2
        shown = [name for name, least in _COLUMNS.items() if width >= least]
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in shown:
            table.add_column(
                name,
                justify="right" if name in ("C", "score") else "left",
                style="dim" if name in ("line", "in truth") else None,
                no_wrap=True,
                width=points if name == "vibration" else None,
            )
        for machine in look.machines:
            cells = _cells(machine, points)
            table.add_row(*(cells[name] for name in shown))
        return table


def _cells(machine: MachineState, points: int) -> dict[str, Text | str]:
    return {
        "line": machine.line,
        "machine": machine.name,
        "vibration": _styled(curve(machine.vibration[-points:], FULL), "cyan"),
        "C": "-" if math.isnan(machine.temperature) else f"{machine.temperature:.0f}",
        "score": _score(machine),
        "state": _styled("ALERT", "bold red") if machine.alert else _styled("well", "green"),
        "in truth": machine.fault or "",
    }


def _score(machine: MachineState) -> Text:
    if math.isnan(machine.score):
        return _styled("-", "dim")
    return _styled(f"{machine.score:.2f}", "bold red" if machine.score > 1 else "")


def _styled(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(text, style)
