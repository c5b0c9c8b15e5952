"""How far a backfill is: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from streamer.cli.terminal import notes, remark

if TYPE_CHECKING:
    from streamer.backfill.pieces import Piece
    from streamer.backfill.summary import BackfillSummary

_EVERY: Final = 10.0
"""Seconds between two lines."""


@contextmanager
def progress_on() -> Iterator[Bar | Lines]:
    """What shows the progress of a backfill on stderr."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    shown = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rates]}"))
    with Progress(*shown, TimeRemainingColumn(), console=notes(), transient=True) as bar:
        yield Bar(bar)


class Bar:
    """A bar on a terminal (`streamer.backfill.driver.Watcher`)."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task = progress.add_task("files", total=None, rates="")
        self._rate = _Rate()

    def planning(self, files: int, what: str) -> None:
        """As `Watcher.planning`."""
        self._progress.update(self._task, description=f"{files:,} files {what}")

    def begun(self, pieces: Sequence[Piece], before: int) -> None:
        """As `Watcher.begun`."""
        self._rate = _Rate()
        self._progress.update(self._task, description="pieces", total=len(pieces))

    def progressed(self, summary: BackfillSummary) -> None:
        """As `Watcher.progressed`."""
        ended = summary.pieces + len(summary.failed)
        self._progress.update(self._task, completed=ended, rates=self._rate.text(summary))


class Lines:
    """Lines, one every ten seconds (`streamer.backfill.driver.Watcher`)."""

    def __init__(self) -> None:
        self._said = time.monotonic()
        self._total = 0
        self._rate = _Rate()

    def planning(self, files: int, what: str) -> None:
        """As `Watcher.planning`."""
        self._say(f"{files:,} files {what}")

    def begun(self, pieces: Sequence[Piece], before: int) -> None:
        """As `Watcher.begun`."""
        self._total = len(pieces)
        self._rate = _Rate()

    def progressed(self, summary: BackfillSummary) -> None:
        """As `Watcher.progressed`."""
        ended = summary.pieces + len(summary.failed)
        self._say(
            f"{ended:,} of {self._total:,} pieces, {self._rate.text(summary)}{self._rate.left(ended, self._total)}"
        )

    def _say(self, text: str) -> None:
        if time.monotonic() - self._said >= _EVERY:
            self._said = time.monotonic()
            remark(text)


class _Rate:
    def __init__(self) -> None:
        self._began = time.monotonic()

    def text(self, summary: BackfillSummary) -> str:
        rate = summary.rows / max(time.monotonic() - self._began, 0.001)
        return f"{summary.rows:,} rows, {rate:,.0f}/s, {summary.errors:,} errors"

    def left(self, ended: int, total: int) -> str:
        if not ended:
            return ""
        return f", about {(total - ended) * (time.monotonic() - self._began) / ended:,.0f} s left"
