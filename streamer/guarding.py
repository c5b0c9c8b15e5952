"""Have processes end with this one, however it ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from streamer import guard


class Guard:
    """A process that ends the listed processes when this process is gone, and then removes `folder`, if one is given.

    `files`: file descriptors that it keeps open until it ends, such as that of a folder's lock.
    """

    def __init__(self, folder: Path | None = None, files: Sequence[int] = ()) -> None:
        # -I -S: no site packages and no modules of the user's folder, so that it starts in milliseconds.
        command = [sys.executable, "-I", "-S", guard.__file__, "" if folder is None else str(folder)]
        self._process = subprocess.Popen(  # noqa: S603  the command is ours, and no shell reads it
            command, stdin=subprocess.PIPE, start_new_session=True, pass_fds=tuple(files)
        )

    def add(self, pid: int) -> None:
        """End this process when ours ends."""
        self._send(f"+{pid}")

    def remove(self, pid: int) -> None:
        """Take a process that has ended off the list."""
        self._send(f"-{pid}")

    def close(self) -> None:
        """End the guard without signalling anything: the ids of ended processes may belong to others by now."""
        self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _send(self, line: str) -> None:
        if self._process.stdin is None or self._process.stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
