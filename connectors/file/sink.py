"""`FileSink`: messages appended to a file."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from connectors.codecs.letterdocument import document
from connectors.file.checkpoint import replace_file, sync_folder
from connectors.file.framing import MAX_RECORD, MAX_VARINT, Framing, framing
from connectors.file.lock import lock
from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

SCAN = 2**22
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class FileSink(Sink):
    """Appends each payload to one file, in the framing of `format`; keys, headers and timestamps are not kept, unless
    it writes `letters`.

    A message is confirmed when a `barrier` has synced it to the disk. `open` cuts off a half-written record that a
    crash left, and keeps it beside the file, as `.NAME.torn` (a plain line may be complete, so it is ended by a line
    feed instead). One process at a time writes to the file. `ConnectorError` for an unknown format.
    """

    def __init__(
        self,
        path: str | Path,
        format: str = "protodata",
        *,
        max_record: int = MAX_RECORD,
        letters: bool = False,
        name: str = "file",
    ) -> None:
        """`letters`: each message is written with its key and headers, as a document (`letterdocument`)."""
        self.name = name
        self._letters = letters
        self._path = Path(path)
        self._framing: Framing = framing(format)
        self._max_record = max_record
        self._file: int | None = None
        self._size = 0
        self._unconfirmed: list[Ints] = []
        self._confirmed: list[Ints] = []

    def open(self) -> None:
        """Create the file, or repair its end. `ConnectorError` if it cannot be written or is of another format."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            lock(self._file, self._path)
            self._size = self._repaired(self._file, os.fstat(self._file).st_size)
            sync_folder(self._path.parent)
        except OSError as error:
            self.close()
            raise ConnectorError(f"{self._path} cannot be written: {error}") from error
        except ConnectorError:
            self.close()
            raise

    def send(self, messages: Messages, deadline: float) -> Refused:
        """As `Sink.send`. A block is written completely or not at all: without room on the disk all of it is
        refused."""
        refused: dict[int, ConnectorError] = {}
        frames: list[bytes] = []
        sent: list[int] = []
        for index, value in enumerate(self._letters_of(messages) if self._letters else messages.values):
            try:
                frames.append(self._frame(value))
                sent.append(index)
            except ValueError as error:
                refused[index] = ConnectorError(f"{self._path}: {error}")
        full = self._append(b"".join(frames))
        if full is not None:
            return refused | dict.fromkeys(sent, full)
        self._unconfirmed.extend(messages.parents(index) for index in sent)
        return refused

    def barrier(self, deadline: float) -> Lost:
        """As `Sink.barrier`. `ConnectorError`, not retriable, if the disk failed: sent messages may be lost.

        The same if the file was deleted: its content is gone as soon as it is closed.
        """
        if self._unconfirmed:
            file = self._descriptor()
            try:
                os.fsync(file)
                deleted = os.fstat(file).st_nlink == 0 and not self._path.exists()
            except OSError as error:
                raise ConnectorError(
                    f"{self._path} could not be synced, written messages may be lost: {error}"
                ) from error
            if deleted:
                raise ConnectorError(
                    f"{self._path} was deleted while it was written to; start again to write a new one"
                )
            self._confirmed.extend(self._unconfirmed)
            self._unconfirmed = []
        return {}

    def confirmed(self) -> list[Ints]:
        """As `Sink.confirmed`."""
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def close(self) -> None:
        """Close the file. Messages since the last barrier are in it, but may not survive a power cut."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._unconfirmed = []

    @staticmethod
    def _letters_of(messages: Messages) -> list[bytes]:
        return [
            document(
                value,
                None if messages.keys is None else messages.keys[index],
                None if messages.headers is None else messages.headers[index],
            )
            for index, value in enumerate(messages.values)
        ]

    def _frame(self, value: bytes | None) -> bytes:
        if value is None:
            raise ValueError("a file cannot hold a message without payload; choose `tombstones: skip`")
        if len(value) > self._max_record:
            raise ValueError(f"a payload of {len(value)} bytes is more than max_record ({self._max_record})")
        return self._framing.frame(value)

    def _descriptor(self) -> int:
        if self._file is None:
            raise ConnectorError(f"{self.name} is not open")
        return self._file

    def _append(self, content: bytes) -> ConnectorError | None:
        file = self._descriptor()
        view = memoryview(content)
        try:
            while view:
                view = view[os.write(file, view) :]
        except OSError as error:
            try:
                # A partly written block must not precede the next one.
                os.ftruncate(file, self._size)
            except OSError as second:
                raise ConnectorError(f"{self._path} cannot be written: {error}, nor repaired: {second}") from second
            if error.errno not in NO_ROOM:
                raise ConnectorError(f"{self._path} cannot be written: {error}") from error
            return ConnectorError(f"{self._path}: no room: {error.strerror}; make some", retriable=True)
        self._size += len(content)
        return None

    def _repaired(self, file: int, size: int) -> int:
        good = self._complete_bytes(file, size) if self._framing.name == "protodata" else _after_line_feed(file, size)
        if good == size:
            return size
        if size - good > self._max_record + MAX_VARINT:
            raise self._not_ours(good, f"{size - good} bytes without an end of a record")
        tail = os.pread(file, size - good, good)
        if self._framing.name == "lines" or self._framing.whole(tail):
            # Complete except for its line feed: another program may have written it, so it is not cut off.
            return size + os.write(file, b"\n")
        torn = self._path.with_name(f".{self._path.name}.torn")
        replace_file(torn, tail)
        os.ftruncate(file, good)
        _log.warning("%s ended in a half-written record: its %d bytes are in %s now", self._path, len(tail), torn)
        return good

    def _complete_bytes(self, file: int, size: int) -> int:
        good = 0
        wanted = SCAN
        while good < size:
            chunk = os.pread(file, wanted, good)
            edges = self._framing.find(chunk, self._max_record)
            if edges.nexts:
                good += edges.nexts[-1]
                wanted = SCAN
            elif edges.problem is not None:
                raise self._not_ours(good, edges.problem)
            elif good + len(chunk) >= size:
                break
            else:
                wanted = len(chunk) + edges.missing
        return good

    def _not_ours(self, at: int, why: str) -> ConnectorError:
        return ConnectorError(
            f"{self._path} cannot be appended to: from byte {at} on, {why}; choose another path, or move it away"
        )


def _after_line_feed(file: int, size: int) -> int:
    stop = size
    while stop > 0:
        start = max(0, stop - 2**16)
        line_feed = os.pread(file, stop - start, start).rfind(b"\n")
        if line_feed >= 0:
            return start + line_feed + 1
        stop = start
    return 0
