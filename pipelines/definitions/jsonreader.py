"""JSON text as a `Document`: as strict as RFC 8259, with lines, and a key given twice is an error."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any

from pipelines.definitions.document import (
    Budget,
    Document,
    FileLimits,
    KeyPath,
    Lines,
    NotJson,
    check_number,
    path_text,
)
from pipelines.errors import DefinitionError


def parse_json(text: str, file: str, limits: FileLimits) -> Document:
    """The document of a JSON text. Raises `NotJson` where the grammar is broken, else `DefinitionError`."""
    reader = _JsonReader(text, file, limits)
    data, place, end = reader.value(reader.skip(0), (), 1)
    end = reader.skip(end)
    if end != len(text):
        raise reader.broken(end, "something follows the end of the JSON value")
    return Document(data, file, place)


class _JsonReader:
    def __init__(self, text: str, file: str, limits: FileLimits) -> None:
        self._text = text
        self._file = file
        self._budget = Budget(file, limits)
        self._newlines = [match.start() for match in re.finditer("\n", text)]
        self._scalars = json.JSONDecoder(parse_float=_float, parse_int=_int, parse_constant=_refuse)

    def value(self, at: int, path: KeyPath, depth: int) -> tuple[Any, Lines, int]:
        self._budget.spend(1, depth, self._line(at))
        start = self._text[at : at + 1]
        if start == "{":
            return self._object(at, path, depth)
        if start == "[":
            return self._list(at, path, depth)
        value, end = self._scalar(at)
        return value, Lines(self._line(at)), end

    def skip(self, at: int) -> int:
        match = _SPACE.match(self._text, at)
        return at if match is None else match.end()

    def broken(self, at: int, message: str) -> NotJson:
        line = self._line(at)
        column = at - (self._newlines[line - 2] if line > 1 else -1)
        return NotJson(f"{self._file}:{line}: not valid JSON: {message} (column {column})")

    def _object(self, at: int, path: KeyPath, depth: int) -> tuple[dict[str, Any], Lines, int]:
        items: dict[str, Any] = {}
        inside: dict[str | int, Lines] = {}
        end = self.skip(at + 1)
        while not self._closed(end, "}", first=not items):
            if items:
                end = self.skip(end + 1)
            if self._text[end : end + 1] != '"':
                raise self.broken(end, 'a key in double quotes is needed (a comma before "}" is not allowed)')
            line = self._line(end)
            key, end = self._scalar(end)
            if key in inside:
                where = f"{self._file}:{line}: {path_text((*path, key))}"
                raise DefinitionError(f"{where}: is given twice, first in line {inside[key].line}")
            end = self.skip(end)
            if self._text[end : end + 1] != ":":
                raise self.broken(end, 'a ":" is needed after the key')
            items[key], place, end = self.value(self.skip(end + 1), (*path, key), depth + 1)
            inside[key] = Lines(line, place.inside)
            end = self.skip(end)
        return items, Lines(self._line(at), inside), end + 1

    def _list(self, at: int, path: KeyPath, depth: int) -> tuple[list[Any], Lines, int]:
        items: list[Any] = []
        inside: dict[str | int, Lines] = {}
        end = self.skip(at + 1)
        while not self._closed(end, "]", first=not items):
            if items:
                end = self.skip(end + 1)
            value, inside[len(items)], end = self.value(end, (*path, len(items)), depth + 1)
            items.append(value)
            end = self.skip(end)
        return items, Lines(self._line(at), inside), end + 1

    def _closed(self, at: int, closing: str, *, first: bool) -> bool:
        character = self._text[at : at + 1]
        if character == closing:
            return True
        if not first and character != ",":
            raise self.broken(at, f'"," or "{closing}" is needed')
        return False

    def _scalar(self, at: int) -> tuple[Any, int]:
        try:
            return self._scalars.raw_decode(self._text, at)
        except json.JSONDecodeError as error:
            raise self.broken(error.pos, error.msg[:1].lower() + error.msg[1:]) from None
        except ValueError as error:
            if _NUMBER.match(self._text, at):
                # It is JSON, but for this: YAML would make a string of it.
                raise DefinitionError(f"{self._file}:{self._line(at)}: {error}") from None
            raise self.broken(at, str(error)) from None

    def _line(self, at: int) -> int:
        return bisect_right(self._newlines, at - 1) + 1


_SPACE = re.compile(r"[ \t\r\n]*")
# A number, or a constant such as NaN, up to a comma, a bracket or the end.
_NUMBER = re.compile(r"(-?Infinity|NaN|-?[0-9][0-9.eE+-]*)(?=[ \t\r\n]*([,\]}]|\Z))")


def _float(text: str) -> float:
    number = float(text)
    check_number(number, text)
    return number


def _int(text: str) -> int:
    # Before it is converted, which takes long for many digits, or is refused in other words.
    check_number(0, text)
    return int(text)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")
