"""Avro in the compiled hot path: the same columns as fastavro gives, only faster.

The extension reads records that it understands to the last byte, and leaves all others to fastavro: those that do not
follow their schema, and those that are written in an unusual way. Fields that no step reads stay undecoded; values that
make no column of numbers, texts or bytes (nested records, maps, decimals, lists of anything but numbers) become the
same Python objects as with fastavro.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, overload
from weakref import WeakKeyDictionary

import numpy as np

from connectors.codecs.schemas.avroschema import AvroSchema
from connectors.codecs.schemas.avrotypes import AvroField, avro_types
from connectors.codecs.schemas.framing import ID_SIZE
from pipelines.data.columns import Column, Rows
from pipelines.data.entries import Entries, PackedEntries
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.spans import Spans
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import WireError
from pipelines.wire.compiled_columns import (
    DENSE,
    MIXED,
    RAGGED,
    WIRE,
    FoundColumns,
    Readers,
    joined,
    read_spans,
    together,
)
from pipelines.wire.plainvalues import PlainDecoder, ReadRows, put_column

if TYPE_CHECKING:
    from streamer_native import _native

SchemaOf = Callable[[bytes, "bytes | None"], "tuple[AvroSchema | None, int]"]
"""The schema of a payload with this header or none, and where its record begins. Raises `WireError`. No schema is
null."""

MOST_FRAMES: Final = 16
"""Schemas of the records of one block that are read here; those of more are left to fastavro."""


class AvroEntries(PackedEntries[Any]):
    """The plain values of one field in N records, made when they are asked for; `None` where a record has none."""

    __slots__ = ("_made", "field", "key", "program", "spans")

    def __init__(self, program: _native.AvroProgram, key: str, field: AvroField, spans: Spans) -> None:
        self.program = program
        self.key = key
        self.field = field
        self.spans = spans
        self._made: list[Any] | None = None

    def plain(self) -> list[Any]:
        """All values, made once; not to be changed."""
        if self._made is None:
            parts = map(np.ascontiguousarray, (self.spans.buffer, self.spans.starts, self.spans.lengths))
            self._made = self.program.values(self.key, *parts)
        return self._made

    def take(self, rows: Rows) -> AvroEntries:
        """The values at these positions, still not made."""
        return self._of(self.spans.take(rows))

    def joined(self, parts: Sequence[Entries]) -> AvroEntries | None:
        """The values of all parts, still not made; `None` unless all are of this field or absent."""
        spans: list[Spans] = []
        for part in parts:
            if isinstance(part, AvroEntries):
                if (part.program, part.key) != (self.program, self.key):
                    return None
                spans.append(part.spans)
            elif all(value is None for value in part):
                spans.append(Spans.of(part))
            else:
                return None
        return self._of(Spans.concat(spans))

    def _of(self, spans: Spans) -> AvroEntries:
        return AvroEntries(self.program, self.key, self.field, spans)

    def __len__(self) -> int:
        return len(self.spans)

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> AvroEntries: ...
    def __getitem__(self, row: int | slice) -> Any:
        if isinstance(row, slice):
            return self._of(self.spans[row])
        if self._made is not None:
            return self._made[row]
        row = range(len(self))[row]
        return self[row : row + 1].plain()[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.plain())


@dataclass(frozen=True, slots=True)
class AvroPart:
    """The rows of some payloads, which follow one schema."""

    read: ReadRows
    """Their columns, and errors by row."""
    positions: Rows
    """Positions of their payloads, rising."""
    names: Sequence[str]
    """The fields of each row, null or not."""


def joined_parts(parts: Sequence[AvroPart], wanted: frozenset[str]) -> AvroPart:
    """The rows of all parts, in the order of their payloads."""
    if len(parts) == 1:
        return parts[0]
    parts = sorted(parts, key=lambda part: int(part.positions[0]))
    names = list(dict.fromkeys(itertools.chain.from_iterable(part.names for part in parts)))
    columns, positions, _ = together(
        [part.read.columns for part in parts],
        [part.positions for part in parts],
        {name: (0, place) for place, name in enumerate(names)},
        wanted,
    )
    failed = {
        int(np.searchsorted(positions, part.positions[row])): error
        for part in parts
        for row, error in part.read.failed.items()
    }
    return AvroPart(ReadRows(columns, failed), positions, names)


class CompiledAvroReader:
    """Reads payloads with the extension. It keeps the compiled form of a schema as long as the schema."""

    def __init__(self, native: Any, reader: AvroSchema | None, most: int, type_key: str | None = None) -> None:
        """`reader` is the schema that payloads are read as; those of more than `most` bytes are left to fastavro. Under
        `type_key` records have the names of their types."""
        self._native = native
        self._type_key = type_key
        self._reader = reader
        self._most = most
        self._compiled: WeakKeyDictionary[AvroSchema, _Compiled | None] = WeakKeyDictionary()

    def read(
        self,
        values: Sequence[Any],
        headers: Sequence[bytes | None] | None,
        wanted: frozenset[str],
        schema_of: SchemaOf,
    ) -> tuple[list[AvroPart], list[int]]:
        """The rows of these payloads, `Spans` or a list, and the positions of the payloads that are left to fastavro.

        `headers` are those that name schemas, `None` without a registry: then all have one. A tombstone is in neither.
        """
        spans = values if isinstance(values, Spans) else joined(self._native, values)
        parts: list[AvroPart] = []
        left: list[int] = []
        for header, rows in _by_header(spans, headers):
            left += self._read_some(spans, rows, header, wanted, schema_of, parts)
        return parts, sorted(left)

    def _read_some(
        self,
        spans: Spans,
        rows: Rows,
        header: bytes | None,
        wanted: frozenset[str],
        schema_of: SchemaOf,
        parts: list[AvroPart],
    ) -> list[int]:
        """Read those at `rows`, which have the same header, one schema after the other; gives the rows that are left to
        fastavro."""
        left: list[int] = []
        for _ in range(MOST_FRAMES):
            some = spans if len(rows) == len(spans) else spans.take(rows)
            first = next((at for at, length in enumerate(some.lengths) if 0 <= length <= self._most), None)
            payload = None if first is None else some[first]
            if payload is None:
                break
            try:
                schema, begin = schema_of(payload, header)
                compiled = None if schema is None else self._of(schema)
            except WireError:
                # All payloads with this prefix fail alike.
                begin, compiled = (ID_SIZE if header is None else 0), None
            prefix, others = payload[:begin], list(range(len(some)))
            if compiled is not None:
                part, others = compiled.read(some, prefix, wanted)
                if len(part.positions):
                    parts.append(replace(part, positions=rows[part.positions]))
            if not others:
                return left
            # Those that are no bytes, or of this schema, and those of another.
            same = [at for at in others if not begin or some.lengths[at] < 0 or (some[at] or b"")[:begin] == prefix]
            left += rows[same].tolist()
            rows = rows[np.setdiff1d(others, same)]
        left += rows.tolist()
        return left

    def _of(self, schema: AvroSchema) -> _Compiled | None:
        if schema not in self._compiled:
            types = avro_types(schema, self._reader)
            named = {} if self._type_key is None else {self._type_key: schema.name}
            self._compiled[schema] = (
                None
                if types is None
                else _Compiled(
                    self._native,
                    self._native.AvroProgram(types.types),
                    types.fields,
                    {**types.defaults, **named},
                    (*(self._reader or schema).names, *named),
                    self._most,
                )
            )
        return self._compiled[schema]


@dataclass(slots=True)
class _Compiled:
    """A schema, ready to read payloads by."""

    native: Any
    program: _native.AvroProgram
    fields: Mapping[str, AvroField]
    """The types of payloads."""
    defaults: Mapping[str, Any]
    names: Sequence[str]
    most: int
    readers: dict[bytes, Readers[_native.AvroReader]] = field(default_factory=dict)
    """Programs by the prefix of payloads: the id of a schema, or nothing."""

    def read(self, spans: Spans, prefix: bytes, wanted: frozenset[str]) -> tuple[AvroPart, list[int]]:
        """The rows of these payloads, and the positions of those that are left to fastavro."""
        readers = self.readers.get(prefix)
        if readers is None:
            readers = self.readers[prefix] = Readers(
                lambda keys: self.native.AvroReader(self.program, keys, prefix, self.most)
            )
        columns_read = FoundColumns(*read_spans(readers.of(wanted), spans))
        parts = {part[0]: part for part in columns_read.parts}
        columns: dict[str, Column] = {}
        failed: dict[int, WireError] = {}
        for key in self.names:
            if key in parts:
                self._put(columns, failed, columns_read, parts[key])
            elif key in self.defaults and columns_read.size:
                values = [self.defaults[key]] * columns_read.size
                put_column(columns, failed, key, values, _DECODER, wanted=key in wanted)
        return AvroPart(ReadRows(columns, failed), columns_read.rows, self.names), columns_read.odd

    def _put(
        self, columns: dict[str, Column], failed: dict[int, WireError], block: FoundColumns, part: _native.Part
    ) -> None:
        key, form = part[:2]
        if form not in (WIRE, MIXED):
            column = block.column(part, _DECODER)
            columns[key] = ListsColumn(column, block.whole(part)) if form in (DENSE, RAGGED) else column
            return
        entries = AvroEntries(self.program, key, self.fields[key], block.undecoded(part))
        if form == MIXED:
            put_column(columns, failed, key, entries.plain(), _DECODER, wanted=True)
        else:
            columns[key] = WireColumn(entries, _DECODER, block.present(part))


def _by_header(spans: Spans, headers: Sequence[bytes | None] | None) -> list[tuple[bytes | None, Rows]]:
    """The headers that there are, and the payloads that have each; tombstones aside."""
    there: Rows = np.flatnonzero(spans.lengths != _NULL)
    if headers is None or headers.count(None) == len(headers):
        return [(None, there)]
    rows: dict[bytes | None, list[int]] = {}
    for row in there.tolist():
        rows.setdefault(headers[row], []).append(row)
    return [(header, np.array(positions, np.int64)) for header, positions in rows.items()]


_DECODER: Final = PlainDecoder()
_NULL: Final = -1
