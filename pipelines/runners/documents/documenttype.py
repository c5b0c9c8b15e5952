"""The kind of a document, found by its content, and the text of one that is text."""

from __future__ import annotations

import codecs
import re
from typing import Final, Literal

from pipelines.errors import DataError

DocumentKind = Literal["pdf", "html", "xml", "text"]
"""The kinds of documents that can be read."""

READABLE: Final = "PDF, HTML, XML and plain text are read"


def kind_of(content: bytes) -> DocumentKind:
    """The kind of a document. `DataError` naming the format if it is one that is not read, and for no bytes at all."""
    if not content.strip():
        raise DataError("the document is empty")
    # Readers of PDF skip bytes before the header.
    if b"%PDF-" in content[:1024]:
        return "pdf"
    for start, name in _FORMATS:
        if content.startswith(start):
            raise _not_read(_archive(content) if start == _ZIP else name)
    if not content.startswith(_WIDE) and b"\0" in content[:4096]:
        raise _not_read("binary, of a format that is not known")
    head = decoded(content[:4096]).lstrip("\ufeff \t\r\n")
    if _HTML.match(head) or _XHTML.match(head):
        return "html"
    return "xml" if head.startswith("<?xml") else "text"


def decoded(content: bytes) -> str:
    """The text of bytes: by a byte order mark, by the encoding declared in it, as UTF-8, else as Windows-1252."""
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    declared = _DECLARED.search(content[:2048])
    if declared is not None and _ENCODINGS.fullmatch(declared[1]):
        try:
            return content.decode(declared[1].decode("ascii"))
        except (LookupError, UnicodeError):
            pass
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        # A part of a document may end in the middle of a character.
        if len(content) - error.start < 4 and error.reason == "unexpected end of data":
            return content[: error.start].decode()
        return content.decode("cp1252", "replace")


_ZIP: Final = b"PK\x03\x04"
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WIDE: Final = tuple(mark for mark, _ in _MARKS[1:])
_DECLARED: Final = re.compile(rb"""(?:<\?xml[^>]*encoding|<meta[^>]*charset)\s*=\s*["']?([\w.:-]+)""", re.IGNORECASE)
# Encodings of documents. Python has more, but some are not text encodings, or are slow.
_ENCODINGS: Final = re.compile(
    rb"utf-?8|(?:us-)?ascii|(?:iso|windows|cp|latin|koi8|mac|tis|ks_c)[\w-]*|shift[-_]?jis|sjis|euc[-_](?:jp|kr)|gb[k\d]+|big5\S*",
    re.IGNORECASE,
)
# A comment is skipped once and for all: without that, thousands of them take for ever.
_HTML: Final = re.compile(
    r"(?>(?:<!--.*?-->\s*)*)<(?:!doctype\s+html|(?:html|head|body|title|meta|table|tbody|tr|td|div|p|span|h[1-6]|ul|ol|li|dl|"
    r"a|b|i|br|pre|form|section|article|main|header|script|style|center|font)\b)",
    re.IGNORECASE | re.DOTALL,
)
_XHTML: Final = re.compile(
    r"<\?xml[^>]*>\s*(?>(?:<!--.*?-->\s*)*)<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)

_FORMATS: Final = (
    (_ZIP, ""),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (doc, xls, ppt or msg)"),
    (b"{\\rtf", "RTF"),
    (b"%!PS", "PostScript"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"RIFF", "a RIFF file (WebP, WAV or AVI)"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
    (b"\x7fELF", "a program"),
    (b"SQLite format 3\0", "an SQLite database"),
)

_IN_ZIP: Final = (
    (b"mimetypeapplication/epub+zip", "an EPUB book"),
    (b"mimetypeapplication/vnd.oasis.opendocument", "an OpenDocument file (odt, ods or odp)"),
    (b"word/", "a Word document (docx)"),
    (b"xl/", "an Excel workbook (xlsx)"),
    (b"ppt/", "a PowerPoint presentation (pptx)"),
)
"""Names of files that stand in the archive as they are."""


def _archive(content: bytes) -> str:
    return next((name for part, name in _IN_ZIP if part in content), "a zip archive")


def _not_read(name: str) -> DataError:
    return DataError(f"the document is {name}, and that is not read here; {READABLE}: convert it first")
