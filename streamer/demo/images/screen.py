"""The output of the demo while it runs: a live view on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamer.demo.drawing import curve, milliseconds, percent
from streamer.demo.images.example import Bytes
from streamer.demo.images.score import ScoreState
from streamer.demo.screen import EVERY, DrawnScreen, Screen

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

SAMPLE = 0.5
"""Seconds between two points of the curves."""
POINTS = 36
WIDEST = 92
"""Columns of the panel on a terminal that has more."""
BESIDE = 38
"""Columns of the panel that a curve cannot have: its frame, and what stands before the curve."""


@dataclass(frozen=True, slots=True)
class DigitsLook:
    """All that is shown at one moment."""

    elapsed: float
    seconds: float
    """How long the demo feeds."""
    state: ScoreState
    batch_median: float
    batch_mean: float
    latest: list[tuple[int, int, bool]]
    """Image number, prediction, whether it is right."""


class DigitsPlainScreen(Screen[DigitsLook]):
    """A line every two seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._next = EVERY

    def show(self, look: DigitsLook) -> None:
        """Print a line, if two seconds have passed since the last."""
        if look.elapsed < self._next:
            return
        self._next += EVERY
        score = look.state
        self._console.print(
            f"{look.elapsed:4.0f} s  {score.sent:,} sent, {score.answered:,} predicted, {score.rate:,.0f}/s, "
            f"batches of {look.batch_mean:.1f}, latency p50 {milliseconds(score.p50)} p99 {milliseconds(score.p99)}, "
            f"accuracy {percent(score.accuracy)}"
        )


class DigitsLiveScreen(DrawnScreen[DigitsLook]):
    """A panel that is drawn again several times a second, and gone at the end."""

    def __init__(self, console: Console, images: Bytes, where: str) -> None:
        super().__init__(console)
        self._images = images
        self._where = where
        self._rates: deque[float] = deque(maxlen=POINTS)
        self._delays: deque[float] = deque(maxlen=POINTS)
        self._next = 0.0

    def show(self, look: DigitsLook) -> None:
        """Draw the panel with this state, and add a point to the curves every `SAMPLE` seconds."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + SAMPLE
            self._rates.append(look.state.rate)
            self._delays.append(look.state.p50)
        super().show(look)

    def _panel(self, look: DigitsLook) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.rule import Rule
        from rich.text import Text

        left = max(look.seconds - look.elapsed, 0.0)
        bar = ProgressBar(total=look.seconds, completed=min(look.elapsed, look.seconds))
        parts = [self._numbers(look), Text(), Rule(style="dim"), Text(), self._pictures(look.latest), Text(), bar]
        return Panel(
            Group(*parts),
            title="[bold]streamer demo[/]  images -> model -> predictions",
            subtitle=f"{self._where.partition(', ')[0]}, {left:.0f} s to go",
            padding=(1, 2),
            width=min(self._console.width, WIDEST),
        )

    def _numbers(self, look: DigitsLook) -> RenderableType:
        from rich.table import Table

        score = look.state
        points = max(min(self._console.width, WIDEST) - BESIDE, 1)
        table = Table.grid(padding=(0, 3))
        table.add_column(style="dim")
        table.add_column(justify="right", style="bold", min_width=10)
        table.add_column(style="cyan", no_wrap=True)
        table.add_row("predictions/s", f"{score.rate:,.0f}", curve(list(self._rates)[-points:]))
        table.add_row("latency p50", milliseconds(score.p50), curve(list(self._delays)[-points:]))
        table.add_row("latency p95, p99", milliseconds(score.p95), milliseconds(score.p99))
        table.add_row("batch size", f"{look.batch_median:,.0f}", f"median, {look.batch_mean:.1f} on average")
        table.add_row("images sent", f"{score.sent:,}", f"{score.answered:,} predicted")
        table.add_row("accuracy", percent(score.accuracy), f"{score.answered - score.correct:,} wrong")
        return table

    def _pictures(self, latest: list[tuple[int, int, bool]]) -> RenderableType:
        from rich.table import Table
        from rich.text import Text

        fitting = max((min(self._console.width, WIDEST) - 6) // 10, 1)
        table = Table.grid(padding=(0, 2, 0, 0))
        shown = latest[-fitting:]
        table.add_row(*(blocks(self._images[number]) for number, _, _ in shown))
        table.add_row(*(Text(f"{digit}".center(8), "bold green" if right else "bold red") for _, digit, right in shown))
        return table


def blocks(image: Bytes) -> Text:
    """An image of 8 x 8 pixels as four lines of half blocks, two pixels a character."""
    from rich.text import Text

    text = Text()
    for row in range(0, 8, 2):
        for column in range(8):
            upper, lower = (min(int(image[row + half, column]) * 16, 255) for half in (0, 1))
            text.append("▀", f"rgb({upper},{upper},{upper}) on rgb({lower},{lower},{lower})")
        if row < 6:
            text.append("\n")
    return text
