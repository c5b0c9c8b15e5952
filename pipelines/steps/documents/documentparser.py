"""DOCUMENTPARSER: text and tables from documents."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Int, Key


class DocumentParser(Step):
    """Extracts the text of documents, or the fields of the tables in them as JSON.

    All lists but `table_keys` have one entry for each of `input_names`.
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
    """Keys of the documents, BYTES or STRING; required to run."""
    output_names: tuple[Key, ...] | None = None
    """Keys of the results, STRING; required to run."""
    parser_types: tuple[str, ...] | None = None
    """`pdfbox` makes HTML of a PDF, with a `div` of class `p` for each piece of text; any other value (`tika`, the
    default) gives the plain text of a document."""
    table_row_extractor_types: tuple[str, ...] | None = None
    """If given, the results are the fields of tables, not texts; the entries themselves have no effect, as in Konduit
    Serving."""
    selectors: tuple[str, ...] | None = None
    """CSS selectors of the elements that hold names and values; required for tables."""
    field_names: tuple[tuple[str, ...], ...] | None = None
    """Names of fields: a text that equals one begins that field, and the texts after it are its value."""
    table_specific_field_names: dict[str, tuple[str, ...]] | None = None
    """Further names of fields for each table."""
    table_keys: tuple[str, ...] | None = None
    """Names of tables, for all inputs: a text that equals one begins that table."""
    partial_field_names: tuple[tuple[str, ...], ...] | None = None
    """Names of fields that stand in one text with their value: in `Total: 12 EUR` the name `Total:`."""
    text_extraction_types: dict[str, Literal["HTML", "TEXT"]] | None = None
    """For a field, by its name, whether its value is plain text (`TEXT`, the default) or keeps its tags (`HTML`)."""
    max_bytes: Annotated[Annotated[Int, Field(ge=1)], EXTENSION] = 33_554_432
    """Most bytes of a document, and of the unpacked pages of a PDF; a larger document fails its record."""
    max_pages: Annotated[Annotated[Int, Field(ge=1)], EXTENSION] = 1000
    """Most pages of a PDF; one with more fails its record."""
