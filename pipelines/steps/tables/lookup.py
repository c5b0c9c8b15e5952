"""LOOKUP: values from a table in a file or a topic, by keys of the record. Konduit Serving has no such type."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from pipelines.errors import nearest
from pipelines.plugins.requirements import NOTHING, Package, Requires
from pipelines.plugins.tables import TableConfig, table_config
from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Form, Int, Key

ColumnKind: TypeAlias = Literal["text", "number", "integer", "boolean"]
"""The types of a table's columns, named as in `types` of codecs."""
TableFormat: TypeAlias = Literal["csv", "json", "json lines", "parquet", "sqlite"]

_ENDINGS: Mapping[str, TableFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json lines",
    ".ndjson": "json lines",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_SQLITE = (".sqlite", ".sqlite3", ".db")


def _path_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _named(value: Any) -> Any:
    """A name, or a list of names, as a mapping of each to itself."""
    if isinstance(value, str):
        return {value: value}
    if not isinstance(value, (list, tuple)):
        return value
    if len(set(map(str, value))) < len(value):
        raise ValueError("it names a column twice")
    return {str(name): name for name in value}


Columns: TypeAlias = Annotated[
    dict[Key, str],
    BeforeValidator(_named, json_schema_input_type=str | tuple[str, ...] | dict[str, str]),
    Field(min_length=1),
]
"""Keys of records and the columns of the table that belong to them; names alone are those of both."""


class Lookup(Step):
    """Adds values from a table in a file or a topic: `Lookup("machines.csv", by="machine", take=["line", "hall"])`.

    The row of the table whose column has the value that the record has under the key `by` gives the values. The table
    is read when the step is opened. A file is read again when it was replaced, and a topic is followed. Other values
    stay.
    """

    type_name: ClassVar[str] = "LOOKUP"
    run_by: ClassVar[RunBy | None] = RunBy("tables", "pipelines.runners.tables.lookup:LookupRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    by: Columns
    """Key of the record by which its row is looked up, if the column has the same name; `{machine: id}` where it is
    called `id`. Several, `[site, machine]`, must all be equal."""
    path: Annotated[str | None, BeforeValidator(_path_text)] = None
    """The file with the table, relative to the definition's folder: a CSV file with a header row (`machines.csv`, or
    `.tsv` with tabs), a JSON file (`machines.json`, a list of objects, or `.jsonl`, a line each), a table of an SQLite
    file (`assets.sqlite#machines`), or a Parquet file (`machines.parquet`)."""
    table: Annotated[
        dict[str, Any] | None,
        BeforeValidator(lambda value: value, json_schema_input_type=str | dict[str, Any] | None),
        # It may hold a password.
        Field(repr=False),
        EXTENSION,
    ] = None
    """In place of `path` a topic, whose records are rows by their keys: `{topic: machines, codec: json}`."""
    take: Columns
    """The columns whose values the record gets: their names, or `{hall: building}` where the key is to be `hall` and
    the column is called `building`. In JSON and topics `{limit: limits.max}` is the value `max` inside of
    `limits`."""
    missing: Literal["fail", "absent", "drop"] = "fail"
    """What becomes of a record that no row is for: it fails, passes on without the keys of `take` (`absent`), or is
    left out (`drop`)."""
    types: dict[str, ColumnKind] = Field(default_factory=dict)
    """The types of columns, `{id: text, floor: integer}`; default: as the file has them. A column of CSV has the type
    that all of its fields look like, and `007` looks like a text."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """The character between fields of CSV, `";"`; default: a comma, in `.tsv` a tab."""
    max_rows: Annotated[Int, Field(ge=1)] = 1_000_000
    """The most rows that the table may have."""
    max_bytes: Annotated[Int, Field(ge=1)] = 1 << 26
    """The most bytes that the file may have, in SQLite the values that are read of the table, and in a topic the
    payloads of all rows."""

    def __init__(self, path: str | os.PathLike[str] | None = None, /, **fields: Any) -> None:
        # Passed only if given: `None` would hide a `path=` among the keywords.
        positional: dict[str, Any] = {} if path is None else {"path": path}
        super().__init__(**positional, **fields)

    @property
    def format(self) -> TableFormat:
        """What the file is, by the ending of its name."""
        return _ENDINGS.get(PurePath(self.path or "").suffix.lower(), "sqlite")

    @property
    def file(self) -> str:
        """The file, without the name of its table; empty for a topic."""
        path = self.path or ""
        return path.rpartition("#")[0] if self.format == "sqlite" else path

    @property
    def sqlite_table(self) -> str:
        """The name of the table in an SQLite file; empty for others."""
        return (self.path or "").rpartition("#")[2] if self.format == "sqlite" else ""

    @cached_property
    def followed(self) -> TableConfig | None:
        """What `table` says; `None` for a file."""
        return None if self.table is None else table_config(self.table)

    @property
    def code_keys(self) -> tuple[str, ...]:
        """Code that the client of `table` is to run."""
        return () if self.followed is None else tuple(f"table.{key}" for key in self.followed.code_keys)

    @property
    def option_keys(self) -> Mapping[str, str]:
        """Options of the client of `table`, and how it logs in."""
        if self.followed is None:
            return super().option_keys
        identity = dict.fromkeys(self.followed.identity_keys, "logs in as this machine")
        return {f"table.{key}": why for key, why in {**self.followed.option_keys, **identity}.items()}

    @property
    def files(self) -> tuple[str, ...]:
        """The file with the table, or those that `table` needs, such as schemas and keys for a login."""
        return (self.file,) if self.followed is None else tuple(map(str, self.followed.file_keys.values()))

    @property
    def data_files(self) -> tuple[str, ...]:
        """The same: the values of the table come into records."""
        return self.files

    @property
    def requires(self) -> Requires:
        """Polars for Parquet, or what `table` needs."""
        if self.followed is not None:
            return self.followed.needs
        return Package("polars", extra="map") if self.format == "parquet" else NOTHING

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data; names that are those of key and column alike are written once."""
        written = super().to_dict(form)
        for key in (self.key("by", form), self.key("take", form)):
            if all(name == column for name, column in written[key].items()):
                names = list(written[key])
                written[key] = names[0] if len(names) == 1 else names
        return written

    @model_validator(mode="before")
    @classmethod
    def _read_table(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or "path" in given:
            return given
        table = given.get("table")
        if isinstance(table, Mapping) and set(table) == {"path"}:
            table = table["path"]
        if not isinstance(table, (str, os.PathLike)):
            return given
        return {**{key: value for key, value in given.items() if key != "table"}, "path": table}

    @model_validator(mode="after")
    def _check_table(self) -> Lookup:
        if (self.path is None) == (self.table is None):
            raise ValueError(
                'it needs a file with the table, "path: machines.csv", or a topic, "table: {topic: machines}"'
            )
        if self.table is None:
            return self
        if len(self.by) > 1 or dict(self.by) != {key: key for key in self.by}:
            raise ValueError(
                '"by" is one key of the record, "by: machine": the rows of a topic are looked up by the keys of its '
                "records, which have no names"
            )
        if self.followed is None:
            raise AssertionError("it has a table")
        return self

    @model_validator(mode="after")
    def _check_path(self) -> Lookup:
        if self.path is None:
            return self
        if "://" in self.path and not self.path.lower().startswith("file:"):
            raise ValueError(f'"path" is a file of this machine, not the URL {self.path!r}: bring it here first')
        if self.format != "sqlite":
            return self
        if not self.sqlite_table or not self.file:
            if PurePath(self.path.rstrip("#")).suffix.lower() in _SQLITE:
                raise ValueError(f'"path" names an SQLite file; add its table, "{self.path.rstrip("#")}#machines"')
            raise ValueError(
                f'"path" is {self.path!r}, and tables are read of .csv, .tsv, .json, .jsonl, .parquet and '
                ".pq files, and of SQLite: "
                '"assets.sqlite#machines"'
            )
        return self

    @model_validator(mode="after")
    def _check_options(self) -> Lookup:
        columns = [*self.by.values(), *self.take.values()]
        for name in self.types:
            if name not in columns:
                raise ValueError(f'"types" has the column "{name}", which is not read{nearest(name, columns)}')
        if self.delimiter is not None and (self.path is None or self.format != "csv" or self.delimiter in '"\r\n'):
            raise ValueError('"delimiter" is the character between fields of CSV, such as ";"')
        if len(set(self.by.values())) < len(self.by):
            raise ValueError('"by" names a column twice')
        return self
