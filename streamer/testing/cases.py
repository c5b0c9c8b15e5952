"""Cases: records for a service, and the expected results. Kept in files beside the service file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema, model_validator

from pipelines.data.data import Data
from pipelines.definitions.document import Document
from pipelines.definitions.documents import parse_documents, read_documents
from pipelines.definitions.validation import definition_error
from pipelines.described import FrozenSettings
from pipelines.errors import DefinitionError, StreamerError
from pipelines.values import Image
from pipelines.values.imageheader import SUFFIXES
from pipelines.wire.json import value_from_plain
from streamer.testing.registries import Schema

FOLDER: Final = "cases"
"""Where cases are looked for, beside the service file."""
FILE: Final = "@file"
"""`{"@file": "a.png"}` stands for the content of the file: a picture, or the array of a `.npy` file."""

FIRST: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""The time from which seconds in `at` count: a full hour and day, so that windows by time begin there."""


def _moments(given: object) -> object:
    return [_moment(each) for each in (given if isinstance(given, list) else [given])]


def _moment(given: object) -> int:
    """Milliseconds since 1970."""
    moment: datetime | None = None
    with suppress(ValueError, OverflowError):
        if isinstance(given, str):
            moment = datetime.fromisoformat(given)
        elif isinstance(given, (int, float)) and not isinstance(given, bool):
            moment = FIRST + timedelta(seconds=given)
    if moment is None:
        raise ValueError(f"{given!r} is neither a time like 2025-03-01T12:00:00Z nor a number of seconds")
    time = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if time < 0:
        raise ValueError(f"{given!r} is before 1970")
    return time


Times: TypeAlias = Annotated[
    list[int],
    BeforeValidator(_moments),
    Field(min_length=1),
    WithJsonSchema({"anyOf": [{"type": ["number", "string"]}, {"type": "array"}]}),
]
"""Milliseconds since 1970, of each record or of all; written as ISO times or seconds from `FIRST`."""

WRITTEN: Final = frozenset({".yaml", ".yml", ".json", ".jsonl", ".ndjson"})


class Case(FrozenSettings):
    """One case. A YAML or JSON file holds one (YAML documents: several), a file of JSON lines one a line."""

    name: str = ""
    """The case's name; by default that of its file."""
    input: dict[str, Any] | list[dict[str, Any]] | str
    """The record's values, or those of several records, in the JSON form; a text is taken as the payload itself."""
    schema_: str | dict[str, Any] | None = Field(default=None, alias="schema")
    """The schema that the records are written by, where the source's codec has a schema registry, which is not asked: of Avro or JSON a file beside the case or the schema itself, of protobuf `{descriptors: FILE, message: NAME}`. By default that of the codec, or, for Avro, one that is derived from the records."""  # noqa: E501
    source: str | None = None
    """The source that the records come from, if there are several; by default the first."""
    key: str | None = None
    """The records' key."""
    topic: str | None = None
    """The topic of the records. Needed if values are read from its name, the named levels of an MQTT source, and the records do not hold these values themselves."""  # noqa: E501
    headers: dict[str, str] = {}  # noqa: RUF012 - pydantic copies it
    """The records' headers."""
    at: Times | None = None
    """When the records come: a time like 2025-03-01T12:00:00Z, or seconds that count from 2024-01-01T00:00:00Z; of several records a list, `[0, 30, 95]`. It is the records' timestamp, and the time by which windows and silence end. By default records have no timestamp, and come at once."""  # noqa: E501
    expect: dict[str, Any] | list[dict[str, Any]] | None = None
    """The values of the result, or of several results; `[]`: no result. A case without it and `fails` is right if no
    record fails."""
    sink: str | None = None
    """The sink whose results are checked, if there are several; by default the first."""
    sink_schema: str | dict[str, Any] | None = None
    """As `schema`, for the results of that sink."""
    exact: bool = False
    """Whether a result must have no other values than those of `expect`."""
    tolerance: Annotated[float, Field(ge=0)] = 1e-4
    """How much numbers may differ from the expected ones: relative to their size, or, near zero, absolutely."""
    fails: bool | str = False
    """Whether a record must fail, or the name of the step in which it must fail."""
    folder: Annotated[Path, Field(exclude=True)] = Path()
    """Where files that it names are looked for."""

    def records(self) -> list[Data | bytes]:
        """The records as values or payloads. Raises `DefinitionError` for invalid values and missing files."""
        if isinstance(self.input, str):
            return [self.input.encode()]
        given = self.input if isinstance(self.input, list) else [self.input]
        return [Data({key: self.value(value) for key, value in values.items()}) for values in given]

    def times(self) -> list[int | None]:
        """The timestamps of the records, in milliseconds since 1970."""
        count = len(self.input) if isinstance(self.input, list) else 1
        if self.at is None:
            return [None] * count
        return [*self.at] * (count if len(self.at) == 1 else 1)

    def input_schema(self) -> Schema | None:
        """The schema of the records, with its file names made paths."""
        return self._placed(self.schema_)

    def result_schema(self) -> Schema | None:
        """The schema of the results, with its file names made paths."""
        return self._placed(self.sink_schema)

    @model_validator(mode="after")
    def _check_times(self) -> Case:
        if self.at is not None and len(self.times()) != (len(self.input) if isinstance(self.input, list) else 1):
            count = len(self.input) if isinstance(self.input, list) else 1
            raise ValueError(f'"at" has {len(self.at)} times, and there are {count} records: give one for each')
        return self

    def _placed(self, schema: str | dict[str, Any] | None) -> Schema | None:
        if isinstance(schema, str):
            return self.folder / schema
        if schema is None or "descriptors" not in schema:
            return schema
        return {**schema, "descriptors": self.folder / str(schema["descriptors"])}

    def expected(self) -> list[dict[str, Any]] | None:
        """The values expected, one mapping a result; `None`: results are not checked."""
        return [self.expect] if isinstance(self.expect, dict) else self.expect

    def value(self, plain: object) -> Any:
        """A value of the case, from the JSON form or from a file. Raises `DefinitionError` naming the case."""
        try:
            if isinstance(plain, Mapping) and set(plain) == {FILE}:
                return _content(self.folder / str(plain[FILE]))
            return value_from_plain(plain)
        except (StreamerError, OSError, ValueError) as error:
            raise DefinitionError(f'case "{self.name}": {error}') from error


