"""`json-schema`: JSON payloads in the framing of a schema registry, optionally checked against their schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from connectors.codec import Decoded, Encoded
from connectors.codecs.config import PayloadFields
from connectors.codecs.onevalue import only_element
from connectors.codecs.registry import codec_of
from connectors.codecs.rows import payload_bytes
from connectors.codecs.schemas.config import REGISTRY_PACKAGES, RegistryConfig
from connectors.codecs.schemas.framing import Frame, framed, schema_headers, without_schemas
from connectors.codecs.schemas.registry import Registered, SchemaRegistry
from connectors.codecs.schemas.schemafile import schema_text
from connectors.codecs.wrapping import Wrapper, WrapperConfig
from connectors.localpath import LocalPath
from connectors.records import Records
from connectors.units import Size
from pipelines.data.batch import Batch
from pipelines.errors import ConnectorError, DefinitionError, MissingPackageError, WireError
from pipelines.plugins.requirements import Package, Requirement, Requires, all_of

_MOST_TEXT = 300
"""The most characters of an error about a payload that does not follow its schema."""


class JsonSchemaConfig(WrapperConfig):
    """JSON records in the framing of a schema registry, or checked against a schema of a file."""

    built_by: ClassVar[str] = "connectors.codecs.schemas.jsonschema:JsonSchema"

    type: Literal["json-schema"] = "json-schema"
    """The type of codec."""
    registry: RegistryConfig | None = None
    """The schema registry, `{url: http://localhost:8081}`; without one payloads are bare JSON."""
    schema_: LocalPath | dict[str, Any] | None = Field(default=None, alias="schema")
    """The schema of results, and without a registry also of payloads that are read: a file, or the schema itself. With a registry it may be left out: then it is the latest one of the subject."""  # noqa: E501
    validate_: bool = Field(default=False, alias="validate")
    """Whether payloads and results are checked against their schemas. It takes many times as long as reading them."""
    codec: str | dict[str, Any] = "json"
    """The codec of the JSON itself: its name, or `{type: json, OPTION: ...}`."""
    max_bytes: Size = 16 << 20
    """Size of the largest payload; a larger one is an error of its record."""

    @model_validator(mode="after")
    def _some_schema(self) -> JsonSchemaConfig:
        if self.registry is None and self.schema_ is None:
            raise ValueError("give the codec json-schema a registry, or a schema; for plain JSON use the codec json")
        return self

    @property
    def needs(self) -> Requires:
        """The packages of the registry's client, and jsonschema if payloads are checked."""
        parts: list[Requirement] = [] if self.registry is None else [REGISTRY_PACKAGES]
        return all_of(*parts, *([Package("jsonschema", "schemas")] if self.validate_ else []))

    def ask(self) -> str | None:
        """The findings of a request to the registry; for a sink, the schema by which its results are going to be
        written."""
        if self.registry is None:
            return None
        record = "" if self.schema_ is None else _title(schema_text(self.schema_))
        return SchemaRegistry(self.registry).about(self.sink_topic, record, "register a schema")

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """Not known: JSON may have more than its schema says, and the inner codec may take values from inside."""
        return None

    def written_fields(self, *, ask: bool = False) -> PayloadFields | None:
        """Those of the schema of results, which with `ask` may be that of the subject."""
        if self.schema_ is not None:
            return _fields(schema_text(self.schema_))
        if not ask or self.registry is None:
            return None
        registry = SchemaRegistry(self.registry)
        schema = registry.latest(registry.subject(self.sink_topic, ""))
        return _fields(schema.text) if schema is not None and schema.kind == "JSON" else None


