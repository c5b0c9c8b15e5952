"""DOCUMENTPARSER: text and tables from documents."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Int, Key


class DocumentParser(Step):
    """The text of documents, or the fields of the tables in them as JSON.

    Fields that are lists have one entry for each input.
    """

    type_name: ClassVar[str] = "DOCUMENTPARSER"
    run_by: ClassVar[RunBy | None] = RunBy(
        "python",
        "pipelines.runners.documents.documentparser:DocumentParserRunner",
        ("pypdf", "lxml", "cssselect"),
        extra="documents",
    )
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    input_names: tuple[str, ...] | None = None
    """Keys of the documents, BYTES (a STRING is read too); required to run."""
    output_names: tuple[Key, ...] | None = None
    """Keys of the results, STRING; required to run."""
    parser_types: tuple[str, ...] | None = None
    """`pdfbox`: a PDF as HTML, with a `div` of class `p` for each piece of text; anything else (`tika`): the plain text
    of a document. None: `tika` for all."""
    table_row_extractor_types: tuple[str, ...] | None = None
    """If given, the results are the fields of tables; its values have no effect, as in Konduit."""
    selectors: tuple[str, ...] | None = None
    """CSS selectors of the elements that hold names and values; required for tables."""
    field_names: tuple[tuple[str, ...], ...] | None = None
    """Texts that begin a field; the texts after one are its value."""
    table_specific_field_names: dict[str, tuple[str, ...]] | None = None
    """Further ones by table."""
    table_keys: tuple[str, ...] | None = None
    """Texts that begin a table."""
    partial_field_names: tuple[tuple[str, ...], ...] | None = None
    """Parts of texts that are a field and its value in one."""
    text_extraction_types: dict[str, Literal["HTML", "TEXT"]] | None = None
    """How a field's value is read: `TEXT` (the default), or `HTML`, with the tags inside."""
    max_bytes: Annotated[Annotated[Int, Field(ge=1)], EXTENSION] = 33_554_432
    """The largest document, and the most that the pages of a PDF may unpack to, in bytes; a larger one fails."""
    max_pages: Annotated[Annotated[Int, Field(ge=1)], EXTENSION] = 1000
    """The most pages of a PDF; one with more fails."""
