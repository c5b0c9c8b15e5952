"""Dead letters in a file, for `streamer replay` and `streamer tap`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from connectors.browser import AT_ONCE, Browser, Mark, TopicReader
from connectors.codecs.letterdocument import Parts, parts
from connectors.file.checkpoint import replace_file
from connectors.file.config import FileSinkConfig
from connectors.file.source import FileSource
from connectors.records import Ints, Records
from connectors.sink import Sink
from connectors.units import Position
from pipelines.errors import ConnectorError

_TIME = "streamer-time"
_BYTES = 1 << 24


class LetterBrowser(Browser):
    """The file of a sink that writes dead letters. It has one topic: its path."""

    lists_topics = False

    def __init__(self, config: FileSinkConfig) -> None:
        self._config = config

    @classmethod
    def of(cls, config: FileSinkConfig, client: Mapping[str, Any]) -> Self | None:
        """The browser of a sink's dead letters; `None` if it writes none. A file has no properties of a client."""
        return cls(config) if config.dead_letters else None

    @property
    def address(self) -> str:
        return self._config.place

    def topics(self) -> dict[str, int]:
        """Always empty: the file itself is not listed."""
        return {}

    def checked(self, wanted: Sequence[str]) -> str:
        """Whether the file exists; the service creates it when it starts."""
        path = self._config.path
        return f"{path}: {f'{path.stat().st_size} bytes' if path.exists() else 'not there yet'}"

    def reader(self, topic: str, group: str) -> TopicReader:
        return LetterFile(self._config.path, group, self._config.max_record)

    def sink(self, topic: str, name: str) -> Sink:
        return self._config.build()


class LetterFile(TopicReader):
    """Reads a file of dead letters; a line that is no dead letter is a record without headers.

    Offsets are line numbers. The positions that groups have committed are in a file beside it, `.NAME.replayed`.
    """

    def __init__(self, path: Path, group: str, max_record: int) -> None:
        super().__init__(str(path))
        self._path = path
        self._group = group
        self._max_record = max_record
        self._marks = path.with_name(f".{path.name}.replayed")
        self._first = 0
        self._source: FileSource | None = None

    def __enter__(self) -> Self:
        if not self._path.exists():
            raise ConnectorError(f"there is no file {self._path}: no dead letter has been written yet")
        self.partitions = [0]
        return self

    def __exit__(self, *exception: object) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def committed(self) -> dict[int, Mark]:
        """See `TopicReader.committed`. Raises `ConnectorError` if the file of positions cannot be read as such."""
        return {0: self._read_marks().get(self._group, Mark(-1, ""))}

    def commit(self, marks: Mapping[int, Mark]) -> None:
        """See `TopicReader.commit`."""
        positions = self._read_marks() | {self._group: marks[0]}
        try:
            replace_file(self._marks, json.dumps(positions).encode())
        except OSError as error:
            raise ConnectorError(f"{self._marks} cannot be written: {error}", retriable=True) from error

    def starts(self, position: Position) -> dict[int, int]:
        """See `TopicReader.starts`; raises `ConnectorError` for a time, as lines are not indexed by time."""
        if position == "earliest":
            return {0: 0}
        if position != "latest":
            raise ConnectorError(f"{self._path}: a file can be read from earliest or latest, not from a time")
        end = 0
        source = self._opened()
        while len(records := source.poll(AT_ONCE, _BYTES, 0.0)):
            end = int(records.positions[-1]) + 1
        source.close()
        return {0: end}

    def begin(self, starts: Mapping[int, int]) -> None:
        """See `TopicReader.begin`."""
        self._first = starts.get(0, 0)
        self._source = self._opened()

    def poll(self, timeout: float, at_most: int = AT_ONCE) -> Records:
        """See `TopicReader.poll`; does not wait for new lines."""
        assert self._source is not None, "call begin() before poll()"
        while len(records := self._source.poll(at_most, _BYTES, 0.0)):
            if int(records.positions[-1]) >= self._first:
                return _letters(records, int(np.searchsorted(records.positions, self._first)))
        self.ended.add(0)
        return records

    def _opened(self) -> FileSource:
        source = FileSource(self._path, "jsonl", max_record=self._max_record)
        source.open()
        return source

    def _read_marks(self) -> dict[str, Mark]:
        try:
            positions = json.loads(self._marks.read_bytes())
            return {str(group): Mark(int(position), str(text)) for group, (position, text) in positions.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ConnectorError(
                f"{self._marks} is not a file of replayed positions ({error}); delete it to replay all letters again"
            ) from error


def _letters(lines: Records, first: int) -> Records:
    """The letters in these lines, from line `first` of them on."""
    letters = [_parts(line) for line in lines.values[first:]]
    span = lines.spans[0]
    return Records(
        lines.source,
        [letter.payload for letter in letters],
        [letter.key for letter in letters],
        lines.positions[first:],
        [span._replace(start=0, stop=len(letters))],
        [lines.topics[0]],
        [lines.partitions[0]],
        lines.byte_count,
        headers=lambda: [letter.headers or None for letter in letters],
        timestamps=lambda: _times(letters),
    )


def _parts(line: bytes) -> Parts:
    try:
        return parts(line)
    except ValueError:
        return Parts(line, None, [])


def _times(letters: Sequence[Parts]) -> Ints:
    """The times at which the letters were written, by their headers."""

    def time_of(letter: Parts) -> int:
        text = next((value for name, value in letter.headers if name == _TIME), None) or b""
        return int(text) if text.isdigit() and len(text) < 19 else -1

    return np.array([time_of(letter) for letter in letters], np.int64)
