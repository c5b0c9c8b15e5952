"""Runs DOCUMENTPARSER: text and tables from PDF, HTML, XML and plain text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar, TypeVar

from pipelines.data.data import Data
from pipelines.errors import DataError, DefinitionError, WrongTypeError
from pipelines.runners.documents.documenttables import Names, clean, extracted
from pipelines.runners.documents.documenttype import DocumentKind, decoded, kind_of
from pipelines.runners.documents.htmltree import html_text, html_tree, xml_text
from pipelines.runners.documents.pdftext import pdf_html, pdf_text
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.documents.documentparser import DocumentParser
from pipelines.values import ValueType, type_of

PDFBOX = "pdfbox"
"""The parser type that keeps a PDF's layout."""

Item = TypeVar("Item")


class DocumentParserRunner(RowRunner):
    """The text of each document, or the fields of its tables as JSON; the result has the outputs and the metadata.

    Tables are read from the document as HTML: an HTML document as it is, a PDF as
    `pipelines.runners.documents.pdftext` writes it, anything else as its plain text. Konduit Serving's
    `tika` reads many more formats.

    Raises when it opens: `DefinitionError` for lists of unequal length and for invalid selectors. For a record:
    `DataError` for a document of a format that is not read (which it names), that is damaged or too large.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False

    def __init__(self, step: DocumentParser, context: OpenContext) -> None:
        self._documents = _documents(step)
        self._max_bytes = step.max_bytes
        self._max_pages = step.max_pages

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(document.input for document in self._documents)

    def run(self, data: Data) -> Data:
        results = {}
        for document in self._documents:
            content = _content(data, document.input)
            try:
                results[document.output] = self._parsed(content, document)
            except DataError as error:
                raise DataError(f'"{document.input}": {error}') from error
        return Data(results, metadata=data.metadata)

    def _parsed(self, content: bytes, document: _DocumentOptions) -> str:
        if len(content) > self._max_bytes:
            raise DataError(f"a document of {len(content):,} bytes; the limit is {self._max_bytes:,} (maxBytes)")
        kind = kind_of(content)
        if document.select is None:
            return self._html(content, kind) if document.layout and kind == "pdf" else self._text(content, kind)
        tables = extracted(document.select(html_tree(self._html(content, kind))), document.names)
        return json.dumps(tables, ensure_ascii=False)

    def _text(self, content: bytes, kind: DocumentKind) -> str:
        if kind == "pdf":
            return pdf_text(content, max_pages=self._max_pages, max_bytes=self._max_bytes)
        if kind == "html":
            return html_text(decoded(content))
        return xml_text(content) if kind == "xml" else decoded(content)

    def _html(self, content: bytes, kind: DocumentKind) -> str:
        if kind == "pdf":
            return pdf_html(content, max_pages=self._max_pages, max_bytes=self._max_bytes)
        return decoded(content) if kind == "html" else f"<html><body>{escape(self._text(content, kind))}</body></html>"


@dataclass(frozen=True, slots=True)
class _DocumentOptions:
    input: str
    output: str
    layout: bool
    select: Callable[[Any], list[Any]] | None
    """The elements to walk, in their order; none: the text is wanted."""
    names: Names


def _documents(step: DocumentParser) -> list[_DocumentOptions]:
    if not step.input_names or not step.output_names:
        raise DefinitionError("the step needs inputNames and outputNames, lists of the keys of documents and results")
    inputs = step.input_names
    outputs = _each(step, "output_names", inputs, "")
    parsers = _each(step, "parser_types", inputs, "tika")
    as_tables = step.table_row_extractor_types is not None
    _each(step, "table_row_extractor_types", inputs, "")
    if as_tables and step.selectors is None:
        raise DefinitionError("tables need selectors, a CSS selector for each input")
    selectors = _each(step, "selectors", inputs, "")
    fields: Sequence[tuple[str, ...]] = _each(step, "field_names", inputs, ())
    partial: Sequence[tuple[str, ...]] = _each(step, "partial_field_names", inputs, ())
    as_html = [name for name, how in (step.text_extraction_types or {}).items() if how == "HTML"]
    by_table = {clean(table): _cleaned(names) for table, names in (step.table_specific_field_names or {}).items()}
    tables = _cleaned(step.table_keys or ())
    return [
        _DocumentOptions(
            key,
            outputs[i],
            parsers[i] == PDFBOX,
            _selector(selectors[i]) if as_tables else None,
            Names(tables, _cleaned(fields[i]), by_table, [clean(name) for name in partial[i]], _cleaned(as_html)),
        )
        for i, key in enumerate(inputs)
    ]


def _cleaned(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(clean, names))


def _each(step: DocumentParser, field: str, inputs: Sequence[str], default: Item) -> Sequence[Item]:
    entries: Sequence[Item] | None = getattr(step, field)
    if entries is None:
        return [default] * len(inputs)
    if len(entries) != len(inputs):
        raise DefinitionError(
            f"{step.key(field)} has {len(entries)} entries, and inputNames {len(inputs)}; each input needs one"
        )
    return entries


def _selector(text: str) -> Callable[[Any], list[Any]]:
    from cssselect import HTMLTranslator, SelectorError
    from lxml import etree

    try:
        # An XPath gives elements in the order of the document, not in that of the selectors.
        path = etree.XPath(HTMLTranslator().css_to_xpath(text))
    except (SelectorError, etree.XPathError) as error:
        raise DefinitionError(f'selectors: "{text}" is not a CSS selector that is understood here: {error}') from None
    select: Callable[[Any], list[Any]] = path
    return select


def _content(data: Data, key: str) -> bytes:
    value = data[key]
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        # Marked, so that a charset that it names is not believed.
        return value.encode("utf-8-sig", "replace")
    raise WrongTypeError(f'the document "{key}" must be BYTES or STRING, not {ValueType(type_of(value)).name}')
