"""`FollowedTable`: a table that is read whole, and then followed while it is used."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from pipelines.errors import StreamerError
from pipelines.plugins.tables import TableReader
from pipelines.runners.tables.rowsbykey import RowsByKey

_log = logging.getLogger(__name__)

WAIT: Final = 0.2
"""Seconds of one wait for records: so long may ending take."""
AGAIN: Final = 5.0
"""Seconds before a table that could not be followed is read anew."""
_SHOWN: Final = 2.0
"""Seconds between two lines about how much has been read."""


class FollowedTable:
    """The rows of a table, and the thread that keeps them as they are there.

    If the table cannot be followed, its rows stay in use until it has been read anew.
    """

    def __init__(
        self,
        reader: Callable[[], TableReader],
        empty: Callable[[], RowsByKey],
        step: str,
        patience: float,
        progress: Callable[[str], None] | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        """Read the table whole.

        `empty` makes rows, of which there are none. `step` is the step's name for the log, `patience` how many seconds
        may pass without a record; `progress` is called with lines about how much has been read, which are logged
        without it. Raises `StreamerError` if the table cannot be read or is too large, or `stopping` is set.
        """
        self._make = reader
        self._empty = empty
        self._step = step
        self._patience = patience
        self._progress = progress
        self._stopping = stopping
        self._ended = threading.Event()
        self._said = ""
        self._unread_said = False
        self.outdated = False
        """Whether the table is followed no more, or had no room for a row."""
        opened = reader()
        opened.__enter__()
        try:
            self.table = self._read(opened)
            """The rows to use. A table that was read anew is another object."""
        except BaseException:
            opened.__exit__(None, None, None)
            raise
        self._thread = threading.Thread(target=self._run, args=(opened,), name=f"table {self.table.label}", daemon=True)
        self._thread.start()

    def watch(self) -> None:
        """It follows from the first moment on."""

    def close(self) -> None:
        """Follow no more. Does not wait for the thread, which closes its reader soon."""
        self._ended.set()

    def _read(self, reader: TableReader) -> RowsByKey:
        rows = self._empty()
        count, total = 0, reader.total
        begun = last = shown = time.monotonic()
        self._show(f"reads {rows.label}, {total:,} records")
        while not reader.at_end:
            if self._ended.is_set() or (self._stopping is not None and self._stopping.is_set()):
                raise StreamerError(f"{rows.label} was not read to its end, as the service stops")
            more = reader.poll(WAIT)
            rows.put(more)
            if rows.full:
                raise StreamerError(rows.full)
            now = time.monotonic()
            count += len(more)
            if len(more):
                last = now
            elif now - last > self._patience and not reader.at_end:
                raise StreamerError(
                    f"{rows.label} was not read to its end: no record came for {now - last:.0f} s, after {count:,} of "
                    f"{total:,}; see whether all brokers run, or raise timeout of the table"
                )
            if now - shown >= _SHOWN:
                shown = now
                self._show(f"has read {count:,} of {total:,} records of {rows.label}")
        if rows.unread:
            _log.warning(
                "%s: %s records of %s have no key, or cannot be read: there are no rows of them",
                self._step, f"{rows.unread:,}", rows.label,
            )  # fmt: skip
        spent = time.monotonic() - begun
        _log.info("%s: %s has %s rows, read in %.1f s", self._step, rows.label, f"{rows.size:,}", spent)
        return rows

    def _show(self, line: str) -> None:
        if self._progress is None:
            _log.info("%s: %s", self._step, line)
        else:
            self._progress(f"{self._step} {line}")

    def _run(self, reader: TableReader) -> None:
        opened: TableReader | None = reader
        while not self._ended.is_set():
            try:
                if opened is None:
                    opened = self._make()
                    opened.__enter__()
                    self.table = self._read(opened)
                    self.outdated, self._said = False, ""
                self._follow(opened)
            except Exception as error:  # noqa: BLE001 - whatever is wrong, the rows of before stay
                self.outdated = True
                self._say(str(error) if isinstance(error, StreamerError) else f"{type(error).__name__}: {error}")
                _close(opened)
                opened = None
                self._ended.wait(AGAIN)
        _close(opened)

    def _follow(self, reader: TableReader) -> None:
        rows, unread = self.table, self.table.unread
        while not self._ended.is_set():
            more = reader.poll(WAIT)
            if not len(more):
                continue
            rows.put(more)
            if rows.refused and not self.outdated:
                self.outdated = True
                _log.error("%s: %s; rows that came last are not there", self._step, rows.full)
            if rows.unread > unread:
                unread = rows.unread
                self._say_unread(rows)

    def _say(self, problem: str) -> None:
        """Say once in the log why the rows are not followed any more."""
        if problem != self._said and not self._ended.is_set():
            self._said = problem
            _log.warning(
                "%s: %s is not followed: %s; its %s rows stay in use",
                self._step, self.table.label, problem, f"{self.table.size:,}",
            )  # fmt: skip

    def _say_unread(self, rows: RowsByKey) -> None:
        if not self._unread_said:
            self._unread_said = True
            _log.warning(
                "%s: a record of %s has no key, or cannot be read: there is no row of it", self._step, rows.label
            )


def _close(reader: TableReader | None) -> None:
    if reader is not None:
        try:
            reader.__exit__(None, None, None)
        except Exception:  # noqa: BLE001 - it is not used any more
            _log.debug("a table's reader could not be closed", exc_info=True)
