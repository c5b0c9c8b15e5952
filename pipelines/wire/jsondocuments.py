"""Rows of plain JSON as they were parsed, and the texts that their values came as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, overload

import msgspec

from pipelines.data.columns import Rows
from pipelines.values.native import INT64_MAX, INT64_MIN
from pipelines.wire.jsontext import Pointer, members

Fields = tuple[tuple[str, Pointer], ...]
"""Keys whose values lie inside of a row, and where."""


class Documents:
    """N rows: the values of each as they were parsed, and its text in UTF-8."""

    __slots__ = ("_escapes", "_fields", "_members", "texts", "values")

    def __init__(self, values: list[dict[str, Any]], texts: Sequence[bytes], fields: Fields) -> None:
        self.texts = texts
        self.values = [_with_fields(one, fields) for one in values] if fields else values
        self._fields = fields
        self._escapes: bool | None = None
        self._members: dict[int, dict[str, bytes]] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Documents:
        """These rows."""
        taken = Documents([self.values[row] for row in rows], [self.texts[row] for row in rows], ())
        # Their fields are in their values.
        taken._fields = self._fields
        return taken

    def alike(self) -> tuple[str, ...] | None:
        """The keys of every row, if all have the same and none of them is null; `None` if that is not so."""
        if not self.values or self._fields:
            return None
        keys = tuple(self.values[0])
        if list(map(tuple, self.values)).count(keys) < len(self.values):
            return None
        return None if self._has(b"null") else keys

    def plain(self, key: str, rows: Sequence[int] | None) -> list[Any]:
        """The parsed values of a key in these rows, in all of them for `None`; `None` where a row has none."""
        if rows is None:
            return [row.get(key) for row in self.values]
        return [self.values[row].get(key) for row in rows]

    def raw(self, key: str, rows: Sequence[int] | None) -> list[bytes | None]:
        """The texts of these values."""
        values = self.plain(key, rows)
        kinds = set(map(type, values))
        if kinds == {str} and not self._escaped():
            return list(map(_written, values))
        if kinds == {int} and 0 not in values and min(values) >= INT64_MIN and max(values) <= INT64_MAX:
            return list(map(_written, values))
        return [
            None if value is None else self._only_text(value) or self._text(key, row)
            for row, value in zip(range(len(self)) if rows is None else rows, values, strict=True)
        ]

    def _only_text(self, value: Any) -> bytes | None:
        """The one text that this value can have come as; `None` if it has several, as `1.10` and `1.1` are one."""
        kind = value.__class__
        if kind is int:
            # Zero may have come as -0, and Python writes no integers of thousands of digits.
            return _written(value) if value and INT64_MIN <= value <= INT64_MAX else None
        return _written(value) if kind is bool or (kind is str and not self._escaped()) else None

    def _text(self, key: str, row: int) -> bytes:
        """What stands in the text of the row as the value of the key."""
        if row not in self._members:
            text = self.texts[row].decode()
            spans = members(text)
            for name, pointer in self._fields:
                if (span := pointer.span(text)) is not None:
                    spans[name] = span
            self._members[row] = {name: text[begin:end].encode() for name, (begin, end) in spans.items()}
        return self._members[row][key]

    def _escaped(self) -> bool:
        """Whether a string of a row has an escape."""
        if self._escapes is None:
            self._escapes = self._has(b"\\")
        return self._escapes

    def _has(self, part: bytes) -> bool:
        """Whether this stands somewhere in a text."""
        # One search in all of them is quicker than one in each.
        return part in b"\n".join(self.texts)


def _with_fields(values: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    inside = {key: pointer.value(values) for key, pointer in fields}
    return {**{key: value for key, value in values.items() if key not in inside}, **inside}


class Undecoded(Sequence["bytes | None"]):
    """The texts of a key's values in N rows, found when they are asked for; `None` where a row has none."""

    __slots__ = ("_rows", "documents", "key")

    def __init__(self, documents: Documents, key: str, rows: Sequence[int] | None = None) -> None:
        self.documents = documents
        self.key = key
        self._rows = rows

    def __len__(self) -> int:
        return len(self.documents) if self._rows is None else len(self._rows)

    @overload
    def __getitem__(self, row: int) -> bytes | None: ...
    @overload
    def __getitem__(self, row: slice) -> Undecoded: ...
    def __getitem__(self, row: int | slice) -> bytes | None | Undecoded:
        rows = range(len(self.documents)) if self._rows is None else self._rows
        if isinstance(row, slice):
            return Undecoded(self.documents, self.key, rows[row])
        (text,) = self.documents.raw(self.key, [rows[row]])
        return text

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.texts())

    def texts(self) -> list[bytes | None]:
        """All texts."""
        return self.documents.raw(self.key, self._rows)

    def take(self, rows: Rows) -> Undecoded:
        """The texts at these positions, still not looked for."""
        places = rows.tolist()
        if self._rows is not None:
            places = [self._rows[row] for row in places]
        return Undecoded(self.documents, self.key, places)

    def plain(self) -> list[Any]:
        """The parsed values."""
        return self.documents.plain(self.key, self._rows)


_written: Final = msgspec.json.Encoder().encode
"""Writes a text without escapes, an integer and a boolean as they came."""
