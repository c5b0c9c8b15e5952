"""Rows of plain JSON as they were parsed, and the texts that their values came as.

Rows of a topic have the same keys as a rule: `alike` reads these into `AlikeRows`, by a parser that is made for the
keys, and leaves the texts of values that are not asked for as they are. `Documents` are rows of any keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Protocol, overload

import msgspec

from pipelines.data.columns import Rows as Places
from pipelines.data.entries import PackedEntries
from pipelines.values.native import INT64_MAX, INT64_MIN
from pipelines.wire.jsontext import REFUSED, Pointer, members, parsed_all, quickly_parsed

Fields = tuple[tuple[str, Pointer], ...]
"""Keys, each with the place of its value inside of a row."""


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
        """The text of the key's value in the text of the row."""
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
            # One search in all of them is quicker than one in each.
            self._escapes = b"\\" in b"\n".join(self.texts)
        return self._escapes


class AlikeRows:
    """N rows that all have the same keys, and no nulls: parsed values of wanted keys, and the texts of all others.

    Of the others, the texts of keys that were asked for in earlier payloads were kept when parsing. Those of a key that
    is asked for the first time are looked for in the payloads.
    """

    __slots__ = ("_payloads", "_reader", "_texts")

    def __init__(self, payloads: Sequence[bytes], reader: _Reader) -> None:
        self._payloads = payloads
        self._reader = reader
        self._texts: dict[str, list[bytes]] = {key: [] for key in reader.asked}

    def __len__(self) -> int:
        return len(self._payloads)

    @property
    def keys(self) -> Sequence[str]:
        """The keys of every row, in the order of the first one."""
        return self._reader.keys

    def read(self) -> Iterator[Mapping[str, list[Any]]]:
        """The parsed values of the wanted keys, of some rows after the other, once.

        All rows at once would take long to go through memory, and to be looked through by Python's collector.
        Raises `REFUSED` for a payload that is no object with these keys, or holds a null.
        """
        reader, size = self._reader, max(_BYTES_AT_ONCE // len(self._payloads[0]), _FEW)
        for start in range(0, len(self), size):
            payloads = self._payloads[start : start + size]
            _check(b"\n".join(payloads))
            rows = list(map(reader.row, payloads))
            for key, texts in self._texts.items():
                texts += map(bytes, reader.values(key, rows))
            yield {key: list(reader.values(key, rows)) for key in reader.wanted}

    def plain(self, key: str, rows: Sequence[int] | None) -> list[Any]:
        """The values of another key in these rows, in all of them for `None`."""
        return parsed_all(self.raw(key, rows))

    def raw(self, key: str, rows: Sequence[int] | None) -> list[bytes]:
        """The texts of these values."""
        if key not in self._texts:
            self._reader.asked.add(key)
            self._texts[key] = self._reader.texts(key, self._payloads)
        texts = self._texts[key]
        return texts if rows is None else [texts[row] for row in rows]


def alike(payloads: Sequence[bytes], wanted: frozenset[str]) -> AlikeRows | None:
    """The rows of these payloads, which have yet to be read, if the first and last are objects with the same keys.

    It is `None` if they are not, for so few rows that a parser of their own is not worth while, and for very many keys.
    """
    if len(payloads) < _FEW:
        return None
    try:
        first, last = quickly_parsed(payloads[0]), quickly_parsed(payloads[-1])
    except REFUSED:
        return None
    if not isinstance(first, dict) or not isinstance(last, dict):
        return None
    keys = tuple(first)
    # Untrusted clients may send other keys each time: a parser is made only for keys that are repeated.
    if keys != tuple(last) or not 0 < len(keys) <= _MOST_KEYS:
        return None
    return AlikeRows(payloads, _reader(keys, wanted.intersection(keys)))


class _Reader:
    """Reads objects with these keys and no others: parses values of wanted keys, and leaves the others as texts."""

    def __init__(self, keys: Sequence[str], wanted: frozenset[str]) -> None:
        self.keys = keys
        self.wanted = wanted
        self.asked: set[str] = set()
        """Other keys whose texts were asked for."""
        self._fields = {key: f"field_{number}" for number, key in enumerate(keys)}
        self.row = self._decoder([(key, Any if key in wanted else msgspec.Raw) for key in keys], is_whole=True)
        """The row of a payload. Raises `REFUSED`."""

    def values(self, key: str, rows: Iterable[Any]) -> Iterator[Any]:
        """The values of a key."""
        return map(attrgetter(self._fields[key]), rows)

    def texts(self, key: str, payloads: Sequence[bytes]) -> list[bytes]:
        """The texts of the values of one key, in payloads that were read."""
        return list(map(bytes, self.values(key, map(self._decoder([(key, msgspec.Raw)]), payloads))))

    def _decoder(self, types: Sequence[tuple[str, Any]], *, is_whole: bool = False) -> Callable[[bytes], Any]:
        row = msgspec.defstruct(
            "Row",
            [(self._fields[key], kind) for key, kind in types],
            rename={self._fields[key]: key for key, _ in types},
            forbid_unknown_fields=is_whole,
            # Its values refer to nothing but other parsed values.
            gc=False,
        )
        return msgspec.json.Decoder(row).decode


_reader: Final = lru_cache(maxsize=64)(_Reader)


def _check(text: bytes) -> None:
    """Raise one of `REFUSED` for a null and for bytes that are no UTF-8: the parser does not check undecoded texts."""
    if not text.isascii():
        text.decode()
    # A pattern looks for its first letter, of which there are few among numbers, four times as fast as `in`.
    if _NULL.search(text) is not None:
        raise msgspec.ValidationError("a value may be null")


def _with_fields(values: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    inside = {key: pointer.value(values) for key, pointer in fields}
    return {**{key: value for key, value in values.items() if key not in inside}, **inside}


class Rows(Protocol):
    """Rows of which some values were not asked for."""

    def __len__(self) -> int: ...

    def plain(self, key: str, rows: Sequence[int] | None) -> list[Any]:
        """The parsed values of a key in these rows, in all of them for `None`; `None` where a row has none."""

    def raw(self, key: str, rows: Sequence[int] | None) -> Sequence[bytes | None]:
        """The texts of these values."""


class Undecoded(PackedEntries["bytes | None"]):
    """The texts of a key's values in N rows, found when they are asked for; `None` where a row has none."""

    __slots__ = ("_rows", "documents", "key")

    def __init__(self, documents: Rows, key: str, rows: Sequence[int] | None = None) -> None:
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

    def texts(self) -> Sequence[bytes | None]:
        """All texts."""
        return self.documents.raw(self.key, self._rows)

    def take(self, rows: Places) -> Undecoded:
        """The texts at these positions, still not looked for."""
        places = rows.tolist()
        if self._rows is not None:
            places = [self._rows[row] for row in places]
        return Undecoded(self.documents, self.key, places)

    def plain(self) -> list[Any]:
        """The parsed values."""
        return self.documents.plain(self.key, self._rows)


_FEW: Final = 16
"""Rows below which a parser of their own takes as long as it saves."""
_BYTES_AT_ONCE: Final = 2**18
"""Bytes of payloads whose rows are in memory at once: about what fits into the cache of a processor."""
_NULL: Final = re.compile(b"null")
_MOST_KEYS: Final = 256
_written: Final = msgspec.json.Encoder().encode
"""Writes a text without escapes, an integer and a boolean as they came."""
