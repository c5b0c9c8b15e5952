"""Reading one file of records, and those that take its name after it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Protocol

from connectors.file.checkpoint import Place
from connectors.file.framing import Framing, Unfinished
from connectors.file.identity import Inode, OpenFile, inode_of
from connectors.file.reading import Delivered, Reading, Rows
from connectors.file.recordbuffer import RecordBuffer
from connectors.file.rotation import following, former, rotated_since
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

_CUT = "it ends inside this record, of which {} bytes are there: its writer was stopped, or still writes"


class Neighbours(Protocol):
    """What a source tells a file of it about the others that it reads under their own names."""

    def reads(self, path: Path) -> bool:
        """Whether this is one of them."""

    def has(self, place: Place) -> bool:
        """Whether the file of this place is one of them."""

    def is_held(self, path: Path, topic: str) -> bool:
        """Whether another file than `topic` is reading this one, which had its name before."""

    def place_in(self, path: Path) -> Place | None:
        """Up to where this file was read under a former name; `None` if it was not."""


class RecordFile(Reading):
    """The records of one file, and of the files that take its place when it is rotated, replaced or cut short.

    Positions are record (line) numbers from 0, counted on from one file to the next. It reads a chunk at a time, so
    that it holds about a megabyte or one record. `follow`: at the end of the file it waits for more records, and for
    the rest of an incomplete one.

    A place in the checkpoint knows its file. If another file has the name now, the rest of the former one is read
    first, where log rotation has put it (`rotation`), then the new one from its beginning.
    """

    def __init__(
        self,
        path: Path,
        topic: str,
        framing: Framing,
        start: Place,
        *,
        max_record: int,
        follow: bool,
        unfinished: Unfinished = "wait",
        neighbours: Neighbours,
    ) -> None:
        """`unfinished`: what to do with a record at the end of a file that lacks its own end, unless it is followed."""
        super().__init__(topic, start)
        self._path = path
        self._framing = framing
        self._max_record = max_record
        self._follow = follow
        self._unfinished = unfinished
        self._neighbours = neighbours
        self._file: OpenFile | None = None
        self._records: RecordBuffer
        self.rewind()

    @property
    def held_bytes(self) -> int:
        """As `Reading.held_bytes`."""
        return self._records.byte_count

    def held(self) -> set[Inode]:
        """As `Reading.held`."""
        files = [self._file, *(rows.origin for rows in self._delivered)]
        return {inode_of(file.stat) for file in files if file is not None}

    def read(self, max_records: int, max_bytes: int) -> Rows:
        """As `Reading.read`. `ConnectorError` names the byte where the file cannot be read further."""
        if not len(self._records) and not self.exhausted:
            try:
                self._fill()
            except OSError as error:
                raise ConnectorError(f"{self._path} cannot be read: {error}") from error
        origin = self._file
        values, numbers, nexts = self._records.deliver(max_records, max_bytes)
        self._see_whether_it_ends()
        if values:
            self._delivered.append(Delivered(numbers, nexts, origin))
        return Rows(values, numbers)

    def acknowledge(self, position: int) -> None:
        """As `Reading.acknowledge`."""
        super().acknowledge(position)
        self._go_to_the_next_file()

    def rewind(self) -> None:
        """As `Reading.rewind`."""
        self.close()
        self._delivered.clear()
        self.exhausted = False
        self.waits = None
        self._acknowledged_in: OpenFile | None = None
        self._looked: tuple[int, int, int] | None = None
        self._go_to(self.acknowledged)

    def close(self) -> None:
        """As `Reading.close`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _place(self, records: int, mark: Any, origin: Any) -> Place:
        self._now_acknowledged_in(origin)
        return Place(records, int(mark), file=origin.id(int(mark)))

    def _go_to_the_next_file(self) -> None:
        """Once all records of a file are acknowledged, the acknowledged place is where reading goes on after it."""
        file = self._delivered[0].origin if self._delivered else self._file
        if file is not None and file is not self._acknowledged_in:
            self._now_acknowledged_in(file)
            self.acknowledged = Place(file.number, file.start, file=file.id(file.start))

    def _now_acknowledged_in(self, file: OpenFile) -> None:
        """The acknowledged place is about to be in this file: what it was is the end of another one."""
        done = self.acknowledged
        if file is not self._acknowledged_in and done.file is not None and not done.file.same_inode(file.stat):
            self.finished.append(done)
        self._acknowledged_in = file

    def _go_to(self, place: Place) -> None:
        """Read from this place on; its file is looked for at the next read."""
        self._next_place = place
        self._records = RecordBuffer(self._framing, self._max_record, place.records, place.offset)

    def _fill(self) -> None:
        """Read until there is at least one record, or the present end of the file."""
        while not len(self._records):
            self._raise_problem()
            file = self._file or self._opened()
            if file is None:
                return
            if self._took_more(file):
                continue
            after = self._after(file)
            if after is None:
                self._stop_at_the_end()
                return
            # What its writer wrote before it went on to the next file.
            if not self._took_more(file):
                self._finish(file, after)

    def _took_more(self, file: OpenFile) -> bool:
        """Whether anything has changed: more bytes of the file, or it is another one."""
        records = self._records
        chunk = file.read(records.wanted)
        if chunk is None:
            self.close()
            self._go_to(Place(records.number, records.offset, file=file.id(records.offset)))
        elif chunk:
            self.waits = None
            records.add(chunk)
        return chunk != b""

    def _stop_at_the_end(self) -> None:
        rest = self._records.rest
        if self._follow:
            self.waits = self._beginning() if rest else None
            return
        edges = self._framing.rest(rest)
        if rest and not self._framing.whole(rest) and (edges is None or self._unfinished != "read"):
            self._leave_the_rest()
            return
        if edges is not None:
            self._records.end_with(*edges)
        self._see_whether_it_ends()

    def _leave_the_rest(self) -> None:
        """The file ends inside a record, which the next run reads, or which is an error."""
        records = self._records
        records.problem = self._framing.foreign(records.rest)
        if records.problem is None and self._unfinished != "wait":
            records.problem = _CUT.format(len(records.rest))
        self._raise_problem()
        self.waits = self._beginning()
        is_line = self._framing.rest(records.rest) is not None
        advice = "; if it lacks nothing but its line feed, write unfinished: read" if is_line else ""
        _log.warning("%s; the next run reads it, when it is complete%s", self.waits, advice)
        self.exhausted = True
        self.close()

    def _beginning(self) -> str:
        size = len(self._records.rest)
        path = self._path if self._file is None else self._file.path
        return f"{path}: its last {size} bytes, from byte {self._records.offset} on, are a record without its end"

    def _see_whether_it_ends(self) -> None:
        """Check for the end before the next read, so that the source reports it with its last record."""
        file, records = self._file, self._records
        if len(records) or self._follow or records.rest or records.problem or file is None:
            return
        if file.size() == records.offset and self._after(file) is None:
            self.exhausted = True
            self.close()

    def _opened(self) -> OpenFile | None:
        """The file of the place, or else the one to read after it; `None` while it is awaited."""
        place = self._next_place
        try:
            file = OpenFile(self._path)
        except FileNotFoundError:
            file = None
        if file is None or not _fits(place, file):
            present, file = file, self._former(place)
            if file is not None:
                _log.info("%s: the rest of the former file is in %s now, and is read first", self._path, file.path)
            elif not self._neighbours.is_held(self._path, self.topic):
                # Otherwise it is read on from here once the other one has let go of it.
                file = present if self._neighbours.has(place) else self._next_of_missing(place, present)
                place = self._start_of(place.records, file)
            if present is not None and file is not present:
                present.close()
        if file is None:
            if self._follow:
                return None
            raise ConnectorError(f"{self._path} is not there any more")
        self._begin(file, place.offset)
        return file

    def _former(self, place: Place) -> OpenFile | None:
        """The file of the place, or a copy of it, beside the one that has its name now, unless it is read elsewhere."""
        if place.file is None or self._neighbours.has(place):
            return None
        file = former(self._path, place.file, place.offset)
        if file is not None and self._neighbours.reads(file.path):
            file.close()
            return None
        return file

    def _next_of_missing(self, place: Place, present: OpenFile | None) -> OpenFile | None:
        """The file to read after one that is gone; `None` while there is none."""
        file = None
        if place.file is not None:
            file = rotated_since(self._path, place.file.modified, self._neighbours.reads)
        file = file or present
        if file is not None:
            _log.warning(
                "%s is another file now (rotated, replaced or cut short), and the former one is not found beside it. "
                "It was read up to byte %d: what it had after that is not read (if log rotation compresses files, let "
                "it do so one rotation later; logrotate: delaycompress). %s is read next, from its beginning",
                self._path,
                place.offset,
                file.path,
            )
        return file

    def _begin(self, file: OpenFile, offset: int) -> None:
        number = self._records.number
        file.begin(offset, number)
        self._file = file
        self._records = RecordBuffer(self._framing, self._max_record, number, offset)
        self._go_to_the_next_file()

    def _after(self, file: OpenFile) -> Path | None:
        """The file to read after this one; `None` if it is the last for now."""
        if file.is_at(self._path):
            return None
        # The folder is searched only when something has changed in it.
        target = self._path.resolve()
        looked = (_changed(self._path.parent), _changed(target.parent), _size(target))
        if looked == self._looked:
            return None
        after = following(self._path, file, self._neighbours.reads)
        if after is not None and self._neighbours.is_held(after, self.topic):
            return None
        self._looked = looked if after is None else None
        return after

    def _finish(self, file: OpenFile, after: Path) -> None:
        """Go on to the next file, after what this one has left: a record without its end will not get it any more."""
        records = self._records
        if records.rest:
            if self._unfinished == "fail":
                records.problem = _CUT.format(len(records.rest))
                self._raise_problem()
            edges = self._framing.rest(records.rest)
            if edges is None:
                _log.warning("%s, which will not come any more: they are not read", self._beginning())
            records.end_with(*edges or (0, 0))
            if len(records):
                return
        try:
            opened = OpenFile(after)
        except FileNotFoundError:
            # It was rotated in this moment.
            return
        offset = self._start_of(0, opened).offset
        _log.info("%s was read to its end, %s is read next", file.path, after)
        file.close()
        self._begin(opened, offset)

    def _start_of(self, records: int, file: OpenFile | None) -> Place:
        """Where a file that has the name now is read from: its beginning, unless it was read under another name."""
        known = None if file is None else self._neighbours.place_in(file.path)
        return Place(records, 0 if known is None else known.offset)

    def _raise_problem(self) -> None:
        records = self._records
        if records.problem is not None:
            raise ConnectorError(f"{self._path}: record {records.number} at byte {records.offset}: {records.problem}")


def _fits(place: Place, file: OpenFile) -> bool:
    return file.size() >= place.offset if place.file is None else place.file.fits(file, place.offset)


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
