"""Where the parts of the shared file are: the board, and a page for each worker with its notes.

The file is sparse, so that room which nobody uses costs nothing. The headers of all notes of a page lie together, since
the parent looks at them ten times a second.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Final

from pipelines.errors import StreamerError

WORKER_VARIABLE: Final = "STREAMER_WORKER"
"""The environment variable with the number of a worker, from 0."""
PAGES_VARIABLE: Final = "STREAMER_PAGES"
"""The environment variable with the path of the shared file."""

MAGIC: Final = b"streamer pages 1"
START: Final = struct.Struct("@16sI")
"""What the file is, and the number of workers."""
BOARD_AT: Final = 4096
BOARD_SIZE: Final = 4 << 20
PAGES_AT: Final = BOARD_AT + BOARD_SIZE

SLOTS: Final = 256
"""Places for notes in a page: the most threads of a worker that run batches."""
NOTE_SIZE: Final = 32 << 10
"""Bytes for the spans of a note."""
NOTE: Final = struct.Struct("@IdQ")
"""Behind the flag and three bytes: length of the spans, when it began, the number of notes of this slot."""
NOTE_HEADER: Final = 32
FLAG_EMPTY: Final = 0
FLAG_WHOLE: Final = 1
FLAG_MORE: Final = 2
"""There was no room for all spans."""
FIELDS_OF_NOTE: Final = 8
"""Where the fields of `NOTE` begin behind the flag."""
MARKS_AT: Final = SLOTS * NOTE_HEADER
MARKS_SIZE: Final = 1 << 20
"""Bytes for acknowledged positions."""
NOTES_AT: Final = MARKS_AT + MARKS_SIZE
PAGE_SIZE: Final = NOTES_AT + SLOTS * NOTE_SIZE


def page_at(worker: int) -> int:
    """Where a worker's page begins."""
    return PAGES_AT + worker * PAGE_SIZE


def create(path: Path, workers: int) -> mmap.mmap:
    """A new file for this number of workers, mapped."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(descriptor, page_at(workers))
        mapped = mmap.mmap(descriptor, page_at(workers))
    finally:
        os.close(descriptor)
    START.pack_into(mapped, 0, MAGIC, workers)
    return mapped


def opened(path: Path) -> tuple[mmap.mmap, int]:
    """The file that `create` made, mapped, and its number of workers. Raises `StreamerError` if it is none."""
    try:
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), 0)
    except (OSError, ValueError) as error:
        raise StreamerError(f"{PAGES_VARIABLE}={path}: {error}; streamer run --workers sets it, nobody else") from error
    magic, workers = START.unpack_from(mapped, 0) if len(mapped) >= PAGES_AT else (b"", 0)
    if magic != MAGIC or len(mapped) < page_at(workers):
        mapped.close()
        raise StreamerError(f"{PAGES_VARIABLE}={path} is not such a file; streamer run --workers sets it, nobody else")
    return mapped, workers
