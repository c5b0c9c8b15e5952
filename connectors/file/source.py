"""`FileSource`: records from files."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import numpy as np

from connectors.file.checkpoint import Checkpoint, Place
from connectors.file.config import FileSourceConfig
from connectors.file.framing import MAX_RECORD, Framing, Unfinished, framing
from connectors.file.identity import Inode, inode_of
from connectors.file.imagefolder import ImageFolder
from connectors.file.reading import Reading, Rows
from connectors.file.recordfile import RecordFile
from connectors.file.unread import unread
from connectors.records import Ints, Lane, Records, Span
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceEnded
from pipelines.errors import ConnectorError
from pipelines.values.imageheader import SUFFIXES

LOOK = 0.05
"""Seconds between two checks of files that are followed."""
IMAGES = "images"


class FileSource(Source):
    """Delivers the records of a file, of the files of a folder, or of those that match a pattern (`data/*.jsonl`).

    Each file is a lane; they are read one after the other in the order of their names (all at once when followed). With
    `format` images the folder is one lane, and each file a record with its name as key. `pattern` says which files of a
    folder; hidden ones never. Positions are record, line or file numbers. With a `checkpoint` file a later run goes on
    after the last acknowledged record; without one it begins at the first record again. One process at a time.

    `unfinished` says what to do with a record at the end of a file that lacks its own end (`framing.Unfinished`); a
    JSON document that is complete without its line feed is read in any case. By default the next run reads it; but
    without a `checkpoint`, where no run goes on after another, a line of text is read as it is.

    `ConnectorError` for an unknown format.
    """

    replays = Replays.OFFSET

    def __init__(
        self,
        path: str | Path,
        format: str = "protodata",
        *,
        pattern: str | None = None,
        checkpoint: str | Path | None = None,
        follow: bool = False,
        max_record: int = MAX_RECORD,
        unfinished: Unfinished | None = None,
        name: str = "file",
    ) -> None:
        self.name = name
        self._path = Path(path)
        self._framing: Framing | None = None if format == IMAGES else framing(format)
        self._pattern = pattern
        self._checkpoint_path = None if checkpoint is None else Path(checkpoint)
        self._checkpoint = Checkpoint(self._checkpoint_path)
        self._follow = follow
        self._max_record = max_record
        text_once = format == "lines" and checkpoint is None
        self._unfinished: Unfinished = unfinished or ("read" if text_once else "wait")
        self.waits = None
        self._readings: dict[str, Reading] = {}
        self._numbers: dict[str, int] = {}
        self._lanes: dict[str, Lane] = {}
        self._at_their_end: dict[str, tuple[int, ...]] = {}
        self._epochs = itertools.count()
        self._events: list[Event] = []
        self._end_reported = False
        self._files_sought_at = -math.inf
        self._open = False
        self._woken = threading.Event()

    @classmethod
    def of(cls, config: FileSourceConfig) -> Self:
        """The source of this configuration."""
        return cls(
            config.path,
            config.format,
            pattern=config.pattern,
            checkpoint=config.checkpoint,
            follow=config.follow,
            max_record=config.max_record,
            unfinished=config.unfinished,
            name=config.label,
        )

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Find the files and the checkpoint. `ConnectorError` if there is no file (unless the source waits for one)."""
        self._checkpoint.load()
        self._open = True
        self._end_reported = False
        self._at_their_end.clear()
        self._find_files()
        if not self._readings and not self._follow:
            self._open = False
            raise ConnectorError(f"there is no file {self._path}{f' ({self._pattern})' if self._pattern else ''}")

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """As `Source.poll`. `ConnectorError` for a record that cannot be read, once all before it were delivered."""
        if not self._open:
            raise ConnectorError(f"{self.name} is not open")
        deadline = time.monotonic() + timeout
        self._checkpoint.write(now=False)
        gathered: list[tuple[Lane, Rows]] = []
        count, size = 0, 0
        while True:
            count, size = self._gather(gathered, count, size, max_records, max_bytes)
            left = deadline - time.monotonic()
            if count >= max_records or size >= max_bytes or self._tell_end(bool(gathered)) or left <= 0:
                break
            if self._woken.wait(min(left, LOOK) if self._follow else left):
                self._woken.clear()
                break
            self._find_files()
        waiting = [reading.waits for reading in self._readings.values() if reading.waits is not None]
        self.waits = "; ".join(waiting[:_NAMED]) + ("; ..." if len(waiting) > _NAMED else "") or None
        return self._block(gathered, size)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """As `Source.acknowledge`: the checkpoint file is written now if `wait`, else about twice a second."""
        for lane, position in positions.items():
            if self._lanes.get(lane.partition) == lane:
                self._checkpoint.note(lane.partition, self.noted)
                reading = self._readings[lane.partition]
                reading.acknowledge(position)
                self._note(lane.partition)
        self._checkpoint.write(now=wait)

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """As `Source.rewind`."""
        for lane in lanes:
            if self._lanes.get(lane.partition) == lane:
                self._events.append(LaneEnded(self._lanes.pop(lane.partition)))
                self._readings[lane.partition].rewind()
                self._begin(lane.partition)
                self._end_reported = False

    def events(self) -> list[Event]:
        """As `Source.events`."""
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Close the files, and write the acknowledged positions to the checkpoint."""
        self._open = False
        self._lanes.clear()
        for reading in self._readings.values():
            reading.close()
        self._readings.clear()
        self._checkpoint.write(now=True)

    def wake(self) -> None:
        """As `Source.wake`."""
        self._woken.set()

    def caught_up(self, emptied_at: float) -> float:
        """As `Source.caught_up`: files that have come since it last looked for some are not read yet."""
        return min(emptied_at, self._files_sought_at) if self._follow else emptied_at

    @property
    def held_bytes(self) -> int:
        """Bytes read and not delivered: about 1 MiB for each file that is being read, or one record."""
        return sum(reading.held_bytes for reading in self._readings.values())

    def reads(self, path: Path) -> bool:
        """As `Neighbours.reads`."""
        return any(path == file for file, _ in _files(self._path, self._pattern))

    def has(self, place: Place) -> bool:
        """As `Neighbours.has`."""
        for path, _ in _files(self._path, self._pattern):
            with suppress(OSError):
                if place.is_in(path):
                    return True
        return False

    def is_held(self, path: Path, topic: str) -> bool:
        """As `Neighbours.is_held`."""
        with suppress(OSError):
            inode = inode_of(path.stat())
            return any(name != topic and inode in reading.held() for name, reading in self._readings.items())
        return False

    def place_in(self, path: Path) -> Place | None:
        """As `Neighbours.place_in`."""
        with suppress(OSError):
            return self._checkpoint.place_in(path)
        return None

    def _left_out(self) -> list[str]:
        if self._path.is_file():
            return []
        folder, pattern = _folder_and_pattern(self._path, self._pattern)
        if self._framing is None:
            return unread(folder, pattern or "**/*", None if pattern else SUFFIXES)
        return unread(folder, pattern or "*")

    def _find_files(self) -> None:
        self._files_sought_at = time.monotonic()
        if self._framing is None:
            folder, pattern = _folder_and_pattern(self._path, self._pattern)
            if folder.is_dir() and not self._readings:
                start = self._checkpoint.place(folder.name)
                self._add(
                    ImageFolder(folder, folder.name, pattern, start, max_record=self._max_record, follow=self._follow)
                )
            return
        if self._readings and not self._follow:
            return
        held: set[Inode] = set().union(*(reading.held() for reading in self._readings.values()))
        for path, topic in _files(self._path, self._pattern):
            if topic in self._readings or path == self._checkpoint_path or self._is_read_already(path, topic, held):
                continue
            self._add(
                RecordFile(
                    path,
                    topic,
                    self._framing,
                    self._checkpoint.place(topic),
                    max_record=self._max_record,
                    follow=self._follow,
                    unfinished=self._unfinished,
                    neighbours=self,
                )
            )

    def _add(self, reading: Reading) -> None:
        self._readings[reading.topic] = reading
        self._numbers[reading.topic] = len(self._numbers)

    def _is_read_already(self, path: Path, topic: str, held: Collection[Inode]) -> bool:
        """Whether this file is being read under a former name, or was, to its end.

        One that was read under a former name, and not to its end, is to be read on from there.
        """
        try:
            stat = path.stat()
            looked = (*inode_of(stat), stat.st_size, stat.st_mtime_ns)
            if inode_of(stat) in held or self._at_their_end.get(topic) == looked:
                return True
            known = self._checkpoint.place_in(path)
        except OSError:
            return False
        if known is None:
            return False
        self._checkpoint.put(topic, known)
        if not self._follow or known.offset != stat.st_size:
            return False
        self._at_their_end[topic] = looked
        return True

    def _note(self, topic: str) -> None:
        """Note the acknowledged positions of this file, and of files that had its name before."""
        reading = self._readings[topic]
        self._checkpoint.put(topic, reading.acknowledged)
        for done in reading.finished:
            self._checkpoint.finish(done)
        reading.finished.clear()

    def _begin(self, topic: str) -> Lane:
        lane = Lane(self.name, topic, next(self._epochs))
        self._lanes[topic] = lane
        position = self._readings[topic].acknowledged.records
        noted = self._checkpoint.noted(topic)
        self._events.append(LaneBegan(lane, topic, self._numbers[topic], position, noted))
        return lane

    def _gather(
        self, gathered: list[tuple[Lane, Rows]], count: int, size: int, max_records: int, max_bytes: int
    ) -> tuple[int, int]:
        for topic, reading in self._readings.items():
            while not reading.exhausted and count < max_records and size < max_bytes:
                lane = self._lanes.get(topic) or self._begin(topic)
                try:
                    rows = reading.read(max_records - count, max_bytes - size)
                except ConnectorError:
                    # Records before the error are delivered first; the next poll meets it again.
                    if gathered:
                        return max_records, size
                    raise
                self._note(topic)
                if not rows.values:
                    break
                gathered.append((lane, rows))
                count += len(rows.values)
                size += _size(rows)
        return count, size

    def _tell_end(self, gathered: bool) -> bool:
        """Whether the source has ended. Raises `ConnectorError` once all is read if files or folders could not be."""
        if self._follow or self._end_reported or not all(reading.exhausted for reading in self._readings.values()):
            return False
        if left_out := self._left_out():
            if gathered:
                # The next poll raises it: these records are delivered first.
                return True
            count = len(left_out)
            raise ConnectorError(
                f"{count} {'file or folder' if count == 1 else 'files or folders'} could not be read: "
                f"{'; '.join(left_out[:_NAMED])}{'; ...' if count > _NAMED else ''}; everything else was read; "
                "mend the links and rights, or choose other files (pattern)"
            )
        self._end_reported = True
        self._events.append(SourceEnded(self.name))
        return True

    def _block(self, gathered: list[tuple[Lane, Rows]], size: int) -> Records:
        if not gathered:
            return Records.empty(self.name)
        edges = np.cumsum([0, *(len(rows.values) for _, rows in gathered)]).tolist()
        return Records(
            self.name,
            [value for _, rows in gathered for value in rows.values],
            [key for _, rows in gathered for key in rows.keys or ()] if self._framing is None else None,
            np.concatenate([rows.positions for _, rows in gathered]),
            [Span(lane, edges[index], edges[index + 1]) for index, (lane, _) in enumerate(gathered)],
            [lane.partition for lane, _ in gathered],
            [self._numbers[lane.partition] for lane, _ in gathered],
            size,
            timestamps=lambda: np.concatenate([_timestamps(rows) for _, rows in gathered]),
            keys_are_names=self._framing is None,
        )


_NAMED: Final = 3
"""Files that a message names."""


def _size(rows: Rows) -> int:
    return sum(map(len, rows.values)) + sum(map(len, rows.keys or ()))


def _timestamps(rows: Rows) -> Ints:
    return np.full(len(rows.values), -1, np.int64) if rows.timestamps is None else rows.timestamps()


def _folder_and_pattern(path: Path, pattern: str | None) -> tuple[Path, str | None]:
    """`frames/*/*.png` as `frames` and `*/*.png`."""
    for index, part in enumerate(path.parts):
        if any(sign in part for sign in "*?["):
            return Path(*path.parts[:index]), "/".join(path.parts[index:])
    return path, pattern


def _files(path: Path, pattern: str | None) -> list[tuple[Path, str]]:
    """The files and their names below the folder, in order."""
    if path.is_file():
        return [(path, path.name)]
    folder, pattern = _folder_and_pattern(path, pattern)
    files = [file for file in folder.glob(pattern or "*") if file.is_file() and not file.name.startswith(".")]
    return sorted(((file, file.relative_to(folder).as_posix()) for file in files), key=lambda pair: pair[1])
