"""`Shared`: objects that several executors of one pipeline use together, such as the weights of models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Entry:
    value: Any
    close: Callable[[Any], None]
    references: int = 1


class Shared:
    """Objects by key, made when they are first asked for and closed when nobody uses them any more.

    `Pipeline.open(shared=...)` takes one for all executors of the same definition: what they can use together is loaded
    once, whichever of them is opened first or closed last. Each `get` and each successful `find` is a reference, which
    one `release` gives back. Any thread may call; while an object is made, others wait.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}
        # Reentrant: what is made may use other shared objects, as a step with a pipeline inside does.
        self._lock = threading.RLock()

    def get(self, key: Hashable, make: Callable[[], T], close: Callable[[T], None]) -> T:
        """The object of this key; the first call makes it, and the last `release` calls `close` with it.

        Raises what `make` raises; then the key stays free.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(make(), close)
            else:
                entry.references += 1
            value: T = entry.value
            return value

    def find(self, key: Hashable) -> Any:
        """The object of this key, with one reference more; `None` if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            entry.references += 1
            return entry.value

    def release(self, key: Hashable) -> None:
        """Give back one reference; the last one closes the object. Raises what its `close` raises.

        A key without an object is ignored.
        """
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return
            entry.references -= 1
            if entry.references:
                return
            del self._entries[key]
            entry.close(entry.value)

    def __len__(self) -> int:
        """How many objects there are."""
        return len(self._entries)