class JsonSchema(Wrapper):
    """JSON, read and written by an inner codec; this codec removes and adds the frame that names the schema.

    codec = JsonSchemaConfig(registry={"url": "http://localhost:8081"}).build()
    """

    def __init__(self, config: JsonSchemaConfig) -> None:
        self._config = config
        super().__init__(codec_of(config.codec))
        self._registry = None if config.registry is None else SchemaRegistry(config.registry)
        self._text = None if config.schema_ is None else schema_text(config.schema_)
        self._given = None if self._text is None else self._given_validator(self._text)
        self._results: tuple[Frame, Any] | None = None
        if self._registry is not None and config.sink_topic is not None:
            self._registry.subject(config.sink_topic, "")

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """The JSON of each payload, decoded by the inner codec."""
        values: list[bytes | None] = []
        failed: dict[int, Exception] = {}
        headers = schema_headers(records) if self._registry is not None else None
        for row, payload in enumerate(records.values):
            value = None
            if payload is not None:
                try:
                    value = self._json(payload, None if headers is None else headers[row])
                except ConnectorError:
                    raise
                except Exception as error:  # noqa: BLE001 - any exception fails this record alone
                    failed[first + row] = error
            values.append(value)
        inside = self._inside.decode(records.with_values(values), wanted, first)
        decoded = Decoded(inside.batch, failed | dict(inside.failed))
        return decoded if headers is None else without_schemas(decoded, records, first)

    def encode(self, batch: Batch) -> Encoded:
        """The payloads of the inner codec, with the frame that names the schema."""
        inside = self._inside.encode(batch)
        if not batch.size:
            return inside
        frame, validator = self._results = self._results or self._of_results()
        failed = dict(inside.failed)
        values: list[bytes | None] = [None] * batch.size
        for at, value in enumerate(inside.values):
            if value is None:
                continue
            try:
                _check(validator, value, "the result", _ONE_ELEMENT)
            except WireError as error:
                failed[at] = error
            else:
                values[at] = frame.prefix + value
        return Encoded(values, failed, frame.headers(batch.size) or inside.headers)

    def _json(self, payload: object, header: bytes | None) -> bytes:
        raw = payload_bytes(payload, "json-schema")
        if len(raw) > self._config.max_bytes:
            raise WireError(
                f"the payload has {len(raw)} bytes, more than {self._config.max_bytes}; "
                "raise max_bytes of the codec if such records are expected"
            )
        validator = self._given
        if self._registry is not None:
            of, rest, whole = framed(raw, header)
            validator = self._registry.parsed(of, self._parsed)
            raw = rest if whole is None else whole
        _check(validator, raw, "the payload")
        return raw

    def _parsed(self, registered: Registered) -> Any:
        if registered.kind != "JSON":
            raise WireError(f"the schema is {registered.kind}, not JSON: it is not a payload for the codec json-schema")
        if not self._config.validate_:
            return True
        return _validator(registered.text, {name: reference.text for name, reference in registered.references.items()})

    def _given_validator(self, text: str) -> Any:
        try:
            return _validator(text, {}) if self._config.validate_ else True
        except WireError as error:
            raise DefinitionError(str(error)) from None

    def _of_results(self) -> tuple[Frame, Any]:
        if self._registry is None:
            return Frame(b""), self._given
        if self._text is not None:
            subject = self._registry.subject(self._config.sink_topic, _title(self._text))
            return self._registry.frame(self._registry.written(subject, "JSON", self._text)), self._given
        subject = self._registry.subject(self._config.sink_topic, "")
        latest = self._registry.latest(subject) if subject else None
        if latest is None:
            raise ConnectorError(
                f'the schema registry {self._registry.config.url} has no subject "{subject}": register a schema for '
                "the results, or give the codec one (schema: FILE)"
            )
        try:
            return self._registry.frame(latest), self._parsed(latest)
        except WireError as error:
            raise ConnectorError(f"the schema of the subject {subject} cannot be used: {error}") from None


def _fields(text: str) -> PayloadFields | None:
    """The properties of a schema; `None` if others that it refers to have a say."""
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.keys() & {"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties"}:
        return None
    names, required = schema.get("properties"), schema.get("required")
    closed = schema.get("additionalProperties") is False
    return PayloadFields(
        frozenset(names) if isinstance(names, dict) else frozenset(),
        frozenset(map(str, required)) if isinstance(required, list) else frozenset(),
        others=not closed,
    )


def _title(text: str) -> str:
    schema = json.loads(text)
    return str(schema.get("title", "")) if isinstance(schema, dict) else ""


def _validator(text: str, references: Mapping[str, str]) -> Any:
    """A validator for the schema of this text. It fetches no schemas: those that it refers to are in `references`."""
    try:
        import jsonschema
        import referencing
        import referencing.jsonschema
    except ImportError:
        raise MissingPackageError("jsonschema", "schemas", "checking JSON against a schema") from None
    try:
        schema = json.loads(text)
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft7Validator)
        kind.check_schema(schema)
        others = {
            name: referencing.Resource.from_contents(
                json.loads(other), default_specification=referencing.jsonschema.DRAFT7
            )
            for name, other in references.items()
        }
        return kind(schema, registry=referencing.Registry().with_resources(others.items()))
    except (ValueError, RecursionError, jsonschema.SchemaError) as error:
        raise WireError(f"the JSON schema is wrong: {str(error)[:_MOST_TEXT]}") from None


_ONE_ELEMENT: Final = (
    "; the value is a list of one element, as a model gives it: take it out in a step before the sink "
    "(REGRESSION_OUTPUT)"
)


def _check(validator: Any, raw: bytes, what: str, one_element: str = "") -> None:
    """Raise `WireError` unless the JSON follows the schema; a `validator` of `True` checks nothing.

    `one_element` is the hint for a list of one element in place of that element.
    """
    if validator is True:
        return
    from jsonschema.exceptions import best_match

    try:
        error = best_match(validator.iter_errors(json.loads(raw)))
    except RecursionError:
        raise WireError(f"{what} is nested too deeply to be checked") from None
    except json.JSONDecodeError as reason:
        raise WireError(f"{what} is not valid JSON: {reason}") from None
    except UnicodeDecodeError as reason:
        raise WireError(f"{what} is not valid JSON: it is not UTF-8 at byte {reason.start}") from None
    except Exception as reason:  # noqa: BLE001 - a broken reference, an invalid pattern, bytes that are no JSON
        raise WireError(f"{what} cannot be checked: {type(reason).__name__}: {str(reason)[:_MOST_TEXT]}") from None
    if error is not None:
        is_one = error.validator == "type" and only_element(error.instance) is not error.instance
        hint = one_element if is_one else ""
        raise WireError(f"{what} does not follow its schema: {error.json_path}: {error.message[:_MOST_TEXT]}{hint}")
