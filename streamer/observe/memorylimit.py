"""`MemoryLimit`: the most memory that this process may take while a service is open, by Linux's `RLIMIT_DATA`."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipelines.errors import DefinitionError
from pipelines.outofmemory import free_with

LEAST: Final = 1.25
"""A limit is at least so many times what is in use when the models are loaded, so that records have room too."""
ROOM: Final = 64 << 20
"""Bytes beyond the limit that the process may take while what a record took is freed, which lasts some milliseconds:
the other threads, such as those that read from a broker, have nothing to do with that record."""
_MIB: Final = 1 << 20


class MemoryLimit:
    """The limit of one service: known from entering on, in force from `set` on, gone at the exit.

    A limit is one of the process. Where it runs several services, the largest of their limits counts, also while the
    models of the others are loaded. One that was set from outside is never raised, and is the only one again when
    the last service has ended.
    """

    def __init__(self, limit: int | None, where: str = "") -> None:
        """`limit` in bytes, `None` for none; `where` begins the text of an error: file and line of the limit."""
        self._limit = limit
        self._where = where

    def __enter__(self) -> MemoryLimit:
        if self._limit is not None:
            _PROCESS.add(self, self._limit)
        return self

    def set(self) -> None:
        """Have the limit count, as everything is loaded now. Raises `DefinitionError` if what is in use is too much."""
        if self._limit is None:
            return
        used = in_use()
        largest = _PROCESS.largest
        if largest < LEAST * used:
            raise DefinitionError(
                f"{self._where}limits: memory: {_mib(largest)} is too little: the process uses {_mib(used)} now that "
                f"the models are loaded, and records need some too; set {_mib(LEAST * used)} at least, or remove it"
            )
        _PROCESS.enforce(self)

    def __exit__(self, *raised: object) -> None:
        _PROCESS.remove(self)


def in_use() -> int:
    """The bytes that count for `RLIMIT_DATA`: memory that this process may write to and shares with no other."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    size = re.search(r"^VmData:\s+(\d+) kB$", status, re.MULTILINE)
    return 0 if size is None else int(size[1]) * 1024


class _Process:
    """The limits of all services of this process that are open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limits: dict[MemoryLimit, int] = {}
        self._enforced: set[MemoryLimit] = set()
        self._outside = -1
        """The limit that was there before ours."""
        self._freeing = 0

    @property
    def largest(self) -> int:
        with self._lock:
            return max(self._limits.values())

    def add(self, limit: MemoryLimit, size: int) -> None:
        with self._lock:
            self._limits[limit] = size
            if self._enforced:
                self._apply()

    def enforce(self, limit: MemoryLimit) -> None:
        with self._lock:
            if not self._enforced:
                self._outside = _soft_limit()
            self._enforced.add(limit)
            self._apply()

    def remove(self, limit: MemoryLimit) -> None:
        with self._lock:
            self._limits.pop(limit, None)
            if limit not in self._enforced:
                return
            self._enforced.remove(limit)
            if self._enforced:
                self._apply()
            else:
                _set_soft_limit(self._outside)

    @contextmanager
    def room(self) -> Iterator[None]:
        """While threads free memory there is room for the others."""
        self._count_freeing(1)
        try:
            yield
        finally:
            self._count_freeing(-1)

    def _count_freeing(self, more: int) -> None:
        with self._lock:
            self._freeing += more
            if self._enforced:
                self._apply()

    def _apply(self) -> None:
        largest = max(self._limits.values()) + (ROOM if self._freeing else 0)
        _set_soft_limit(largest if self._outside < 0 else min(largest, self._outside))


_PROCESS: Final = _Process()
free_with(_PROCESS.room)


def _soft_limit() -> int:
    # Not there on Windows.
    import resource

    return resource.getrlimit(resource.RLIMIT_DATA)[0]


def _set_soft_limit(size: int) -> None:
    import resource

    # The hard limit stays, as it could not be raised again.
    resource.setrlimit(resource.RLIMIT_DATA, (size, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _mib(size: float) -> str:
    return f"{-(-int(size) // _MIB)}MiB"
