"""Where the former content of a file is: the names that log rotation gives to files.

`app.log` becomes `app.log.1` and later `app.log.2`, or `app.log-20261127`, `app-20261127.log`, `app.log.2026-11-27`:
it is renamed, or copied and then cut to nothing (copytruncate). All of them stay in the folder. If the name is a link,
they are beside the link or beside the file that it leads to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from connectors.file.identity import FileId, OpenFile

_NUMBER = re.compile(r"\d+")
_SEPARATORS = (".", "-", "_")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4", ".lzo", ".Z", ".zip")
_COUNTED = 3
"""Digits of a number that counts rotations, at most; a number with more is a date."""


def former(path: Path, id: FileId, offset: int) -> OpenFile | None:
    """The file beside `path` that was at `path` when it was read up to byte `offset`, open; `None` if there is none.

    That is the file itself under another name, else the youngest copy of it. Compressed files are not found.
    """
    # A file may be renamed during the search.
    return _former(path, id, offset) or _former(path, id, offset)


def _former(path: Path, id: FileId, offset: int) -> OpenFile | None:
    copies: list[OpenFile] = []
    try:
        for file, added in _opened_beside(path):
            if id.same_inode(file.stat) and id.begins(file, offset):
                return file
            # Without a byte that was read, or a name that rotation gives, there is nothing by which to know a copy.
            if offset and added is not None and id.begins(file, offset):
                copies.append(file)
            else:
                file.close()
        copies.sort(key=_modified)
        return copies.pop() if copies else None
    finally:
        for copy in copies:
            copy.close()


def rotated_since(path: Path, modified: int, excepted: Callable[[Path], bool]) -> OpenFile | None:
    """The oldest of the rotated files beside `path` that were written to after this time, open; `None` if there is
    none. Where the file that was read is gone, these came after it, and nothing of them was read.
    """
    oldest: OpenFile | None = None
    for file, added in _opened_beside(path):
        came_after = added is not None and modified < _modified(file) and not excepted(file.path)
        if not came_after or (oldest is not None and _modified(oldest) <= _modified(file)):
            file.close()
            continue
        if oldest is not None:
            oldest.close()
        oldest = file
    return oldest


def following(path: Path, file: OpenFile, excepted: Callable[[Path], bool]) -> Path | None:
    """Which file is read after this one, now that it is at its end: the next younger one that was at `path` once, or
    the one that is there now. `None` while `file` is there itself, or none is, or one without content: its writer still
    writes to the former file, or may do so.

    `excepted` tells which files are never the next one.
    """
    if file.is_at(path):
        return None
    younger = [neighbour for neighbour in _younger(path, file) if not excepted(neighbour)]
    if younger:
        return younger[0]
    try:
        return path if path.stat().st_size else None
    except OSError:
        return None


def _younger(path: Path, file: OpenFile) -> list[Path]:
    """Files named like `file`, and rotated after it, the oldest first."""
    there = [(candidate, added) for candidate, added in _beside(path) if added is not None]
    mine = next((added for candidate, added in there if file.is_at(candidate)), None)
    if mine is None:
        return []
    alike = [(added.numbers, candidate) for candidate, added in there if added.kind == mine.kind]
    if mine.counts:
        return [candidate for numbers, candidate in sorted(alike, reverse=True) if numbers < mine.numbers]
    return [candidate for numbers, candidate in sorted(alike) if numbers > mine.numbers]


@dataclass(frozen=True, slots=True)
class _Added:
    """What rotation added to a name: `.#` and 1 to `app.log`, for `app.log.1`."""

    kind: str
    numbers: tuple[int, ...]

    @property
    def counts(self) -> bool:
        """Whether it counts rotations, so that the file .2 is older than .1; a younger date is larger."""
        return len(self.numbers) == 1 and len(str(self.numbers[0])) <= _COUNTED


def _beside(path: Path) -> Iterator[tuple[Path, _Added | None]]:
    """The other files whose names are made from its own, each with what rotation added, if rotation can have done so.

    Files of other names are none of ours to read, whatever a checkpoint says.
    """
    for name in [path, path.resolve()] if path.is_symlink() else [path]:
        with suppress(OSError):
            for candidate in name.parent.iterdir():
                added = _addition(candidate.name, name)
                if added and candidate.is_file():
                    yield candidate, _by_rotation(added)


def _opened_beside(path: Path) -> Iterator[tuple[OpenFile, _Added | None]]:
    """As `_beside`, those files that are still there, open."""
    for candidate, added in _beside(path):
        with suppress(OSError):
            yield OpenFile(candidate), added


def _modified(file: OpenFile) -> int:
    return file.stat.st_mtime_ns


def _addition(name: str, path: Path) -> str:
    """What stands behind the name of `path`, or between it and its ending: `-old` in `app-old.log`. Nothing in the name
    itself, and in others: `app2.log` is no name of `app.log`.
    """
    if name.startswith(path.name):
        return name[len(path.name) :]
    if name.startswith(path.stem) and name.endswith(path.suffix):
        added = name[len(path.stem) : len(name) - len(path.suffix)]
        return added if added[:1] in _SEPARATORS else ""
    return ""


def _by_rotation(added: str) -> _Added | None:
    """The addition as a rotation's; `None` without a number (a copy made by hand), and for a compressed file."""
    numbers = _NUMBER.findall(added)
    if added[0] not in _SEPARATORS or added.endswith(_COMPRESSED) or not numbers:
        return None
    # Dates with other numbers of digits are of another kind, as are dates and counts.
    kind = _NUMBER.sub(lambda match: "#" * (1 if len(match[0]) <= _COUNTED else len(match[0])), added)
    return _Added(kind, tuple(map(int, numbers)))
