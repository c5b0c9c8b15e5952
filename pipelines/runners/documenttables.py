"""Fields of tables, read from elements of a document that are walked in their order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.runners.htmltree import inner_html, text_of

Tables = dict[str, dict[str, list[str]]]
"""Table to field to the values of the field, in the order of the document."""


@dataclass(frozen=True)
class Names:
    """Texts that mean something: the fields of one document of a DOCUMENTPARSER step."""

    tables: Collection[str] = ()
    fields: Collection[str] = ()
    """In every table."""
    by_table: Mapping[str, Collection[str]] = field(default_factory=dict)
    """In one table."""
    partial: Collection[str] = ()
    """Which hold field and value in one text."""
    as_html: Collection[str] = ()
    """Fields whose values keep their tags."""


def extracted(elements: Iterable[Any], names: Names) -> Tables:
    """The fields of the tables in these elements.

    A text that is the name of a table begins it, one that is the name of a field begins that; the texts that follow are
    its value, joined by blanks. Outside any field a text that has a partial name gives that field the rest of the text.
    What stands before the first table belongs to the table `""`.
    """
    tables: Tables = {}
    table, current = "", None
    for element in elements:
        text = clean(text_of(element))
        if text in names.tables:
            table, current = text, None
            tables.setdefault(table, {})
        elif text in names.fields or text in names.by_table.get(table, ()):
            current = text
            tables.setdefault(table, {}).setdefault(current, []).append("")
        elif current is not None:
            values = tables[table][current]
            more = clean(inner_html(element)) if current in names.as_html else text
            values[-1] = f"{values[-1]} {more}".strip()
        else:
            for name in names.partial:
                if name in text:
                    rest = clean(text.replace(name, " ", 1))
                    tables.setdefault(table, {}).setdefault(name, []).append(rest)
                    break
    return tables


def clean(text: str) -> str:
    """A text as it is compared and written: single blanks, `&nbsp;` and `NBSP` as blanks, soft hyphens as hyphens."""
    for blank in ("&nbsp;", "NBSP", "\N{NO-BREAK SPACE}"):
        text = text.replace(blank, " ")
    return " ".join(text.replace("\N{SOFT HYPHEN}", "-").split())
