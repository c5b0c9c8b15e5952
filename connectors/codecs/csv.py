"""`csv`: payloads are rows of a table, as spreadsheets and old exporters write them (RFC 4180)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig, PayloadFields
from connectors.codecs.fields.statestypes import StatesTypes
from connectors.codecs.onevalue import only_element
from connectors.codecs.plainrows import decode_plain
from connectors.codecs.rows import encode_rows, payload_bytes
from connectors.records import Records
from connectors.units import Size
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.data.data import Data, check_key
from pipelines.data.describing import described
from pipelines.data.oddcolumn import OddColumn
from pipelines.data.sparsecolumn import SparseColumn
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import WireError, nearest
from pipelines.steps.config import Key
from pipelines.values.oddvalue import OddValue
from pipelines.wire.owndigits import in_own_digits
from pipelines.wire.plainvalues import PlainDecoder, PlainForm, PlainRules
from pipelines.wire.stated.conversions import BLANKS, Decimal, looks_like
from pipelines.wire.stated.types import Decoders, Stated, images_among


class CsvConfig(StatesTypes, CodecConfig):
    """A row of a table in each payload, its columns named here or by a header row before it. Fields are texts unless types are stated or shown."""  # noqa: E501

    built_by: ClassVar[str] = "connectors.codecs.csv:Csv"

    type: Literal["csv"] = "csv"
    """The type of codec."""
    names: tuple[Key, ...] = ()
    """The names of the columns, in their order: `[id, temp, vib]`. Without them each payload is two rows, the first one the header."""  # noqa: E501
    header: bool = False
    """Whether a row that repeats the `names`, such as the first line of a file, is no record: it is acknowledged, and nothing is made of it. Such rows are not written."""  # noqa: E501
    example: str | None = None
    """An example row, in place of `types`: `"machine-7,30.5,12,true"`. A column whose field there looks like an integer, a number or a boolean has that type. Needs `names`."""  # noqa: E501
    delimiter: str = Field(default=",", min_length=1, max_length=1)
    """The separator of fields, one character: `";"`, or `"\\t"`."""
    decimal: Decimal = "."
    """The sign before the fraction of a number: a comma in `21,5`, as spreadsheets write it in much of Europe."""
    max_bytes: Size = 1 << 20
    """Size of the largest payload; a larger one is an error of its record."""
    max_keys: PositiveInt = 10_000
    """How many columns a payload may have."""

    @model_validator(mode="after")
    def _known_columns(self) -> CsvConfig:
        if self.delimiter in '"\r\n':
            raise ValueError("a delimiter is one character, and neither a quotation mark nor the end of a line")
        if self.decimal == self.delimiter:
            raise ValueError("decimal and delimiter are the same sign: give the other delimiter, such as ;")
        if len(set(self.names)) < len(self.names):
            raise ValueError("two columns have the same name")
        if self.header and not self.names:
            raise ValueError(
                "header: true is for rows of a table with a header before them all: give the names of its columns "
                "(names: [...]); without it and names each payload is a header and a row"
            )
        if self.example is not None:
            if not self.names or self.types:
                raise ValueError("an example shows the types of names: give names with it, and no types")
            fields = _fields(self.example, self.delimiter)
            if len(fields) != 1 or len(fields[0]) != len(self.names):
                raise ValueError(f"the example is not a row of {len(self.names)} fields, one for each of the names")
        for name in self.types if self.names else ():
            if name not in self.names:
                raise ValueError(f'types: there is no column "{name}"{nearest(name, self.names)}')
        return self

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """The named columns; without names those whose types are stated, among others."""
        if not self.names:
            return self.stated_fields
        return PayloadFields(frozenset(self.names), images=images_among(self.stated()))

    def stated(self, decimal: Decimal | None = None) -> tuple[Stated, ...]:
        """The types of columns, stated or shown by the example."""
        if self.example is None:
            return super().stated(self.decimal)
        (fields,) = _fields(self.example, self.delimiter)
        shown = {name: looks_like(field, self.decimal) for name, field in zip(self.names, fields, strict=True)}
        return tuple(Stated(name, kind, self.decimal) for name, kind in shown.items())

    def written_fields(self, *, ask: bool = False) -> PayloadFields | None:
        """The named columns. A missing value is written as an empty field."""
        return PayloadFields(frozenset(self.names)) if self.names else None


class _IsHeader(WireError):
    """Raised for a payload that is the header of the table."""


class Csv(Codec):
    """One row of a table for each record. An empty field is an absent value; in a column of texts it is an empty text.

    codec = CsvConfig(names=("id", "temp"), types={"temp": "number"}).build()
    """

    opens_images: ClassVar[bool] = False

    def __init__(self, config: CsvConfig | None = None) -> None:
        self._config = config or CsvConfig()
        # The library's own limit is 128 KiB a field, and is the same for the whole process.
        csv.field_size_limit(max(csv.field_size_limit(), self._config.max_bytes))
        # A field is a text: in a column of texts it stays as it is.
        self._stated = {stated.key: stated for stated in self._config.stated() if stated.kind != "text"}
        self._decoders = Decoders(_decoder, self._stated.values())

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """A row for each payload, with all its columns; fields that no step reads are not looked at."""
        decoded = decode_plain(records, first, wanted, lambda _, payload: self._row(payload), self._decoders)
        return Decoded(
            decoded.batch, {row: error for row, error in decoded.failed.items() if not isinstance(error, _IsHeader)}
        )

    def encode(self, batch: Batch) -> Encoded:
        """A row for each record, with the named columns, or with a header row of its own keys."""
        return encode_rows(self._with_fields(in_own_digits(batch)), self._written)

    def _row(self, payload: object) -> dict[str, Any]:
        raw = payload_bytes(payload, "csv")
        if len(raw) > self._config.max_bytes:
            raise WireError(
                f"the payload has {len(raw)} bytes, more than {self._config.max_bytes}; "
                "raise max_bytes of the codec if such rows are expected"
            )
        try:
            rows = _fields(raw.decode("utf-8-sig"), self._config.delimiter)
        except UnicodeDecodeError as error:
            raise WireError(f"the payload is not valid UTF-8 text: {error}") from None
        except csv.Error as error:
            reason = "a quotation mark is never closed" if "end of data" in str(error) else str(error)
            raise WireError(f"the payload is not a row of CSV: {reason}") from None
        names = self._config.names
        if not names:
            if len(rows) != 2:
                raise WireError(
                    f"the payload has {len(rows)} rows, not a header and one more; name the columns in the codec "
                    "(names: [...]) if payloads have no header"
                )
            names = self._header(rows.pop(0))
        if len(rows) != 1:
            raise WireError(f"the payload has {len(rows)} rows, a record has one")
        if len(rows[0]) != len(names):
            raise WireError(self._other_count(rows[0], names))
        repeated = bool(self._config.names) and tuple(map(str.strip, rows[0])) == names
        if repeated and self._config.header:
            raise _IsHeader
        if repeated:
            self._check_repeated(rows[0])
        return {
            name: None if name in self._stated and not field.strip(BLANKS) else field
            for name, field in zip(names, rows[0], strict=True)
        }

    def _check_repeated(self, fields: Sequence[str]) -> None:
        """Raise the error of a row of names that are no values of their columns."""
        for name, field in zip(self._config.names, fields, strict=True):
            if name in self._stated:
                try:
                    self._stated[name].converted(field)
                except WireError as error:
                    hint = "the row repeats the names: with header: true in the codec such rows are not records"
                    raise WireError(f"{error}; {hint}") from None

    def _with_fields(self, batch: Batch) -> Batch:
        """The batch with fields that no step has read as the texts that came in, from rows that write numbers alike."""
        columns: dict[str, Column] = {}
        for key, column in batch.columns.items():
            whole = column.spread() if isinstance(column, SparseColumn) else column
            if isinstance(whole, WireColumn) and self._is_field(whole.decoder):
                columns[key] = Column.of([MISSING if entry is None else entry for entry in whole.entries])
            elif isinstance(whole, OddColumn) and any(map(self._is_odd_field, whole.objects)):
                columns[key] = Column.of([each.entry if self._is_odd_field(each) else each for each in whole.objects])
        return batch.with_columns(columns) if columns else batch

    def _is_odd_field(self, value: object) -> bool:
        return isinstance(value, OddValue) and self._is_field(value.decoder)

    def _is_field(self, decoder: object) -> bool:
        stated = decoder.rules.stated if isinstance(decoder, PlainDecoder) else None
        return stated is not None and stated.decimal == self._config.decimal

    def _other_count(self, fields: Sequence[str], names: Sequence[str]) -> str:
        if len(names) != 1:
            return f"the row has {len(fields)} fields, but there are {len(names)} columns"
        message = f'the row has {len(fields)} fields, but there is one column, "{names[0]}"'
        if self._config.delimiter == "," and looks_like(",".join(fields), ",") == "number":
            message += '; if numbers are written so, set delimiter: ";" and decimal: "," in the codec'
        return message

    def _header(self, fields: Sequence[str]) -> tuple[str, ...]:
        if len(fields) > self._config.max_keys:
            raise WireError(f"a header of {len(fields)} columns; the limit is {self._config.max_keys} (max_keys)")
        for name in fields:
            check_key(name)
        if len(set(fields)) < len(fields):
            raise WireError("the header names two columns alike")
        return tuple(fields)

    def _written(self, data: Data) -> bytes:
        names = self._config.names or tuple(data)
        for key in data:
            if key not in names:
                raise WireError(
                    f'the csv codec has no column "{key}"{nearest(key, names)}; add it to the names of the codec, or '
                    "choose what the sink writes (keys: [NAME], drop: [NAME])"
                )
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=self._config.delimiter, lineterminator="\r\n")
        if not self._config.names:
            writer.writerow(names)
        writer.writerow([self._field(data[name], name) if name in data else "" for name in names])
        try:
            return text.getvalue().removesuffix("\r\n").encode()
        except UnicodeEncodeError as error:
            raise WireError(f"the row cannot be written as UTF-8: {error}") from None

    def _field(self, value: Any, name: str) -> str:
        if isinstance(value, np.ndarray) and value.size == 1:
            # A float32 keeps its own digits: 0.1, not 0.10000000149011612.
            value = _PLAIN.array(value)
        value = only_element(value)
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            text = str(value) if isinstance(value, int) or math.isfinite(value) else repr(float(value))
            return text.replace(".", self._config.decimal)
        raise WireError(
            f'the csv codec writes texts, numbers and booleans, but "{name}" is {described(value)}; '
            "choose what the sink writes (keys: [NAME], drop: [NAME]), or use json"
        )


def _fields(text: str, delimiter: str) -> list[list[str]]:
    """The rows of a text, without empty lines."""
    # Without translation of line ends, so that those in a quoted field stay as they are.
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if row]


def _decoder(stated: Stated | None) -> PlainDecoder:
    return PlainDecoder(PlainRules(stated=stated), is_written=stated is None)


_PLAIN: Final = PlainForm()
