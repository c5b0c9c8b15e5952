"""Topics and keys that are made from values: `predictions.{label}`, `{record.topic}.out`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from connectors.recordnames import instead_of, is_record_name
from pipelines.conditions.contract import Failures
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.errors import DataError, DefinitionError, RowsFailed
from pipelines.values import ValueType, type_of
from streamer.routing.provenance import record_column

_PIECE = re.compile(r"\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class Template:
    """A text with `{KEY}` for a value of the result and `{record.NAME}` for metadata of its record.

    `pieces` alternate: literal text, name, literal text, ..., literal text.
    """

    text: str
    pieces: tuple[str, ...]

    @property
    def constant(self) -> bool:
        """Whether the text contains no values."""
        return len(self.pieces) == 1

    @property
    def values(self) -> tuple[str, ...]:
        """The keys of the results' values in it."""
        return tuple(name for name in self.pieces[1::2] if not name.startswith("record."))

    def texts(self, batch: Batch) -> tuple[list[str], Failures]:
        """The text of each row, empty where it failed: a value is missing, or is neither text nor an integer."""
        failures: Failures = {}
        columns = [_texts(self, name, batch, failures) for name in self.pieces[1::2]]
        made = [self.text] * batch.size
        if not self.constant:
            parts: list[Iterable[str]] = [repeat(self.pieces[0])]
            for column, literal in zip(columns, self.pieces[2::2], strict=True):
                parts += [column, repeat(literal)]
            made = list(map("".join, zip(*parts, strict=False)))
        for position in failures:
            made[position] = ""
        return made, failures


def template(text: str, record_names: Iterable[str] | None = ()) -> Template:
    """`text` compiled. Raises `DefinitionError` for a stray brace, an empty name, or an unknown `record.` name.

    `record_names` are those which the sources declare, besides the metadata that the records of all sources have;
    `None`: the sources are not known, and any name is accepted.
    """
    pieces: list[str] = []
    end = 0
    for match in _PIECE.finditer(text):
        if match[1] is None:
            raise DefinitionError(f'"{text}" has a stray {match[0]}; a value is written {{label}}')
        _check_name(match[1].strip(), text, record_names)
        pieces += [text[end : match.start()], match[1].strip()]
        end = match.end()
    pieces.append(text[end:])
    return Template(text, tuple(pieces))


@dataclass(frozen=True, slots=True)
class Allowed:
    """Topics that values may lead to: names, and regular expressions that begin with ^."""

    names: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]

    def check(self, topics: Sequence[str], failures: Failures) -> None:
        """Put the rows whose topic is not allowed into `failures`; each distinct topic is checked once."""
        refused = {topic for topic in set(topics) if not self.allows(topic)}
        if not refused:
            return
        for position, topic in enumerate(topics):
            if topic in refused and position not in failures:
                failures[position] = DataError(_why_not(topic))

    def allows(self, topic: str) -> bool:
        """Whether this is one of the names or matches one of the expressions."""
        if topic in self.names:
            return True
        # `$` also matches before a line end, which no bus allows in a name.
        return bool(topic) and topic.isprintable() and any(pattern.match(topic) for pattern in self.patterns)


def _why_not(topic: str) -> str:
    if not topic:
        return "the topic is empty, because the values that it is made of are"
    hidden = next((sign for sign in topic if not sign.isprintable()), None)
    if hidden is None:
        return f"the topic {topic[:100]!r} is not among the sink's `topics`"
    return (
        f"the topic {topic[:100]!r} holds U+{ord(hidden):04X}, which cannot be seen: no regular expression of the "
        "sink's `topics` allows that"
    )


def allowed(topics: Sequence[str]) -> Allowed:
    """`topics` compiled. Raises `DefinitionError` for an invalid regular expression."""
    patterns = []
    for topic in topics:
        if not topic.startswith("^"):
            continue
        try:
            patterns.append(re.compile(topic))
        except re.error as error:
            raise DefinitionError(f'"{topic}" is not a regular expression: {error}') from error
    return Allowed(frozenset(topic for topic in topics if not topic.startswith("^")), tuple(patterns))


def keys_of(batch: Batch, name: str) -> tuple[list[bytes | None], Failures]:
    """The rows' message keys from the value `name`, or metadata of their records if it begins with `record.`.

    Bytes are keys as they are, text and integers as UTF-8 text. A row that lacks the value has no key; one whose value
    has another type fails.
    """
    if name.startswith("record."):
        column = record_column(batch, name.removeprefix("record."))
    elif name in batch:
        column = batch.column(name)
    else:
        return [None] * batch.size, {}
    failures: Failures = {}
    keys: list[bytes | None] = []
    for position, value in enumerate(_values(column, failures)):
        try:
            keys.append(_key(name, value))
        except DataError as error:
            failures.setdefault(position, error)
            keys.append(None)
    return keys, failures


def _check_name(name: str, text: str, record_names: Iterable[str] | None) -> None:
    if not name:
        raise DefinitionError(f'"{text}" has an empty name in braces; a value is written {{label}}')
    if not name.startswith("record."):
        return
    field = name.removeprefix("record.")
    if not is_record_name(field, record_names):
        raise DefinitionError(f'"{text}": a record has no "{field}"{instead_of(field, record_names)}')


def _texts(made: Template, name: str, batch: Batch, failures: Failures) -> list[str]:
    lacking = "which the result lacks"
    if name.startswith("record."):
        lacking = "which the record lacks"
        column = record_column(batch, name.removeprefix("record."))
    elif name in batch:
        column = batch.column(name)
    else:
        column = Column.absent(batch.size)
        if record_column(batch, name).present.any():
            lacking += f"; that of the record is {{record.{name}}}"
    values = _values(column, failures)
    if {value.__class__ for value in values} == {str}:
        return values
    texts = []
    for position, value in enumerate(values):
        try:
            texts.append(_text(made, name, value, lacking))
        except DataError as error:
            failures.setdefault(position, error)
            texts.append("")
    return texts


def _values(column: Column, failures: Failures) -> list[Any]:
    try:
        return column.values()
    except RowsFailed as error:
        failures.update(error.failures)
        return [MISSING if position in failures else column[position] for position in range(len(column))]


def _text(made: Template, name: str, value: Any, lacking: str) -> str:
    if value is MISSING:
        raise DataError(f'"{made.text}" needs the value "{name}", {lacking}')
    plain = _plain(value)
    if isinstance(plain, (str, int)):
        return str(plain)
    raise DataError(f'"{made.text}" needs "{name}" to be text or an integer, not {_described(value)}')


def _key(name: str, value: Any) -> bytes | None:
    if value is MISSING:
        return None
    plain = _plain(value)
    if isinstance(plain, bytes):
        return plain
    if isinstance(plain, (str, int)):
        return str(plain).encode()
    raise DataError(f'the key "{name}" must be text, bytes or an integer, not {_described(value)}')


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iuU":
        return value.item()
    return value


def _described(value: Any) -> str:
    shape = f" of shape {list(value.shape)}" if isinstance(value, np.ndarray) else ""
    return f"{ValueType(type_of(value)).name}{shape}"
