"""The keys of records: whose record each is, by the values that a step's `by` names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING
from pipelines.errors import DataError, StreamerError

_TEXT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_READ: Final = json.JSONDecoder().raw_decode
"""A third of the time of `json.loads`; what follows the value has to be looked for."""
LONGEST_KEY: Final = 4096
"""Characters of a text that says whose record it is: any key then fits into a record of a state topic, however many of
them have to be escaped."""


class RecordKeys(NamedTuple):
    """The keys of a batch's rows."""

    keys: Sequence[Any]
    """The key of each row, hashable, equal for equal values of one type; `MISSING` where `failed` has the row."""
    failed: dict[int, Exception]
    """The rows whose key is missing, of another type or too long, by position."""


def keys_of(batch: Batch, by: Sequence[str]) -> RecordKeys:
    """The keys of all rows: texts, integers or booleans, or tuples of them if `by` names several values, or none.

    Raises `RowsFailed` for values that cannot be decoded.
    """
    columns = [batch.get(name).values() for name in by]
    failed: dict[int, Exception] = {}
    for name, values in zip(by, columns, strict=True):
        # One look at the types of a column: nearly always all are texts, or integers.
        types = set(map(type, values))
        if not types <= {str, int}:
            _check(name, values, failed)
        if str in types:
            texts = values if types == {str} else [value for value in values if type(value) is str]
            if max(map(len, texts)) > LONGEST_KEY:
                _check_lengths(name, values, failed)
    keys = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True)) or [()] * batch.size
    if failed:
        keys = [MISSING if row in failed else key for row, key in enumerate(keys)]
    return RecordKeys(keys, failed)


def distinct(value: Any) -> Any:
    """The value, or in place of a boolean something that equals no number: `plain` makes it the boolean again."""
    return _Boolean(value) if isinstance(value, bool) else value


def plain(key: Any) -> Any:
    """The value of `by` that a key stands for, or the tuple of several values or of none."""
    return tuple(map(_plain, key)) if type(key) is tuple else _plain(key)


def text_of(key: Any) -> str:
    """The JSON text of a key, by which state is saved."""
    return _TEXT(plain(key))


def key_of(text: str) -> Any:
    """The key with this JSON text. Raises `StreamerError` for another text."""
    try:
        key, end = _READ(text)
    except ValueError:
        key, end = None, 0
    if end != len(text):
        key = None
    elif type(key) is str:
        return key
    if not all(type(value) in (str, int, bool) for value in (key if isinstance(key, list) else [key])):
        raise StreamerError(f"a saved key is damaged: {text[:60]!r}")
    return tuple(map(distinct, key)) if isinstance(key, list) else distinct(key)


def _check(name: str, values: list[Any], failed: dict[int, Exception]) -> None:
    for row, value in enumerate(values):
        if type(value) in (str, int):
            continue
        if isinstance(value, (bool, np.bool_)):
            values[row] = distinct(bool(value))
        elif isinstance(value, np.integer):
            values[row] = int(value)
        elif value is MISSING or value is None:
            failed[row] = DataError(f'there is no value "{name}", which says whose record it is')
        else:
            failed[row] = DataError(
                f'"{name}" is a {type(value).__name__}; what says whose record it is, is a text, an integer or a '
                "boolean"
            )


def _check_lengths(name: str, values: list[Any], failed: dict[int, Exception]) -> None:
    for row, value in enumerate(values):
        if type(value) is str and len(value) > LONGEST_KEY:
            failed[row] = DataError(
                f'"{name}" has {len(value)} characters; what says whose record it is, has at most {LONGEST_KEY}'
            )


class _Boolean(NamedTuple):
    """A boolean among keys, where `True` must not be the same as 1."""

    value: bool


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, _Boolean) else value
