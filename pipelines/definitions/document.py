"""`Document`: plain data of a file with the line of each value, and the limits of what a file may hold."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pipelines.errors import DefinitionError

Part = TypeVar("Part")

KeyPath = tuple[str | int, ...]
"""The path of a value: keys and positions from the document's root, `("steps", 0, "modelUri")`."""

MOST_DIGITS: Final = 1000
"""Characters of a number; Python itself shows none of more than 4300 digits."""

TEXT: Final = "<text>"
"""File name in errors about text that came from no file."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Bounds on a file; beyond them reading is a `DefinitionError`."""

    bytes: int = 8 << 20
    """Size of the file."""
    depth: int = 64
    """Objects and lists inside each other."""
    values: int = 200_000
    """Values in all documents of a file, those of an alias counted at each use."""


DEFAULT_LIMITS: Final = FileLimits()


@dataclass(frozen=True, slots=True)
class Lines:
    """The line of a value, counted from 1, and those of the values inside it."""

    line: int
    inside: Mapping[str | int, Lines] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data (`dict list str int float bool None`) and where it was written."""

    data: Any
    file: str | None = None
    """The file's name in errors; `None`: data that was never text."""
    place: Lines | None = None
    prefix: KeyPath = ()
    """Path of `data` in the whole document."""

    def at(self, *path: str | int) -> Document:
        """The part at this path, which must exist; its errors still name the path in the whole document."""
        data, place = self.data, self.place
        for part in path:
            data = data[part]
            place = None if place is None else place.inside.get(part)
        return Document(data, self.file, place, self.prefix + path)

    def line(self, path: KeyPath = ()) -> int | None:
        """The line of the value at this path, or of the nearest around it that is known."""
        place = self.place
        for part in path:
            inner = None if place is None else place.inside.get(part)
            if inner is None:
                break
            place = inner
        return None if place is None else place.line

    def where(self, path: KeyPath = ()) -> str:
        """`file:line: key: ` as far as known; a message goes behind it."""
        file, line = self.file, self.line(path)
        start = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        key = path_text(self.prefix + path)
        return f"{start}{key}: " if key else start

    def error(self, path: KeyPath, message: str) -> DefinitionError:
        """An error about the value at this path."""
        return DefinitionError(self.where(path) + message)


def path_text(path: KeyPath) -> str:
    """A path as errors show it: `steps[0].modelUri`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def check_number(number: float, text: str) -> None:
    """Raise `ValueError` if `number`, written as `text`, is infinite or has too many digits."""
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} characters; put it in quotes if it is text")
    if isinstance(number, float) and math.isinf(number):
        raise ValueError(f"{shortened(text)} is beyond the largest number, 1.8e308")


def shortened(text: str) -> str:
    """The text, or the beginning of a long one."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class Problems:
    """Gathers the errors of parts that are read one by one, so that the first does not hide the others."""

    def __init__(self) -> None:
        self._errors: list[DefinitionError] = []

    def tried(self, read: Callable[[], Part]) -> Part | None:
        """The return value of `read`; `None` if it raises `DefinitionError`, which is kept."""
        try:
            return read()
        except DefinitionError as error:
            self.add(error)
            return None

    def add(self, error: DefinitionError) -> None:
        """Keep an error, unless all its problems have been reported already."""
        if error.problems:
            self._errors.append(error)

    def check(self) -> None:
        """Raise one `DefinitionError` of all that were kept, a single one unchanged. Without any it does nothing."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise DefinitionError(*(problem for error in self._errors for problem in error.problems))


class NotJson(DefinitionError):
    """The text breaks JSON's grammar."""


class Budget:
    """Counts the values that a reader builds, against the limits."""

    def __init__(self, file: str, limits: FileLimits) -> None:
        self._file = file
        self._limits = limits
        self._left = limits.values

    @property
    def spent(self) -> int:
        """How many values there were so far."""
        return self._limits.values - self._left

    def spend(self, values: int, depth: int, line: int) -> None:
        """Account for `values` more, the outermost at `depth`. Raises `DefinitionError` beyond a limit."""
        self._left -= values
        if self._left < 0:
            raise DefinitionError(
                f"{self._file}:{line}: holds more than {self._limits.values} values, aliases expanded"
            )
        if depth > self._limits.depth:
            raise DefinitionError(f"{self._file}:{line}: is nested more than {self._limits.depth} deep")


_SHOWN = 40
_PLAIN_KEY = re.compile(r"[\w@$<>-][\w@$<>. -]*")
