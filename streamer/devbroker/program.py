"""Base of the brokers here: they are started and stopped, and run programs that end with this process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from streamer.guarding import Guard

LOG_TAIL = 3000
"""Characters of a log's end that an error shows."""


class Started(ABC):
    """A server that runs from `start()` to `stop()`, or as long as a `with` block."""

    @abstractmethod
    def start(self) -> Self:
        """Start the server; returns when it answers."""

    @abstractmethod
    def stop(self) -> None:
        """End the server. Does nothing if it does not run."""

    @abstractmethod
    def describe(self) -> str:
        """A description in one line: its kind and its address."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.describe()}>"


class Program:
    """A process in a new session, so that Ctrl-C does not reach it. Its output is appended to the file `log`.

    It ends by `end` or `kill`, or by the guard when this process is gone.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        log: Path,
        guard: Guard,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`folder` is its working directory. `environment`: variables besides those of this process."""
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  the command is ours, and no shell reads it
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=folder,
                env={**os.environ, **(environment or {})},
            )
        self._guard = guard
        self._frozen = False
        guard.add(self.pid)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; `None` while the process runs."""
        return self._process.poll()

    def freeze(self) -> None:
        """Stop it from running without ending it (SIGSTOP): connections stay open, without answers."""
        self._process.send_signal(signal.SIGSTOP)
        self._frozen = True
        # On a busy machine a process of many threads runs on for some milliseconds. (Not on macOS before 3.13.)
        if hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let it go on (SIGCONT), if it is frozen."""
        if self._frozen:
            self._process.send_signal(signal.SIGCONT)
            self._frozen = False

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would."""
        self._process.kill()
        self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to end; its exit code. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        code = self._process.wait(timeout)
        self._guard.remove(self.pid)
        return code

    def terminate(self) -> None:
        """Ask the process to end (SIGTERM)."""
        self.thaw()
        self._process.terminate()


def end(programs: Sequence[Program], grace: float) -> None:
    """End these programs: SIGTERM, and after `grace` seconds SIGKILL."""
    for program in programs:
        program.terminate()
    deadline = time.monotonic() + grace
    for program in programs:
        try:
            program.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            program.kill()


def log_tail(log: Path) -> str:
    """The end of a log, with its name, without the lines of Java's stack traces; empty if there is no log."""
    if not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    text = "\n".join(line for line in lines if not line.startswith(("\tat ", "WARNING: ")))[-LOG_TAIL:].strip()
    return f"--- end of {log} ---\n{text}" if text else f"({log} is empty)"
