"""Tables in JSON: a list of objects, or a file of lines with an object each."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from pipelines.data.columns import MISSING
from pipelines.errors import StreamerError
from pipelines.runners.tables.tablefile import Limits, RawTable, TableFile
from pipelines.wire.jsontext import REFUSED

_DECODER: Final = msgspec.json.Decoder()


class JsonTable(TableFile):
    """A JSON file; null is no value, and so is a key that an object lacks.

    A column `limits.max` is the key `max` in the object `limits`, unless objects have a key that is called so.
    """

    def __init__(self, path: Path, limits: Limits, *, lines: bool) -> None:
        """`lines`: each line is an object; otherwise the file is a list of objects."""
        super().__init__(path, limits)
        self._lines = lines

    def read(self, columns: Sequence[str]) -> RawTable:
        content = self.content()
        if not content.strip():
            raise StreamerError(f"{self.label} is empty; " + ("a row is a line" if self._lines else "no rows are []"))
        rows: list[dict[str, Any]] = []
        lines = array("q")
        for place, row in self._of_lines(content) if self._lines else self._of_list(content):
            if not isinstance(row, dict):
                raise StreamerError(f"{self.label}, {self._named(place)}: a row is an object, {{...}}")
            rows.append(row)
            self.check_rows(len(rows))
            if self._lines:
                lines.append(place)
        values = {name: self._column(name, rows) for name in columns}
        return RawTable(values, len(rows), lines)

    def _of_lines(self, content: bytes) -> Iterator[tuple[int, Any]]:
        for number, line in enumerate(content.split(b"\n"), 1):
            if line.strip():
                yield number, self._decoded(line, f", line {number}")

    def _of_list(self, content: bytes) -> Iterator[tuple[int, Any]]:
        decoded = self._decoded(content, "")
        if not isinstance(decoded, list):
            raise StreamerError(
                f"{self.label} is no list of objects, [{{...}}, ...]; lines of objects are a .jsonl file"
            )
        return enumerate(decoded, 1)

    def _decoded(self, text: bytes, place: str) -> Any:
        try:
            return _DECODER.decode(text)
        except REFUSED as error:
            raise StreamerError(f"{self.label}{place}: no JSON: {error}") from None

    def _named(self, place: int) -> str:
        return f"line {place}" if self._lines else f"row {place}"

    def _column(self, name: str, rows: Sequence[dict[str, Any]]) -> list[Any]:
        values = [row.get(name, MISSING) for row in rows]
        if "." in name and all(value is MISSING for value in values):
            values = [_inside(row, name.split(".")) for row in rows]
        if rows and all(value is MISSING for value in values):
            self.checked_columns([name], list(dict.fromkeys(key for row in rows for key in row)))
        return [None if value is MISSING else value for value in values]


def _inside(row: Any, path: Sequence[str]) -> Any:
    for key in path:
        row = row.get(key, MISSING) if isinstance(row, dict) else MISSING
    return row
