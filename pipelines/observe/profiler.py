"""Profiles: the times of steps as Chrome trace events, for chrome://tracing, Perfetto and others that read them.

The format is "Trace Event Format", JSON array form: a complete event (`ph` X, with `ts` and `dur` in microseconds)
for each step and batch, and metadata events (`ph` M) that name the process and its threads.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from pipelines.errors import StreamerError
from pipelines.observe.observing import StepRun

PENDING_BYTES = 64 << 10
"""Size of the text that is buffered before it is written."""
PENDING_SECONDS = 1.0
"""Seconds after which the next event writes the buffer."""

_log = logging.getLogger(__name__)


class Profiler:
    """Writes a profile. An executor's observer, usable by several at once and from all threads; close it.

    A file that would grow beyond `split` bytes is closed and followed by `<base>_1.json`, `<base>_2.json`, ...; of
    these the last `files` are kept. Each can be read by itself, also one whose end is missing because the process was
    killed. Opening replaces a file that is there. Raises `StreamerError` where it cannot be written; if that happens
    later, a warning is logged and the profile ends.
    """

    def __init__(
        self, file: str | os.PathLike[str], *, split: int = 64 << 20, files: int = 10, process: str = "streamer"
    ) -> None:
        """`split` in bytes, 0: never; `process` is the name of this process in the viewer."""
        self._first = Path(file)
        self._split = split
        self._files = files
        self._process = process
        self._number = 0
        self._turn = threading.Lock()
        self._pending: list[str] = []
        self._pending_size = 0
        self._written_at = time.monotonic()
        self._size = 0
        self._named: set[int] = set()
        self._pid = os.getpid()
        try:
            self._file: TextIO | None = self._opened()
        except BlockingIOError as error:
            raise StreamerError(
                f"the profile {self._first} is being written by another service or process; give each its own file"
            ) from error
        except OSError as error:
            raise StreamerError(
                f"the profile {self._first} cannot be written: {error.strerror or error}; choose another place"
            ) from error

    @property
    def path(self) -> Path:
        """The file that is written at present."""
        return self._path(self._number)

    def step(self, run: StepRun) -> None:
        """Write the event of a step that has run a batch. May be called from any thread."""
        arguments: dict[str, Any] = {"runner": run.runner, "rows": run.rows}
        if run.errors:
            arguments["errors"] = dict(run.errors)
        self.event(run.step, "step", run.began, run.seconds, thread=run.thread, **arguments)

    def event(
        self, name: str, category: str, began: float, seconds: float, *, thread: int | None = None, **arguments: Any
    ) -> None:
        """Write an event of `seconds` that began at `began` (`time.perf_counter`), in this thread or the one given.

        `arguments` are shown beside it. After `close` nothing happens.
        """
        thread = threading.get_native_id() if thread is None else thread
        text = json.dumps(
            {
                "name": name,
                "cat": category,
                "ph": "X",
                "ts": round(began * 1e6, 3),
                "dur": round(seconds * 1e6, 3),
                "pid": self._pid,
                "tid": thread,
                "args": arguments,
            }
        )
        with self._turn:
            if self._file is None:
                return
            try:
                self._add(text, thread)
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Write the rest and close the file; a second call does nothing."""
        with self._turn:
            if self._file is None:
                return
            try:
                self._end(self._file)
            except OSError as error:
                self._give_up(error)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add(self, text: str, thread: int) -> None:
        if self._split and self._named and self._size + len(text) > self._split:
            self._next()
        if thread not in self._named:
            self._named.add(thread)
            self._put(_metadata("thread_name", self._pid, thread, _thread_name(thread)))
        self._put(text)
        if self._pending_size > PENDING_BYTES or time.monotonic() - self._written_at > PENDING_SECONDS:
            self._write()

    def _put(self, text: str) -> None:
        # The separator comes first, so that the file is always an array that lacks only its closing bracket.
        text = f",\n{text}"
        self._pending.append(text)
        self._pending_size += len(text)
        self._size += len(text)

    def _write(self) -> None:
        assert self._file is not None
        self._file.write("".join(self._pending))
        self._file.flush()
        self._pending, self._pending_size = [], 0
        self._written_at = time.monotonic()

    def _next(self) -> None:
        assert self._file is not None
        self._end(self._file)
        self._number += 1
        if self._number >= self._files:
            self._path(self._number - self._files).unlink(missing_ok=True)
        self._file = self._opened()

    def _opened(self) -> TextIO:
        # Truncated only once it is locked: another process may be writing it.
        file = self._path(self._number).open("a", encoding="utf-8")
        try:
            _lock(file)
            if os.fstat(file.fileno()).st_size:
                file.truncate(0)
        except BaseException:
            file.close()
            raise
        self._named = set()
        head = "[\n" + _metadata("process_name", self._pid, 0, self._process)
        file.write(head)
        self._size = len(head)
        return file

    def _end(self, file: TextIO) -> None:
        try:
            self._write()
            file.write("\n]\n")
        finally:
            file.close()

    def _give_up(self, error: OSError) -> None:
        _log.warning("the profile %s ends here, it cannot be written: %s", self.path, error.strerror or error)
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                pass

    def _path(self, number: int) -> Path:
        if not number:
            return self._first
        return self._first.with_name(f"{self._first.stem}_{number}{self._first.suffix or '.json'}")


def _lock(file: TextIO) -> None:
    """Raises `BlockingIOError` if another profiler writes this file, in this process or another."""
    try:
        import fcntl
    except ImportError:
        # Windows, which has no such lock.
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _metadata(kind: str, process: int, thread: int, name: str) -> str:
    return json.dumps({"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}})


def _thread_name(number: int) -> str:
    return next((thread.name for thread in threading.enumerate() if thread.native_id == number), f"thread {number}")
