"""HTML and XML as trees, and the text in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final

from pipelines.errors import DataError

MAX_TAGS: Final = 1_000_000
"""A document with more tags is refused before a tree is made of it, which takes far more memory than its text."""


def html_tree(markup: str) -> Any:
    """The document as `lxml` elements, as browsers see it: rows that stand right in a table are in a `tbody`.

    Comments, scripts and styles are left out. Raises `DataError` for more than `MAX_TAGS` tags, and for elements that
    are nested deeper than libxml2 reads (2048).
    """
    from lxml import etree, html

    _check_tags(markup)
    # Without `huge_tree` elements nested more than 256 deep, and texts of more than 10 MB, would be left out silently.
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    # The text has been decoded; an encoding declared in it no longer holds.
    content = markup.replace("\0", "").encode("utf-8", "replace")
    try:
        root = html.document_fromstring(content, parser=parser, ensure_head_body=True)
    except etree.ParserError as error:
        raise DataError(f"the document is not valid HTML: {error}") from None
    for problem in parser.error_log.filter_from_fatals():
        reason = problem.message.partition(", ")[0]
        raise DataError(f"the document cannot be read whole: {reason}; part it, or close its elements")
    etree.strip_elements(root, *_UNSEEN, with_tail=False)
    for table in root.iter("table"):
        _in_bodies(table)
    return root


def html_text(markup: str) -> str:
    """The text of the body, a line for each block, cells parted by tabs."""
    return _lines(html_tree(markup).find("body"), _HTML_BREAKS)


def xml_text(content: bytes) -> str:
    """The text of an XML document, a line for each element.

    `DataError` if it is not XML. Entities that it defines itself are expanded within the bounds of libxml2; nothing
    outside of it is read.
    """
    from lxml import etree

    _check_tags(content.decode("latin-1"))
    parser = etree.XMLParser(resolve_entities="internal", no_network=True, load_dtd=False, remove_comments=True)
    try:
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise DataError(f"the document is not valid XML: {error}") from None
    return _lines(root, None)


def text_of(element: Any) -> str:
    """The text of an element, with single blanks where it has blanks, breaks or blocks."""
    return " ".join("".join(_pieces(element, _HTML_BREAKS)).split())


def inside(element: Any) -> int:
    """How many elements are inside an element, at any depth."""
    return sum(1 for _ in element.iterdescendants())


def inner_html(element: Any) -> str:
    """The content of an element, tags included."""
    from html import escape

    from lxml import etree

    inner = [escape(element.text or "", quote=False)]
    inner += [etree.tostring(child, encoding="unicode", method="html") for child in element]
    return " ".join("".join(inner).split())


_UNSEEN: Final = ("script", "style", "template", "noscript")
_BLOCKS: Final = re.findall(
    r"\w+",
    """address article aside blockquote body br caption center dd details div dl dt fieldset figcaption figure footer
    form h1 h2 h3 h4 h5 h6 header hr html legend li main nav ol option p pre section summary table tbody tfoot thead tr
    ul""",
)
_HTML_BREAKS: Final[Mapping[str, str]] = MappingProxyType({**dict.fromkeys(_BLOCKS, "\n"), "td": "\t", "th": "\t"})


def _lines(root: Any, breaks: Mapping[str, str] | None) -> str:
    lines = ("\t".join(" ".join(cell.split()) for cell in line.split("\t")) for line in _joined(root, breaks))
    return "\n".join(line.strip() for line in lines if line.strip())


def _joined(root: Any, breaks: Mapping[str, str] | None) -> list[str]:
    return "".join(_pieces(root, breaks)).split("\n")


def _pieces(root: Any, breaks: Mapping[str, str] | None) -> list[str]:
    from lxml import etree

    pieces: list[str] = []
    for event, element in etree.iterwalk(root, events=("start", "end")):
        at_break = "\n" if breaks is None else breaks.get(element.tag, "")
        if event == "start":
            pieces += ["" if at_break == "\t" else at_break, _flat(element.text)]
        else:
            pieces.append(at_break)
            if element is not root:
                pieces.append(_flat(element.tail))
    return pieces


def _flat(text: str | None) -> str:
    return re.sub(r"[\t\r\n\f ]+", " ", text) if text else ""


def _check_tags(markup: str) -> None:
    if markup.count("<") > MAX_TAGS:
        raise DataError(f"the document has more than {MAX_TAGS:,} tags, too many to be read at once; part it")


def _in_bodies(table: Any) -> None:
    from lxml import etree

    for is_row, run in groupby(list(table), lambda child: child.tag == "tr"):
        if not is_row:
            continue
        rows = list(run)
        body = etree.Element("tbody")
        rows[0].addprevious(body)
        body.extend(rows)
