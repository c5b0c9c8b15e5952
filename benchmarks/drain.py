"""Saturated: a program drains a full topic, and every result is read back."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.contestants import Contestant
from benchmarks.environments import ROOT
from benchmarks.messages import Checker, Messages
from benchmarks.process import Program, ProgramFailed
from benchmarks.programs.job import Job
from benchmarks.topics import Topics

_START = 60.0
_LOOK = 0.02


@dataclass(frozen=True, slots=True)
class Drained:
    """The cost of one run."""

    microseconds: float
    """CPU time of the whole process for one message."""
    rate: float
    """Messages a second."""
    rss: int
    """Bytes of memory at the end."""


def drain(
    contestant: Contestant,
    job: Job,
    topics: Topics,
    messages: Messages,
    checker: Checker | None,
    count: int,
    *,
    whole: bool,
) -> Drained:
    """Run a program on a topic until it has dealt with `count` messages.

    The clock runs from the first record to the moment when the last result is on the broker. `whole`: the topic holds
    no more than that, so each message must have exactly one result, all of which are counted, and read back if there is
    a `checker`. Raises `ProgramFailed`.
    """
    name, poisonous = contestant.name, messages.poisonous(count)
    with topics.created([job.sink, job.dead]):
        with Program(contestant, job) as program:
            first = program.wait_for_first(_START)
            seen = _wait(lambda: _done(topics, contestant, job), count, [program])
            ended, cpu, rss = time.time(), program.cpu(), program.rss()
        if contestant.ours and program.code:
            raise ProgramFailed(f"{name} ended with code {program.code}\n{program.log()}")
        if contestant.relays:
            return Drained((cpu - first.cpu) / seen * 1e6, seen / (ended - first.time), rss)
        if whole:
            _check(contestant, topics, job, checker, count - poisonous, poisonous)
        elif checker is not None:
            topics.check(job.sink, checker, topics.ends([job.sink])[job.sink])
    return Drained((cpu - first.cpu) / seen * 1e6, seen / (ended - first.time), rss)


def run_alone(contestant: Contestant, job: Job) -> Drained:
    """Run a program that needs no bus to its end. Raises `ProgramFailed`."""
    done = subprocess.run(contestant.command(job), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ProgramFailed(f"{contestant.name} ended with code {done.returncode}\n{done.stderr[-3000:]}")
    return Drained(*json.loads(done.stdout))


def drain_together(
    contestant: Contestant, jobs: Sequence[Job], topics: Topics, fill: Callable[[], None], count: int
) -> tuple[float, float]:
    """Messages a second, and CPU microseconds for one, of several processes in one group.

    They join while the topic is empty and stand still while `fill` puts `count` messages into it, so that all begin
    at once and at full load. Raises `ProgramFailed`.
    """
    job = jobs[0]
    with topics.created([job.source, job.sink, job.dead]), ExitStack() as stack:
        programs = [stack.enter_context(Program(contestant, one)) for one in jobs]
        topics.wait_for_group(job.group, len(programs), _START)
        for program in programs:
            program.freeze()
        fill()
        began, before = time.monotonic(), sum(program.cpu() for program in programs)
        for program in programs:
            program.thaw()
        seen = _wait(lambda: _done(topics, contestant, job), count, programs)
        seconds, used = time.monotonic() - began, sum(program.cpu() for program in programs) - before
        return seen / seconds, used / seen * 1e6


def _done(topics: Topics, contestant: Contestant, job: Job) -> int:
    """How many messages are dealt with."""
    if contestant.exactly_once:
        # Where topics end does not say so: markers of transactions have offsets, too.
        return topics.committed(job.group, job.source)
    return sum(topics.ends([job.sink, job.dead]).values())


def _wait(done: Callable[[], int], count: int, programs: Sequence[Program]) -> int:
    """Wait until `count` messages are dealt with, and say how many are."""
    last, moved = -1, time.monotonic()
    while True:
        total = done()
        if total >= count:
            return total
        if total > last:
            last, moved = total, time.monotonic()
        if time.monotonic() - moved > _START:
            raise ProgramFailed(f"{programs[0].name} stands still at {total} of {count}\n{programs[0].log()}")
        for program in programs:
            program.alive()
        time.sleep(_LOOK)


def _check(contestant: Contestant, topics: Topics, job: Job, checker: Checker | None, results: int, dead: int) -> None:
    name, found = contestant.name, topics.ends([job.sink, job.dead])
    if found != {job.sink: results, job.dead: dead} and not contestant.exactly_once:
        raise ProgramFailed(f"{name} made {found} instead of {results} results and {dead} dead letters")
    if checker is None:
        return
    seen = topics.check(job.sink, checker, results)
    if len(seen) != results:
        raise ProgramFailed(f"{name} made results of {len(seen)} messages instead of {results}")
