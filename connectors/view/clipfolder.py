"""`ClipFolder`: the names of clips' files, and the limits of their number and size."""

from __future__ import annotations

import itertools
import re
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from connectors.file.lock import lock
from connectors.view.clipfile import UNFINISHED, shows_something
from pipelines.errors import ConnectorError

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_NO_NAME: Final = re.compile(r"[^\w.-]+")
_TRY: Final = 2**20
"""Bytes that have to be writable before a full disk counts as usable again."""
_LONGEST: Final = 80
"""The most characters of a value in a file's name."""


@dataclass(frozen=True, slots=True)
class ClipFolder:
    """The folder of clips, the names of their files, and how many are kept.

    `name` holds `{camera}`, `{time}` (of the event, UTC, to the millisecond) and keys of values of the result. Each
    value becomes a part of a file name, sanitised: no folder, no hidden file.
    """

    path: Path
    name: str
    kind: str
    max_files: int
    max_bytes: int

    @property
    def keys(self) -> frozenset[str]:
        """The values of a result that stand in names."""
        return frozenset(_FIELD.findall(self.name)) - {"camera", "time"}

    def free(self, camera: str, timestamp: int | None, values: Mapping[str, Any]) -> Path:
        """An unused path for a new clip."""
        moment = datetime.fromtimestamp((time.time() * 1000 if timestamp is None else timestamp) / 1000, UTC)
        known = {**values, "camera": camera, "time": f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z"}
        name = _FIELD.sub(lambda field: _safe(known.get(field[1])), self.name).lstrip(".") or "clip"
        return _unused(self.path / f"{name}.{self.kind}", UNFINISHED)

    def try_out(self) -> None:
        """Raise `OSError` if nothing can be written there."""
        self.path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self.path) as file:
            file.write(bytes(_TRY))
            file.flush()

    def clips(self) -> list[Path]:
        """The files whose names match the template, the oldest first."""
        pattern = "".join(f"{re.escape(text)}{'' if field is None else r'[^/]+'}" for text, field in _parts(self.name))
        whole = re.compile(rf"{pattern}(-\d+)?\.{self.kind}({re.escape(UNFINISHED)})?")
        clips = []
        for path in self.path.iterdir():
            try:
                if whole.fullmatch(path.name) and path.is_file():
                    clips.append((path.stat().st_mtime_ns, path))
            except FileNotFoundError:
                continue
        return [path for _, path in sorted(clips)]

    def take_over(self) -> tuple[int, int]:
        """Rename playable unfinished files of killed processes to their final names, and delete unplayable ones.
        Returns the number of each. Files that another process is writing are left alone. Raises `OSError`."""
        named = deleted = 0
        for path in self.clips():
            if path.suffix != UNFINISHED or _in_use(path):
                continue
            if shows_something(path):
                path.replace(_unused(path.with_suffix("")))
                named += 1
            else:
                path.unlink(missing_ok=True)
                deleted += 1
        return named, deleted

    def make_room(self, in_use: frozenset[Path]) -> int:
        """Delete the oldest clips beyond the limits, except those `in_use`. Returns how many were deleted."""
        clips = [path for path in self.clips() if path not in in_use]
        sizes = [path.stat().st_size for path in clips]
        count, total, deleted = len(clips), sum(sizes), 0
        # The newest is kept, even if it alone exceeds the limit.
        for path, size in zip(clips[:-1], sizes[:-1], strict=True):
            if count <= self.max_files and total <= self.max_bytes:
                break
            path.unlink(missing_ok=True)
            count, total, deleted = count - 1, total - size, deleted + 1
        return deleted


def _unused(path: Path, *endings: str) -> Path:
    """This path, or the first one with a number after its name at which no file exists, also none with these
    suffixes."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2))
    return next(
        candidate
        for candidate in itertools.chain([path], numbered)
        if not any(candidate.with_name(candidate.name + ending).exists() for ending in ("", *endings))
    )


def _in_use(path: Path) -> bool:
    """Whether a process is writing this file, or it was removed meanwhile."""
    try:
        with path.open("rb") as file:
            lock(file.fileno(), path)
    except (ConnectorError, FileNotFoundError):
        return True
    return False


def _safe(value: Any) -> str:
    if not isinstance(value, (str, int, float)):
        return "none"
    return _NO_NAME.sub("_", str(value))[:_LONGEST].lstrip(".") or "none"


def _parts(name: str) -> list[tuple[str, str | None]]:
    """The texts of a template, each with the field after it."""
    pieces = _FIELD.split(name)
    return [(text, pieces[at + 1] if at + 1 < len(pieces) else None) for at, text in enumerate(pieces) if at % 2 == 0]
