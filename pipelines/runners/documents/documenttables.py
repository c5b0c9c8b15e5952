"""Fields of tables, read from elements of a document that are walked in their order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.errors import DataError
from pipelines.runners.documents.htmltree import MAX_TAGS, inner_html, inside, text_of

Tables = dict[str, dict[str, list[str]]]
"""Table to field to the values of the field, in the order of the document."""


@dataclass(frozen=True)
class Names:
    """The names of tables and fields to look for, in one document of a DOCUMENTPARSER step."""

    tables: Collection[str] = ()
    fields: Collection[str] = ()
    """Names of fields in any table."""
    by_table: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Further names of fields, by the name of their table."""
    partial: Collection[str] = ()
    """Names of fields that stand in one text with their value."""
    as_html: Collection[str] = ()
    """Fields whose values keep their tags."""


def extracted(elements: Iterable[Any], names: Names) -> Tables:
    """The fields of the tables in these elements.

    A text that is the name of a table begins it, one that is the name of a field begins that; the texts that follow are
    its value, joined by blanks. Outside any field a text that has a partial name gives that field the rest of the text.
    Texts before the first table belong to the table `""`.

    Raises `DataError` if so many of the elements are inside one another that their texts are those of `2 * MAX_TAGS`
    elements.
    """
    room = 2 * MAX_TAGS
    # Pieces of values, joined at the end: a value may have a piece for each element of the document.
    tables: dict[str, dict[str, list[list[str]]]] = {}
    table, current = "", None
    for element in elements:
        room -= 1 + inside(element)
        if room < 0:
            raise DataError("too many elements that the selectors find are inside one another; select the innermost")
        text = clean(text_of(element))
        if text in names.tables:
            table, current = text, None
            tables.setdefault(table, {})
        elif text in names.fields or text in names.by_table.get(table, ()):
            current = text
            tables.setdefault(table, {}).setdefault(current, []).append([])
        elif current is not None:
            more = clean(inner_html(element)) if current in names.as_html else text
            tables[table][current][-1].append(more)
        else:
            for name in names.partial:
                if name in text:
                    rest = clean(text.replace(name, " ", 1))
                    tables.setdefault(table, {}).setdefault(name, []).append([rest])
                    break
    return {
        table: {name: [" ".join(filter(None, pieces)) for pieces in values] for name, values in fields.items()}
        for table, fields in tables.items()
    }


def clean(text: str) -> str:
    """A text as it is compared and written: single blanks, `&nbsp;` and `NBSP` as blanks, soft hyphens as hyphens."""
    for blank in ("&nbsp;", "NBSP", "\N{NO-BREAK SPACE}"):
        text = text.replace(blank, " ")
    return " ".join(text.replace("\N{SOFT HYPHEN}", "-").split())
