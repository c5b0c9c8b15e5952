"""A small process that outlives its parent just long enough to end the processes that the parent had started.

Run as `python guard.py FOLDER`; FOLDER is removed at the end unless it is empty text. It reads lines from its
standard input, `+PID` and `-PID`. However the parent ends, also by SIGKILL, the kernel closes the pipe: that end
of input is the signal. (Linux could send a signal at a parent's death, but it does so when the parent's *thread*
ends, and needs code between fork and exec, which is unsafe in a process with threads.)

It imports nothing of this project, so that it starts in milliseconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""


def main(folder: str) -> None:
    """Follow standard input to its end, then end the processes still on the list and remove `folder`."""
    pids: set[int] = set()
    for line in sys.stdin:
        pid = int(line[1:])
        if line[0] == "+":
            pids.add(pid)
        else:
            pids.discard(pid)
    if not pids:
        return
    for number in (signal.SIGCONT, signal.SIGTERM):
        _send(pids, number)
    deadline = time.monotonic() + GRACE
    while _send(pids, 0) and time.monotonic() < deadline:
        time.sleep(0.05)
    _send(pids, signal.SIGKILL)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _send(pids: set[int], number: int) -> bool:
    for pid in list(pids):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pids.discard(pid)
    return bool(pids)


if __name__ == "__main__":
    main(sys.argv[1])
