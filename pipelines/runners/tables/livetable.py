"""`LiveTable`: the table of a file, made again when the file was replaced."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from typing import Final

from pipelines.errors import StreamerError
from pipelines.runners.tables.table import Table
from pipelines.runners.tables.tablefile import TableFile

_log = logging.getLogger(__name__)

LOOK: Final = 1.0
"""Seconds between two looks at the file."""
AGAIN: Final = 30
"""Looks after which a file is read again that could not be, and is still the same: another program may have held it."""
WRITING: Final = 10
"""Looks at which the file was another each time, after which the log says so."""


class LiveTable:
    """A table that is in use, and the thread that looks for a new file.

    A file counts once it is the same for two looks, and was not changed while it was read. As long as there is none
    that can be read, the table before stays in use.
    """

    def __init__(self, file: TableFile, make: Callable[[Table | None], Table], step: str) -> None:
        """`make` reads the file; it gets the table before, whose types the new one has to keep.

        `step` is the step's name for the log. Raises what `make` raises.
        """
        self._file = file
        self._make = make
        self._step = step
        self._mark = file.mark()
        """That of the file which the table was made of."""
        self.table = make(None)
        """The table to use. A new one is another object."""
        self.outdated = False
        """Whether the file is another one, or none, than that which the table was made of."""
        self._seen = self._mark
        self._changes = 0
        self._refused: Hashable | None = None
        self._waits = 0
        self._said = ""
        self._ended = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Begin to look for new files, in a thread of its own, unless it does so already. Any thread may call."""
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"table {self._file.label}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Look no more. Does not wait for a look, which a slow disk may hold."""
        self._ended.set()

    def look(self) -> None:
        """See whether the file is another one, and make its table if it can be read. Raises nothing."""
        mark = self._file.mark()
        if mark == self._mark:
            self._settle(mark)
            return
        self.outdated = True
        if mark is None:
            self._seen, self._changes = None, 0
            self._say("the file is not there any more")
            return
        if mark != self._seen:
            self._seen = mark
            self._changes += 1
            if self._changes == WRITING:
                self._say("the file is being written to all the time; write a new one and rename it")
            return
        self._changes = 0
        if mark == self._refused and self._waits:
            self._waits -= 1
            return
        self._read(mark)

    def _read(self, mark: Hashable) -> None:
        try:
            table = self._make(self.table)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with the file, the table before stays
            if self._file.mark() == mark:
                self._refused, self._waits = mark, AGAIN
                self._say(str(error) if isinstance(error, StreamerError) else f"{type(error).__name__}: {error}")
            return
        if self._file.mark() != mark:
            return
        self.table = table
        _log.info("%s: %s was replaced; it has %s rows now", self._step, self._file.label, f"{table.size:,}")
        self._said = ""
        self._settle(mark)

    def _settle(self, mark: Hashable | None) -> None:
        self._mark = self._seen = mark
        self._changes = 0
        self._refused = None
        self.outdated = False
        if self._said:
            _log.info("%s: %s is again the file that is in use", self._step, self._file.label)
            self._said = ""

    def _say(self, problem: str) -> None:
        """Say once in the log why the table before stays in use."""
        if problem != self._said:
            self._said = problem
            _log.warning(
                "%s: %s: %s; the table of before, of %s rows, stays in use",
                self._step, self._file.path, problem, f"{self.table.size:,}",
            )  # fmt: skip

    def _run(self) -> None:
        while not self._ended.wait(LOOK):
            self.look()
