"""The text of PDF documents, plain or as HTML. Made for documents of strangers: pages and bytes are bounded."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from html import escape
from typing import Any

from pipelines.errors import DataError

_CELLS = re.compile(r"\s{2,}")
_FORM = 1000
"""Bytes that a form counts as, besides its own: reading it takes as long."""
_DO = re.compile(rb"\bDo\b")
_USE = re.compile(rb"/([^\s/<>\[\](){}%]+)\s+Do\b")
_ESCAPED = re.compile(rb"#([0-9A-Fa-f]{2})")


def pdf_text(content: bytes, *, max_pages: int, max_bytes: int) -> str:
    """The text of the pages, a line for each line. Raises `DataError` as `pdf_html` does."""
    return "\n".join(_read(page, "plain") for page in _pages(content, max_pages, max_bytes))


def pdf_html(content: bytes, *, max_pages: int, max_bytes: int) -> str:
    """The document as HTML, in reading order.

    Each page is a `div` of class `page` with the id `page_0`, `page_1`, ...; each piece of text, a part of a line
    without a gap, is a `div` of class `p` in it with the id `p0`, `p1`, ...: the elements that PDFBox's PDFDomTree
    makes, without their positions.

    Raises `DataError` if the content is not a PDF, is encrypted with a password, is damaged, has more than `max_pages`
    pages, or pages whose drawing instructions are more than `max_bytes` when they are unpacked, those of forms as often
    as they are drawn. Images and annotations are ignored.
    """
    pages: list[str] = []
    number = 0
    for index, page in enumerate(_pages(content, max_pages, max_bytes)):
        divisions = []
        for piece in _pieces(page):
            divisions.append(f'<div class="p" id="p{number}">{escape(piece)}</div>')
            number += 1
        pages.append(f'<div class="page" id="page_{index}">{"".join(divisions)}</div>')
    return f"<!DOCTYPE html><html><head></head><body>{''.join(pages)}</body></html>"


def _pieces(page: Any) -> list[str]:
    text = _read(page, "layout")
    pieces = [piece for line in text.splitlines() for piece in _CELLS.split(line.strip()) if piece]
    if not _has_forms(page):
        return pieces
    # The layout leaves out the text that forms draw; the plain text has it, usually at the end, and without the gaps.
    known = "".join(text.split())
    return pieces + [line for line in _read(page, "plain").splitlines() if "".join(line.split()) not in known]


def _pages(content: bytes, max_pages: int, max_bytes: int) -> Iterator[Any]:
    import pypdf

    # pypdf logs a line for each oddity of a document, which may have thousands.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise DataError("the PDF is encrypted with a password; decrypt it first")
        count = len(reader.pages)
    except DataError:
        raise
    except Exception as error:
        raise _damaged(error) from error
    if count > max_pages:
        raise DataError(f"the PDF has {count:,} pages; the limit is {max_pages:,} (maxPages)")
    room = max_bytes
    for index in range(count):
        try:
            page = reader.pages[index]
            contents = page.get_contents()
            if contents is not None:
                room -= _drawn(contents.get_data(), page.get("/Resources"), {})
        except Exception as error:
            raise _damaged(error) from error
        if room < 0:
            raise DataError(f"the pages of the PDF unpack to more than {max_bytes:,} bytes (maxBytes)")
        yield page


def _drawn(content: bytes, resources: Any, known: dict[int, int]) -> int:
    """The bytes of these instructions and of the forms that they draw, and `_FORM` for each form.

    A few small forms that draw one another can be millions.
    """
    forms = _forms(resources)
    sizes: dict[bytes, int] = {}
    for name, form in forms.items():
        if id(form) not in known:
            # One that draws itself is not followed.
            known[id(form)] = 0
            known[id(form)] = _FORM + _drawn(form.get_data(), form.get("/Resources", resources), known)
        sizes[name] = known[id(form)]
    uses = [_ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), name) for name in _USE.findall(content)]
    # A name that cannot be read may be any of them.
    others = len(_DO.findall(content)) - len(uses)
    return len(content) + sum(sizes.get(name, 0) for name in uses) + others * max(sizes.values(), default=0)


def _forms(resources: Any) -> dict[bytes, Any]:
    try:
        named = resources.get_object()["/XObject"].get_object()
    except (KeyError, AttributeError):
        return {}
    objects = {name.removeprefix("/").encode("latin-1", "replace"): named[name].get_object() for name in named}
    return {name: entry for name, entry in objects.items() if entry.get("/Subtype") == "/Form"}


def _read(page: Any, mode: str) -> str:
    options = {"layout_mode_space_vertically": False} if mode == "layout" else {}
    try:
        text: str = page.extract_text(extraction_mode=mode, **options)
    except Exception as error:
        raise _damaged(error) from error
    return text


def _has_forms(page: Any) -> bool:
    try:
        objects = page["/Resources"]["/XObject"].values()
        return any(entry.get_object().get("/Subtype") == "/Form" for entry in objects)
    except (KeyError, AttributeError, TypeError):
        return False


def _damaged(error: Exception) -> DataError:
    # A broken document can make the reader raise anything.
    return DataError(f"the PDF cannot be read: {type(error).__name__}: {error}")
