"""`python -m benchmarks.rss`: the memory of a service over five million messages."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from benchmarks.contestants import ours
from benchmarks.messages import Messages
from benchmarks.models import write_model
from benchmarks.process import Program, ProgramFailed
from benchmarks.programs.job import Job
from benchmarks.rows import LINGER, MAX_WAIT, ROWS
from benchmarks.topics import Topics
from streamer.devbroker import open_broker

WARM_UP = 0.2
"""Share of the messages after which memory must not grow any more: by then every buffer has had its full size once."""
_STANDSTILL = 60.0

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Memory:
    """The samples: the process's resident memory in bytes after so many messages."""

    messages: list[int]
    rss: list[int]

    @property
    def slope(self) -> float:
        """Bytes for each message, a straight line through all samples after the warm-up."""
        pairs = [pair for pair in zip(self.messages, self.rss, strict=True) if pair[0] > self.messages[-1] * WARM_UP]
        counts, sizes = zip(*pairs, strict=True)
        return float(np.polyfit(counts, sizes, 1)[0])

    @property
    def grown(self) -> float:
        """Its size at the end by that after the warm-up, medians of the last and of the first quarter of samples."""
        after = [
            size for count, size in zip(self.messages, self.rss, strict=True) if count > self.messages[-1] * WARM_UP
        ]
        quarter = max(len(after) // 4, 1)
        return float(np.median(after[-quarter:]) / np.median(after[:quarter]))


def measure(bootstrap: str, folder: Path, count: int, step: int, progress: Callable[[int, int], None]) -> Memory:
    """Run the service of the first row on `count` messages and look at its memory after every `step` of them.

    `progress` is told the messages so far and the memory. Raises `ProgramFailed`.
    """
    row = ROWS[0]
    name = f"bench-rss-{uuid.uuid4().hex[:8]}"
    model = write_model(folder, row.content.floats)
    job = Job(
        bootstrap=bootstrap,
        source=f"{name}-in",
        sink=f"{name}-out",
        dead=f"{name}-dead",
        group=name,
        model=str(model),
        floats=row.content.floats,
        batch=row.batch,
        max_wait=MAX_WAIT,
        linger=LINGER,
        keep=row.content.keep,
        headers=False,
        folder=str(folder),
    )
    topics, messages, found = Topics(bootstrap), Messages(row.content), Memory([], [])
    with topics.created([job.source, job.sink, job.dead]), Program(ours(), job) as program:
        for sent in range(step, count + 1, step):
            topics.fill(job.source, messages, step, already=sent - step)
            _wait(topics, job.sink, sent, program)
            found.messages.append(sent)
            found.rss.append(program.rss())
            progress(sent, found.rss[-1])
    if program.code:
        raise ProgramFailed(f"the service ended with code {program.code}\n{program.log()}")
    return found


@app.command()
def main(
    count: Annotated[int, typer.Option(help="Messages.")] = 5_000_000,
    step: Annotated[int, typer.Option(help="Messages between two looks.")] = 250_000,
    bootstrap: Annotated[str | None, typer.Option(help="A broker that runs; else one is started.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The samples as JSON on standard output.")] = False,
) -> None:
    """Run a service on millions of messages and print its memory along the way.

    Example: python -m benchmarks.rss --count 1000000
    """
    console = Console(stderr=as_json)
    began = time.monotonic()

    def progress(sent: int, rss: int) -> None:
        console.print(
            f"{sent:>10,} messages {rss / 2**20:7.1f} MiB  {time.monotonic() - began:5.0f} s", highlight=False
        )

    with tempfile.TemporaryDirectory(prefix="streamer-rss-") as folder, _broker(bootstrap) as address:
        found = measure(address, Path(folder), count, step, progress)
    if as_json:
        print(json.dumps({**asdict(found), "slope": found.slope, "grown": found.grown}))
    console.print(f"{found.slope * 1e6 / 2**20:+.2f} MiB for a million messages, {found.grown:.3f} times the memory")


@contextlib.contextmanager
def _broker(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    with open_broker("the measurement") as broker:
        yield broker.bootstrap


def _wait(topics: Topics, sink: str, count: int, program: Program) -> None:
    last, moved = -1, time.monotonic()
    while (found := topics.ends([sink])[sink]) < count:
        program.alive()
        if found > last:
            last, moved = found, time.monotonic()
        if time.monotonic() - moved > _STANDSTILL:
            raise ProgramFailed(f"the service stands still at {found} of {count} messages\n{program.log()}")
        time.sleep(0.1)


if __name__ == "__main__":
    app()
