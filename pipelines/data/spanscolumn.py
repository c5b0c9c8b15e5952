"""`SpansColumn`: strings or bytes of N rows, as spans of one buffer, such as the payloads they came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pipelines.data.columns import MISSING, Column, Mask, Rows, joined_masks, mask_at
from pipelines.data.spans import Spans
from pipelines.values import ValueType


class SpansColumn(Column):
    """Strings or bytes in one buffer; Python objects are made when values are first asked for.

    `spans` holds the strings, UTF-8 where `type` is STRING. They are null exactly where `present` says that the row
    lacks the key.
    """

    __slots__ = ("_objects", "spans")

    def __init__(
        self, spans: Spans, type: Literal[ValueType.STRING, ValueType.BYTES], present: Mask | None = None
    ) -> None:
        super().__init__(type, present)
        self.type: Literal[ValueType.STRING, ValueType.BYTES] = type
        self.spans = spans
        self._objects: list[Any] | None = None

    @staticmethod
    def of_texts(spans: Spans) -> SpansColumn | None:
        """A column of these strings; `None` if not all are UTF-8, or the extension that checks this is missing."""
        native = spans.extension()
        if native is None or not native.are_texts(spans.buffer, spans.starts, spans.lengths):
            return None
        there = ~spans.null
        return SpansColumn(spans, ValueType.STRING, None if there.all() else there)

    @property
    def objects(self) -> list[Any]:
        """The rows as `str` or `bytes`, `MISSING` where one lacks the key. Made once; not to be changed."""
        if self._objects is None:
            self._objects = _objects(self.spans, self.type is ValueType.STRING)
        return self._objects

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, row: int) -> Any:
        if self._objects is not None:
            return self._objects[row]
        raw = self.spans[row]
        if raw is None:
            return MISSING
        return raw.decode() if self.type is ValueType.STRING else raw

    def take(self, rows: Rows) -> SpansColumn:
        return SpansColumn(self.spans.take(rows), self.type, mask_at(self.mask, rows))

    def values(self) -> list[Any]:
        return list(self.objects)

    def inner(self, row: int) -> tuple[Any, ...] | None:
        return (self.type,) if self.mask is None or self.mask[row] else None

    def joined(self, columns: Sequence[Column]) -> Column | None:
        parts = []
        for column in columns:
            if isinstance(column, SpansColumn) and column.type is self.type:
                parts.append(column.spans)
            elif column.empty:
                parts.append(Spans.of([None] * len(column)))
            else:
                return None
        return SpansColumn(Spans.concat(parts), self.type, joined_masks(columns))


def _objects(spans: Spans, texts: bool) -> list[Any]:
    native = spans.extension()
    if native is not None:
        make = native.texts if texts else native.strings
        objects: list[Any] = make(spans.buffer, spans.starts, spans.lengths, MISSING)
        return objects
    return [MISSING if raw is None else raw.decode() if texts else raw for raw in spans]
