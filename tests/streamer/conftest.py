"""The command line, in this process and in one of its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from streamer.cli.app import invoke


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Cli(Protocol):
    """`cli("steps", "--json")` runs a command in this process."""

    def __call__(self, *arguments: str | os.PathLike[str]) -> Ended: ...


class Started(Protocol):
    """`start("run", path)` starts a command in a process of its own, with pipes for stdout and stderr."""

    def __call__(self, *arguments: str | os.PathLike[str], **options: Any) -> subprocess.Popen[str]: ...


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Runs commands; what they change in the process is put back at the end."""
    path, root, clients = list(sys.path), logging.getLogger(), logging.getLogger("connectors.kafka.client")
    handlers, level, client_level = list(root.handlers), root.level, clients.level

    def run(*arguments: str | os.PathLike[str]) -> Ended:
        capsys.readouterr()
        code = invoke([os.fspath(one) for one in arguments])
        return Ended(code, *capsys.readouterr())

    yield run
    sys.path[:] = path
    root.handlers[:] = handlers
    root.setLevel(level)
    clients.setLevel(client_level)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Started]:
    """Starts commands in `tmp_path`; those that still run at the end are killed."""
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: str | os.PathLike[str], **options: Any) -> subprocess.Popen[str]:
        # As the installed command does it, but with the checkout's packages and this interpreter.
        command = [sys.executable, "-c", "from streamer.cli import main; main()", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
        process = subprocess.Popen(command, **{**pipes, **options})
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()
