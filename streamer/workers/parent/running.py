"""`run_workers`: the parent process of `streamer run --workers`, from the first look at the files to the exit code.

It imports neither numpy nor a client library: it stays small, and what kills a worker is not in it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from connectors.http.listening import url_of
from pipelines.errors import StreamerError
from streamer.cli.signals import draining
from streamer.cli.terminal import json_lines, remark
from streamer.guarding import Guard
from streamer.observe.logchoice import Level
from streamer.workers.addresses import addresses_of
from streamer.workers.control import ControlPort, control_ports
from streamer.workers.eventlog import EventLog
from streamer.workers.filing import PagesFile
from streamer.workers.launch import Launcher
from streamer.workers.plan import Asked, planned
from streamer.workers.supervisor import LOOK, Supervisor

_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  a private folder is made in it
"""Where the shared file is written to no disk."""


def run_workers(asked: Asked, arguments: Sequence[str], level: Level, *, in_json: bool, summaries: bool) -> int:
    """Run workers until they end by themselves, or a signal stops them; returns the worst of their exit codes.

    `arguments` are those of `streamer run` for each of them. `in_json`: they write JSON lines to stderr; `summaries`:
    and to stdout.

    Raises `DefinitionError` for wrong files, and services that several workers cannot run, `StreamerError` for an
    address of a control port that cannot be had, and when workers die too often.
    """
    json_lines(in_json)
    log = EventLog(level, as_json=in_json)
    with ExitStack() as stack:
        pages, guard = stack.enter_context(_shared())
        plan = planned(asked, guard)
        file = PagesFile(pages, asked.workers)
        stack.callback(file.close)
        command = [sys.executable, "-m", "streamer", "run", *arguments]
        launcher = Launcher(command, pages, guard, in_json=in_json, summaries=summaries)
        stuck = {service.name: service.stuck for service in plan.services}
        supervisor = Supervisor(file, asked.workers, launcher, stuck, time.monotonic, log)
        ports = control_ports(plan.services, supervisor, asked.workers, partial(addresses_of, pages))
        for port in ports:
            stack.callback(port.close)
        names = ", ".join(service.name for service in plan.services)
        if not in_json:
            remark(f"{names}: {asked.workers} worker{'s' if asked.workers > 1 else ''}{_metrics_at(ports)}")
        log.info("workers", services=names, workers=asked.workers)
        _supervise(supervisor, in_json=in_json)
        launcher.finish()
        if supervisor.gave_up is not None:
            raise StreamerError(supervisor.gave_up)
        return supervisor.exit_code


def _supervise(supervisor: Supervisor, *, in_json: bool) -> None:
    stopping = False

    def stop() -> None:
        # Called by a signal handler, perhaps in the middle of a round: the next round acts on it.
        nonlocal stopping
        stopping = True

    note = "" if in_json else "stopping: workers finish the records in flight (once more to end at once)"
    with draining(stop, note, supervisor.kill):
        while not supervisor.ended:
            if stopping:
                supervisor.stop()
            supervisor.look()
            time.sleep(LOOK)


def _metrics_at(ports: Sequence[ControlPort]) -> str:
    urls = ", ".join(f"{url_of(port.address)}/metrics" for port in ports)
    return f", metrics on {urls}" if urls else ""


@contextmanager
def _shared() -> Iterator[tuple[Path, Guard]]:
    """The path for the shared file in a private folder, and a guard that ends workers if this process is killed."""
    where = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="streamer-", dir=where) as folder:
        guard = Guard(Path(folder))
        try:
            yield Path(folder) / "pages", guard
        finally:
            guard.close()
