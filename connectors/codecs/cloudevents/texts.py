"""Attributes of events that are made from values: `/factory/{line}`, `{record.key}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipelines.data.data import RecordContext

RECORD_NAMES: Final = ("key", "topic", "partition", "offset", "timestamp", "source")
"""The names that `{record.NAME}` may have, besides headers: `{record.headers.NAME}`."""
_PIECE: Final = re.compile(r"\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, slots=True)
class AttributeTemplate:
    """A text with `{KEY}` for a value and `{record.NAME}` for metadata of its record.

    `pieces` alternate: literal text, name, literal text, ..., literal text.
    """

    pieces: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the values that it names."""
        return tuple(name for name in self.pieces[1::2] if not name.startswith("record."))

    def made(self, values: Mapping[str, Any], record: RecordContext | None) -> Any:
        """The text; the value itself where the template is only `{KEY}`. `None` if it names something that is
        missing."""
        parts = [_said(record, name) if name.startswith("record.") else values.get(name) for name in self.pieces[1::2]]
        if any(part is None for part in parts):
            return None
        if len(parts) == 1 and not self.pieces[0] and not self.pieces[2]:
            return parts[0]
        literals = self.pieces[2::2]
        return self.pieces[0] + "".join(f"{_text(part)}{text}" for part, text in zip(parts, literals, strict=True))


def text_of(template: str) -> AttributeTemplate:
    """The template, compiled. Raises `ValueError` for a stray brace, an empty name, or an unknown `record.` name."""
    pieces: list[str] = []
    end = 0
    for match in _PIECE.finditer(template):
        name = (match[1] or "").strip()
        if not name:
            raise ValueError(f'"{template}" has a stray brace; a value is written {{label}}')
        known = name.removeprefix("record.")
        if name.startswith("record.") and known not in RECORD_NAMES and not known.startswith("headers."):
            raise ValueError(
                f'"{template}": there are record.{", record.".join(RECORD_NAMES)}, and record.headers.NAME'
            )
        pieces += [template[end : match.start()], name]
        end = match.end()
    return AttributeTemplate((*pieces, template[end:]))


def _said(record: RecordContext | None, name: str) -> Any:
    if record is None:
        return None
    what = name.removeprefix("record.")
    if what.startswith("headers."):
        header = what.removeprefix("headers.")
        result: Any = next((value for key, value in reversed(record.headers) if key == header), None)
    else:
        result = getattr(record, what)
    return result.decode(errors="replace") if isinstance(result, bytes) else result


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
