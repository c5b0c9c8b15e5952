"""YAML text as `Document`s: plain data with lines, nothing constructed by tag.

Plain scalars follow YAML 1.2 (`yes`, `off`, `12:30` and dates are strings), except that digits behind a leading zero
stay a string, so that an identifier keeps its zeros. Keys are always strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from pipelines.definitions.document import (
    Budget,
    Document,
    FileLimits,
    KeyPath,
    Lines,
    check_number,
    path_text,
    shortened,
)
from pipelines.errors import DefinitionError


def parse_yaml(text: str, file: str, limits: FileLimits) -> list[Document]:
    """All documents of a YAML text; empty ones between two `---` are left out. Raises `DefinitionError`."""
    try:
        return list(_YamlReader(yaml.parse(text, Loader=_LOADER), file, limits).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        context = "" if error.context is None else f"{error.context}, "
        hint = "" if mark is None else _hint(text, mark.line)
        raise DefinitionError(f"{file}{line}: not valid YAML: {context}{error.problem}{hint}") from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise DefinitionError(f"{file}: not valid YAML: {str(error).splitlines()[0]}") from None


def _hint(text: str, line: int) -> str:
    """A hint about the likely mistake in the line with this index, or an empty string."""
    if _tab_at(text, line):
        return "; YAML is indented by spaces, and here is a tab"
    lines = text.splitlines()
    if line < len(lines) and _BARE_TYPE.search(lines[line]):
        return '; a key that begins with @ stands in quotation marks: "@type"'
    return ""


_BARE_TYPE = re.compile(r"(^|[\s{,-])@\w+\s*:")


def _tab_at(text: str, line: int) -> bool:
    """Whether the indentation of the line with this index has a tab."""
    lines = text.splitlines()
    return line < len(lines) and "\t" in lines[line][: len(lines[line]) - len(lines[line].lstrip())]


# The binding to libyaml, where PyYAML was built with it, is about ten times as fast and reports the same events.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class _Anchored:
    value: Any
    place: Lines
    size: int
    depth: int


class _YamlReader:
    def __init__(self, events: Iterator[Event], file: str, limits: FileLimits) -> None:
        self._events = events
        self._file = file
        self._budget = Budget(file, limits)
        self._anchors: dict[str, _Anchored] = {}
        self._deepest = 0

    def documents(self) -> Iterator[Document]:
        for event in self._events:
            if not isinstance(event, DocumentStartEvent):
                continue
            self._anchors = {}
            value, place = self._value(next(self._events), (), 1)
            if value is not None:
                yield Document(value, self._file, place)
            if not isinstance(next(self._events), DocumentEndEvent):
                raise AssertionError("a document ends behind its value")

    def _value(self, event: Event, path: KeyPath, depth: int) -> tuple[Any, Lines]:
        line = _line(event)
        if isinstance(event, AliasEvent):
            return self._alias(event, path, depth)
        before, deepest = self._budget.spent, self._deepest
        self._budget.spend(1, depth, line)
        self._deepest = depth
        if isinstance(event, ScalarEvent):
            value, place = self._scalar(event, path), Lines(line)
        elif isinstance(event, SequenceStartEvent):
            value, place = self._list(event, path, depth)
        elif isinstance(event, MappingStartEvent):
            value, place = self._mapping(event, path, depth)
        else:
            raise AssertionError(f"no value begins with {event}")
        anchor = event.anchor
        if anchor is not None:
            size, levels = self._budget.spent - before, self._deepest - depth + 1
            self._anchors[anchor] = _Anchored(value, place, size, levels)
        self._deepest = max(self._deepest, deepest)
        return value, place

    def _alias(self, event: AliasEvent, path: KeyPath, depth: int) -> tuple[Any, Lines]:
        anchored = self._anchors.get(event.anchor or "")
        if anchored is None:
            raise self._error(
                event, path, f"*{event.anchor} stands for nothing: no &{event.anchor} was completed before"
            )
        deepest = depth + anchored.depth - 1
        self._budget.spend(anchored.size, deepest, _line(event))
        self._deepest = max(self._deepest, deepest)
        return _copied(anchored.value), Lines(_line(event), anchored.place.inside)

    def _list(self, start: SequenceStartEvent, path: KeyPath, depth: int) -> tuple[list[Any], Lines]:
        self._check_tag(start, path, "seq")
        items: list[Any] = []
        inside: dict[str | int, Lines] = {}
        while not isinstance(event := next(self._events), SequenceEndEvent):
            value, inside[len(items)] = self._value(event, (*path, len(items)), depth + 1)
            items.append(value)
        return items, Lines(_line(start), inside)

    def _mapping(self, start: MappingStartEvent, path: KeyPath, depth: int) -> tuple[dict[str, Any], Lines]:
        self._check_tag(start, path, "map")
        items: dict[str, Any] = {}
        inside: dict[str | int, Lines] = {}
        merged: list[tuple[dict[str, Any], Lines]] = []
        while not isinstance(event := next(self._events), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                raise self._error(event, path, "a key must be a single word or text")
            key, line = event.value, _line(event)
            value, place = self._value(next(self._events), (*path, key), depth + 1)
            if key == "<<" and not event.style:
                merged.extend(self._merged(value, place, (*path, key)))
                continue
            if key in items:
                raise self._error(event, (*path, key), f"is given twice, first in line {inside[key].line}")
            items[key] = value
            inside[key] = Lines(line, place.inside)
        for values, place in merged:
            for key in values.keys() - items.keys():
                items[key] = values[key]
                inside[key] = place.inside[key]
        return items, Lines(_line(start), inside)

    def _merged(self, value: Any, place: Lines, path: KeyPath) -> list[tuple[dict[str, Any], Lines]]:
        if isinstance(value, dict):
            return [(value, place)]
        if isinstance(value, list) and all(isinstance(mapping, dict) for mapping in value):
            return [(mapping, place.inside[i]) for i, mapping in enumerate(value)]
        raise DefinitionError(f"{self._file}:{place.line}: {path_text(path)}: only mappings can be merged in")

    def _scalar(self, event: ScalarEvent, path: KeyPath) -> Any:
        if event.tag is None or event.tag == "!":
            return _resolved(event.value, self._file, _line(event)) if event.implicit[0] else event.value
        kind = _SCALAR_TAGS.get(event.tag)
        if kind is None:
            raise self._bad_tag(event, path)
        value = event.value if kind is str else _resolved(event.value, self._file, _line(event))
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                raise self._error(event, path, f"{shortened(event.value)} is beyond the largest number") from None
        if type(value) is not kind:
            raise self._error(event, path, f"{event.value!r} is not of the type of its tag {event.tag}")
        return value

    def _check_tag(self, event: SequenceStartEvent | MappingStartEvent, path: KeyPath, kind: str) -> None:
        if event.tag not in (None, "!", f"{_CORE}{kind}"):
            raise self._bad_tag(event, path)

    def _bad_tag(self, event: Any, path: KeyPath) -> DefinitionError:
        return self._error(event, path, f'the tag {event.tag} is not read; a type is written as "@type" or "type"')

    def _error(self, event: Event, path: KeyPath, message: str) -> DefinitionError:
        key = path_text(path)
        return DefinitionError(f"{self._file}:{_line(event)}: {key}{': ' if key else ''}{message}")


_CORE = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, type] = {
    f"{_CORE}str": str,
    f"{_CORE}int": int,
    f"{_CORE}float": float,
    f"{_CORE}bool": bool,
    f"{_CORE}null": type(None),
}
_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{f"{sign}{text}": float(f"{sign}inf") for sign in ("", "+", "-") for text in (".inf", ".Inf", ".INF")},
}
_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"[-+]?(0|[1-9][0-9]*)"), int),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text, 16)),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
)


def _resolved(text: str, file: str, line: int) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in "+-.0123456789":
        return text
    for pattern, convert in _NUMBERS:
        if pattern.fullmatch(text):
            try:
                check_number(0, text)
                number = convert(text)
                check_number(number, text)
            except ValueError as error:
                raise DefinitionError(f"{file}:{line}: {error}") from None
            return number
    return text


def _line(event: Event) -> int:
    assert event.start_mark is not None
    return int(event.start_mark.line) + 1


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
