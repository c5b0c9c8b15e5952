"""`Bench`: runs the rows, program after program, and keeps the measurements."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from benchmarks.contestants import FRAMEWORKS, Contestant, python_program
from benchmarks.drain import Drained, drain, drain_together, run_alone
from benchmarks.measurements import Measurements
from benchmarks.messages import Checker, Messages
from benchmarks.models import model_path, write_model
from benchmarks.paced import pace
from benchmarks.process import ProgramFailed
from benchmarks.programs.job import Job
from benchmarks.rows import LINGER, MAX_WAIT, Row
from benchmarks.topics import Topics

RATE = 20_000.0
"""Messages a second of the paced rows: less than half of what the baseline manages on the machine of the README."""


class Say(Protocol):
    """Shows the progress."""

    def note(self, text: str) -> None:
        """Show the present task."""

    def step(self, text: str) -> None:
        """Show the result of a run that has ended."""


@dataclass(frozen=True, slots=True)
class _Filled:
    row: Row
    topic: str
    count: int
    messages: Messages
    checker: Checker


class Bench:
    """All runs on one broker. `share` of each row's messages is used."""

    def __init__(
        self, topics: Topics, folder: Path, say: Say, programs: Sequence[Contestant], *, share: float = 1.0
    ) -> None:
        self.found = Measurements()
        self._topics = topics
        self._folder = folder
        self._say = say
        self._programs = programs
        self._share = share

    def runs(self, row: Row, rounds: int) -> int:
        """How many runs `drain_row` makes."""
        return len(self._of(row)) * rounds

    def warm_up(self, row: Row) -> None:
        """Have the broker do the work once, so that the first program is not the one for which it is compiled."""
        with self._filled(row, row.counted(self._share / 4)) as filled:
            self._say.note("warming up")
            self._drain(filled, python_program("relay"), filled.count, check=False)

    def drain_row(self, row: Row, rounds: int) -> None:
        """Every program drains the same full topic, in turn, so often. Its results are checked the first time."""
        with self._filled(row, row.counted(self._share)) as filled:
            programs = self._of(row)
            for turn in range(rounds):
                # To and fro, so that none always comes after the same other.
                for program in programs if turn % 2 == 0 else programs[::-1]:
                    run = partial(self._drained, filled, program, check=turn == 0)
                    self._run(f"{row.name}, {program.name}, round {turn + 1} of {rounds}", run)

    def pace_row(self, row: Row, rounds: int, seconds: float) -> None:
        """The programs of a row at half load."""
        floor = python_program("relay")
        for _ in range(rounds):
            for program in [floor, *(one for one in self._programs if one.ours or one.name == "handwritten")]:
                self._run(f"{row.name} paced, {program.name}", partial(self._paced, row, program, seconds))

    def together(self, row: Row, rounds: int) -> None:
        """One process, and two in one consumer group."""
        # The faster of its hot paths, which comes first.
        program = next(one for one in self._programs if one.ours)
        for _ in range(rounds):
            for processes in (1, 2):
                self._run(f"{processes} processes", partial(self._together, row, program, processes))

    def _of(self, row: Row) -> list[Contestant]:
        return [
            one
            for one in self._programs
            if (row.peers or one.name not in FRAMEWORKS) and (row.exactly_once or not one.exactly_once)
        ]

    @contextmanager
    def _filled(self, row: Row, count: int) -> Iterator[_Filled]:
        messages = Messages(row.content)
        checker = Checker(messages, write_model(self._folder, row.content.floats, scores=row.content.scores))
        topic = f"bench-{row.name}-{uuid.uuid4().hex[:8]}"
        self._say.note(f"{row.name}: sending {count:,} messages")
        with self._topics.created([topic]):
            self._topics.fill(topic, messages, count)
            yield _Filled(row, topic, count, messages, checker)

    def _run(self, what: str, run: Callable[[], str]) -> None:
        self._say.note(what)
        try:
            self._say.step(f"{what}: {run()}")
        except (ProgramFailed, ValueError) as error:
            # The other programs can still be compared.
            self.found.failed.append(f"{what}: {error}")
            self._say.step(f"{what}: failed")

    def _drained(self, filled: _Filled, program: Contestant, *, check: bool) -> str:
        if program.alone:
            run = run_alone(program, self._job(filled.row, filled.topic))
        else:
            run = self._drain(filled, program, filled.row.counted(self._share * program.share), check=check)
        self.found.add_drained(filled.row.name, program.name, run)
        return f"{run.microseconds:.2f} us, {run.rate:,.0f} msg/s"

    def _drain(self, filled: _Filled, program: Contestant, count: int, *, check: bool) -> Drained:
        return drain(
            program,
            self._job(filled.row, filled.topic),
            self._topics,
            filled.messages,
            filled.checker if check else None,
            count,
            whole=count == filled.count,
        )

    def _paced(self, row: Row, program: Contestant, seconds: float) -> str:
        write_model(self._folder, row.content.floats, scores=row.content.scores)
        job = self._job(row, None)
        if program.relays:
            # The floor of latency: each record goes on as soon as it is there.
            job = replace(job, batch=1, max_wait=0.0, linger=0.001)
        run = pace(program, job, self._topics, row.content, RATE, seconds)
        self.found.add_paced(row.name, program.name, run)
        return f"{run.microseconds:.1f} us, {run.added[0] * 1000:.1f} ms added, p99 {run.added[1] * 1000:.1f} ms"

    def _together(self, row: Row, program: Contestant, processes: int) -> str:
        count = row.counted(self._share)
        messages = Messages(row.content)
        write_model(self._folder, row.content.floats, scores=row.content.scores)
        job = self._job(row, None)
        jobs = [replace(job, folder=self._own_folder(f"{job.group}-{index}")) for index in range(processes)]
        rate, cost = drain_together(
            program, jobs, self._topics, lambda: self._topics.fill(job.source, messages, count), count
        )
        self.found.add_together(program.name, processes, rate, cost)
        return f"{rate:,.0f} msg/s, {cost:.1f} us"

    def _job(self, row: Row, topic: str | None) -> Job:
        name = f"bench-{row.name}-{uuid.uuid4().hex[:8]}"
        return Job(
            bootstrap=self._topics.bootstrap,
            source=topic or f"{name}-in",
            sink=f"{name}-out",
            dead=f"{name}-dead",
            group=name,
            model=str(model_path(self._folder, row.content.floats, scores=row.content.scores)),
            floats=row.content.floats,
            batch=row.batch,
            max_wait=MAX_WAIT,
            linger=LINGER,
            keep=row.content.keep,
            headers=bool(row.content.headers),
            json=row.content.json,
            avro=row.content.avro,
            features=row.content.features,
            folder=self._own_folder(name),
        )

    def _own_folder(self, name: str) -> str:
        folder = self._folder / name
        folder.mkdir()
        return str(folder)
