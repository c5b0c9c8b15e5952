"""The objects demo from beginning to end."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pipelines.errors import StreamerError
from streamer.demo.counting.example import Counts, film, seconds, service, truth
from streamer.demo.films.example import NEEDS
from streamer.demo.running import check, free_port, started
from streamer.demo.stop import Stop

LATE = 60.0
"""Seconds after which the service must have ended, beside those that the film lasts."""


@dataclass(frozen=True, slots=True)
class ObjectsOutcome:
    """The result of a demo, as its summary shows it."""

    pictures: int
    """Pictures on which the model ran."""
    counts: Counts
    """What the service has counted."""
    truth: Counts
    """What passes the lines in the film."""
    whole: bool
    """Whether the film was seen to its end."""

    @property
    def right(self) -> bool:
        """Whether the service has counted what there is in the film."""
        return self.counts == self.truth

    def to_dict(self) -> dict[str, object]:
        """The fields as plain values, for JSON."""
        return {"pictures": self.pictures, "counts": self.counts, "truth": self.truth, "whole": self.whole}


def play(
    *,
    progress: Callable[[str], None],
    begun: Callable[[str, float], None],
    tell: Callable[[Counts], None],
    stop: Stop,
) -> ObjectsOutcome | None:
    """Run the service on its film, to the end or until `stop` is set; `None` if it is set before the service began.

    `progress` is called before work that takes long, `begun` with the address of the page and the film's length in
    seconds, `tell` twice a second with what is counted. Raises `StreamerError` if the service fails.
    """
    NEEDS.check("streamer demo objects")
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamer-demo-")))
        progress("making the film")
        with stop.at_once():
            bar = film(place)
        progress("starting the service")
        results, listen = place / "counts.jsonl", f"127.0.0.1:{free_port()}"
        with ExitStack() as running:
            agent = started(service(bar, listen, results), running)
            begun(f"http://{listen}", seconds())
            deadline = time.monotonic() + seconds() + LATE
            while agent.summary is None and not stop.wait(0.5):
                if time.monotonic() > deadline:
                    raise StreamerError(f"the service has not ended ({agent.ready() or 'it runs'})")
                tell(_counted(results)[1])
            whole = agent.summary is not None
        check(agent)
        pictures, counts = _counted(results)
        return ObjectsOutcome(pictures, counts, truth(), whole) if pictures else None


def _counted(results: Path) -> tuple[int, Counts]:
    """The number of pictures so far, and the counts of the newest."""
    lines = results.read_bytes().splitlines(keepends=True) if results.exists() else []
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return len(lines), json.loads(lines[-1])["counts"] if lines else {}
