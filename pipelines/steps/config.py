"""`Config`: a configuration object of a definition, and how Konduit Serving spells its keys.

Konduit writes camel case in JSON. In YAML it writes snake case for some types and camel case for others, an
accident that each class and field here states. Reading accepts every spelling in both forms.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    AliasGenerator,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from pipelines.data.data import check_key
from pipelines.described import Described

Form = Literal["json", "yaml"]


@dataclass(frozen=True, slots=True)
class Spelling:
    """Annotates a field whose keys differ from its class's habit: `Annotated[str, Spelling(yaml="loader_class")]`."""

    yaml: str | None = None
    """Key in YAML."""
    also: tuple[str, ...] = ()
    """Further keys that are read, never written."""


@dataclass(frozen=True, slots=True)
class Extension:
    """Annotates a field that Konduit Serving does not have: written only where it differs from its default."""


EXTENSION = Extension()


def camel(name: str) -> str:
    """`model_uri` as `modelUri`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _truncated(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is needed, not true or false")
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        return int(value)
    return value


Int = Annotated[int, BeforeValidator(_truncated)]
"""An integer; a fraction is cut off and a number in a string is read, as Konduit does."""


def _checked_key(key: str) -> str:
    check_key(key)
    return key


Key = Annotated[str, AfterValidator(_checked_key)]
"""The key of a value that a step writes: one that a record can have, not `@Metadata` and the like."""


class Config(Described):
    """Base of all configuration in definitions; immutable.

    In Python fields are keyword arguments by their snake-case names; in files every known spelling is read. An
    explicit null means none where a field may have none, false for a boolean, 0 for a number (as Konduit reads it)
    and the documented default for the rest. Raises `pydantic.ValidationError`; loading turns it into `DefinitionError`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=AliasGenerator(alias=camel),
        populate_by_name=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    yaml_case: ClassVar[Literal["snake", "camel"]] = "snake"
    """How Konduit spells this type's keys in YAML; a field may say otherwise with `Spelling`."""

    @classmethod
    def key(cls, field: str, form: Form = "json") -> str:
        """The key that `form` writes for a field."""
        info = cls.model_fields[field]
        written = info.serialization_alias or camel(field)
        if form == "json":
            return written
        spelling = _spelling(info)
        if spelling.yaml is not None:
            return spelling.yaml
        return field if cls.yaml_case == "snake" else written

    @classmethod
    def keys(cls) -> dict[str, str]:
        """Every key that is read, with the field it belongs to."""
        fields: dict[str, str] = {}
        for field, info in cls.model_fields.items():
            for key in (field, cls.key(field), cls.key(field, "yaml"), *_spelling(info).also):
                fields[key] = field
        return fields

    @classmethod
    def is_extension(cls, field: str) -> bool:
        """Whether the field is ours, unknown to Konduit Serving."""
        return any(isinstance(mark, Extension) for mark in cls.model_fields[field].metadata)

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data as `form` spells it: fields in order, without those that are `None`."""
        written: dict[str, Any] = {}
        for field, info in type(self).model_fields.items():
            value = getattr(self, field)
            if value is None or (self.is_extension(field) and value == info.get_default(call_default_factory=True)):
                continue
            written[self.key(field, form)] = plain(value, form)
        return written

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of the model with every key that is read: a field may be given under any of its keys."""
        schema = handler.resolve_ref_schema(super().__get_pydantic_json_schema__(core_schema, handler))
        properties = schema.get("properties", {})
        keys: dict[str, list[str]] = {}
        for key, field in cls.keys().items():
            keys.setdefault(cls.model_fields[field].alias or cls.key(field), []).append(key)
        for written, others in keys.items():
            if written in properties:
                bare = {name: value for name, value in properties[written].items() if name not in _NOTES}
                properties |= {key: bare for key in others if key not in properties}
        required = schema.get("required", [])
        several = [written for written in required if len(set(keys.get(written, ()))) > 1]
        if several:
            schema["required"] = [written for written in required if written not in several]
            schema["allOf"] = [
                {"anyOf": [{"required": [key]} for key in dict.fromkeys(keys[written])]} for written in several
            ]
        return schema

    @model_validator(mode="before")
    @classmethod
    def _read_spellings(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        known = cls.keys()
        fields: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for key, value in given.items():
            field = known.get(key)
            if field is None:
                fields[key] = value
                continue
            if field in spelled:
                raise ValueError(f"the same field is given twice, as {spelled[field]} and as {key}")
            spelled[field] = key
            info = cls.model_fields[field]
            if value is not None:
                fields[cls.key(field)] = value
            elif (null := _null_for(info.annotation)) is not _DEFAULT:
                fields[cls.key(field)] = null
        return fields


def plain(value: Any, form: Form) -> Any:
    """A field's value as plain data: models, enums, tuples and mappings resolved."""
    if isinstance(value, Config):
        return value.to_dict(form)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): plain(item, form) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return [plain(item, form) for item in value]
    return value


_NOTES: Final = ("title", "description", "examples")
_DEFAULT = object()


def _null_for(annotation: Any) -> Any:
    options = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    if type(None) in options:
        return None
    for zero in (False, 0, 0.0):
        if type(zero) in options:
            return zero
    return _DEFAULT


def _spelling(info: FieldInfo) -> Spelling:
    return next((mark for mark in info.metadata if isinstance(mark, Spelling)), Spelling())
