"""One writer per file."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import ConnectorError


def lock(descriptor: int, path: Path) -> None:
    """Keep other processes' sinks off this file until it is closed. `ConnectorError` if one has it.

    Nothing happens where the system has no `flock`.
    """
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConnectorError(f"{path} is being written by another sink; give each process a file of its own") from None
