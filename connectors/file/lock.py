"""One writer per file."""

from __future__ import annotations

from pathlib import Path

from pipelines.errors import ConnectorError


def lock(descriptor: int, path: Path, writer: str = "sink") -> None:
    """Lock this file against other processes until it is closed. `ConnectorError` if it is locked already.

    `writer`: what writes such files, for the error. Does nothing on a system without `flock`.
    """
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConnectorError(
            f"{path} is being written by another {writer}; give each process a file of its own"
        ) from None