def cases_of(service_file: Path, given: list[Path]) -> list[Case]:
    """The cases in these files and folders; without any, in the folder `cases` beside the service file.

    Raises `DefinitionError` for an entry that is not a case, two cases of one name, and a file without cases.
    """
    places = given or [service_file.parent / FOLDER]
    if not given and not places[0].is_dir():
        raise DefinitionError(
            f"{service_file}: there are no cases; write some into {places[0]}, or name their files. One is a YAML file "
            "with input and expect"
        )
    cases: dict[str, Case] = {}
    for place in places:
        for case in _in(place):
            if case.name in cases:
                raise DefinitionError(f'{place}: two cases have the name "{case.name}"; give each its own name')
            cases[case.name] = case
    if not cases:
        raise DefinitionError(f"{', '.join(map(str, places))}: there are no cases; one is a YAML file with an input")
    return list(cases.values())


def _in(place: Path) -> Iterator[Case]:
    if place.is_dir():
        # Pictures in a folder belong to cases that name them.
        for file in sorted(place.iterdir()):
            if file.suffix.lower() in WRITTEN:
                yield from _written(file)
        return
    if place.suffix.lower() in SUFFIXES:
        yield Case(name=place.stem, input={"image": {FILE: place.name}}, folder=place.parent)
        return
    yield from _written(place)


def _written(file: Path) -> Iterator[Case]:
    documents = _lines(file) if file.suffix.lower() in (".jsonl", ".ndjson") else read_documents(file)
    for number, document in enumerate(documents, start=1):
        name = file.stem if len(documents) == 1 else f"{file.stem}-{number}"
        if not isinstance(document.data, dict):
            raise document.error((), "a case is a mapping with input, and the expected result")
        try:
            yield Case.model_validate({"name": name, **document.data, "folder": file.parent})
        except ValidationError as error:
            raise definition_error(error, document, Case) from error


def _lines(file: Path) -> list[Document]:
    documents = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file}: cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            documents += parse_documents(line, f"{file}:{number}")
    return documents


def _content(file: Path) -> Any:
    if file.suffix.lower() in SUFFIXES:
        return Image(file.read_bytes())
    if file.suffix.lower() == ".npy":
        return np.load(file, allow_pickle=False)
    raise DefinitionError(f"{file}: a picture ({', '.join(sorted(SUFFIXES))}) or a .npy file is needed")
