"""`WatchedFile`: a file that libav writes to, which reports write errors such as a full disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from connectors.file.lock import lock
from pipelines.errors import ConnectorError


class WatchedFile:
    """A new file, written without a buffer. libav loses some errors of writing (fragmented MP4): here none is lost.

    After an error no more bytes are written, and libav does not see it: call `check`. It is locked, so that other
    processes see that it is in use.
    """

    def __init__(self, path: Path) -> None:
        """Raises `OSError`, for example if the folder does not exist."""
        self.name = str(path)
        """Its name, by which libav detects the format."""
        self._file = path.open("wb", buffering=0)
        # A process that checks whether the file is in use holds the lock for a moment.
        with suppress(ConnectorError):
            lock(self._file.fileno(), path)
        self._error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Write these bytes. Called by libav."""
        written = 0
        try:
            while self._error is None and written < len(data):
                written += self._file.write(data[written:])
        except OSError as error:
            self._error = error
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """As `io.RawIOBase.seek`. Called by libav."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """As `io.RawIOBase.seek`. Called by libav."""
        return self._file.tell()

    def check(self) -> None:
        """Raise the error that writing had, an `OSError`."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Sync it to the disk and close it. Raises `OSError` if a write has failed."""
        try:
            self.check()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def close(self) -> None:
        """Close it, without a check. Idempotent."""
        self._file.close()
