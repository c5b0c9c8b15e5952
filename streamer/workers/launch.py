"""`Launcher`: starts worker processes, and passes on what they print with the number of the worker."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from streamer.guarding import Guard
from streamer.workers.addresses import forget_addresses
from streamer.workers.layout import PAGES_VARIABLE, WORKER_VARIABLE

_LONGEST: Final = 1 << 16
"""Bytes of a line; a longer one is passed on in pieces."""
_LAST_LINES: Final = 2.0
"""Seconds to wait for the last lines of workers that have ended: processes that they started may keep them open."""


class Launcher:
    """Starts workers, each in a session of its own, so that signals of the terminal reach their parent only."""

    def __init__(
        self,
        command: Sequence[str],
        pages: Path,
        guard: Guard,
        *,
        in_json: bool,
        summaries: bool,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`pages` is the shared file. `in_json`: workers write JSON lines to stderr. `summaries`: and to stdout."""
        self._command = list(command)
        self._pages = pages
        self._guard = guard
        self._in_json = in_json
        self._summaries = summaries
        self._environment = dict(environment)
        self._readers: list[threading.Thread] = []

    def __call__(self, worker: int) -> WorkerProcess:
        """Start the worker of this number."""
        forget_addresses(self._pages, worker)
        process = subprocess.Popen(  # noqa: S603  the command is ours, and no shell reads it
            self._command,
            env={**self._environment, WORKER_VARIABLE: str(worker), PAGES_VARIABLE: str(self._pages)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if self._summaries else None,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._guard.add(process.pid)
        self._readers = [reader for reader in self._readers if reader.is_alive()]
        self._pass_on(process.stderr, 2, worker, in_json=self._in_json)
        self._pass_on(process.stdout, 1, worker, in_json=True)
        return WorkerProcess(process, self._guard)

    def finish(self) -> None:
        """Wait until the last lines of workers that have ended are passed on."""
        for reader in self._readers:
            reader.join(_LAST_LINES)

    def _pass_on(self, pipe: IO[bytes] | None, descriptor: int, worker: int, *, in_json: bool) -> None:
        if pipe is None:
            return
        reader = threading.Thread(
            target=_copy, args=(pipe, descriptor, worker, in_json), name=f"output of worker {worker}", daemon=True
        )
        reader.start()
        self._readers.append(reader)


class WorkerProcess:
    """A process that ends when this one does, however that ends."""

    def __init__(self, process: subprocess.Popen[bytes], guard: Guard) -> None:
        self.pid = process.pid
        self._process = process
        self._guard = guard

    def poll(self) -> int | None:
        """The exit code, negative for a signal; `None` while it lives."""
        before = self._process.returncode
        code = self._process.poll()
        if before is None and code is not None:
            self._guard.remove(self.pid)
        return code

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def send_signal(self, sig: int, /) -> None:
        """Send a signal."""
        self._process.send_signal(sig)


def _copy(pipe: IO[bytes], descriptor: int, worker: int, in_json: bool) -> None:
    with pipe:
        while line := pipe.readline(_LONGEST):
            try:
                os.write(descriptor, marked(line, worker, in_json=in_json))
            except OSError:
                # Whoever read it has gone; the worker must not wait for that.
                continue


def marked(line: bytes, worker: int, *, in_json: bool) -> bytes:
    """A line of a worker's output with its number: a JSON object gets a first field `worker`, text a beginning."""
    if not in_json:
        return b"worker %d: %b" % (worker, line)
    if line.startswith(b'{"'):
        return b'{"worker": %d, %b' % (worker, line[1:])
    return line
