"""What a command prints on a terminal: the screens that a user sees, line by line, colours as escape codes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

Screen = list[str]
"""Lines from top to bottom. Colours are ANSI escape codes (`ESC [ ... m`)."""

ROWS: Final = 60
_ERASE, _UP, _COLOUR = re.compile(r"\x1b\[2K"), re.compile(r"\x1b\[(\d*)A"), re.compile(r"\x1b\[[\d;]*m")
_OTHER: Final = re.compile(r"\x1b\[[?\d;]*[A-Za-z]")
_TEXT: Final = re.compile(r"[^\x1b\r\n]+")


def recorded(
    command: Sequence[str], columns: int, *, folder: Path, environment: Mapping[str, str], seconds: float = 120.0
) -> str:
    """Run a command on a terminal of that width until it ends. Returns all that it wrote there.

    Raises `TimeoutError` if it takes longer than `seconds`, `RuntimeError` if its exit code is not 0.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(  # noqa: S603
        command, cwd=folder, env={**variables, **colours, **environment}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    written = bytearray()
    deadline = time.monotonic() + seconds
    try:
        while piece := _read(ours, deadline):
            written += piece
        code = process.wait(10)
    finally:
        os.close(ours)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
    text = written.decode()
    if code:
        last = "\n".join(_OTHER.sub("", line) for line in screens(text)[-1])
        raise RuntimeError(f"{' '.join(command)}: exit code {code}\n{last}")
    return text


def screens(written: str) -> list[Screen]:
    """The screen before each time that lines of it were erased, and the last one."""
    seen: list[Screen] = []
    lines: Screen = [""]
    row, at, erasing = 0, 0, False
    while at < len(written):
        if erase := _ERASE.match(written, at):
            if not erasing:
                seen.append(list(lines))
            erasing = True
            lines[row] = ""
            at = erase.end()
        elif up := _UP.match(written, at):
            row -= int(up[1] or 1)
            at = up.end()
        elif colour := _COLOUR.match(written, at):
            lines[row] += colour[0]
            at = colour.end()
        elif other := _OTHER.match(written, at):
            at = other.end()
        elif text := _TEXT.match(written, at):
            lines[row] += text[0]
            at, erasing = text.end(), False
        else:
            if written[at] == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            at += 1
    return [*seen, lines]


def _read(terminal: int, deadline: float) -> bytes:
    if not select.select([terminal], [], [], max(deadline - time.monotonic(), 0.0))[0]:
        raise TimeoutError("the command did not end in time")
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # so Linux says that nobody has the other side open any more
        return b""
