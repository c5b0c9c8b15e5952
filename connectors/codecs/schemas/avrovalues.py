"""Checks plain values against an Avro schema, takes single values out of lists, and puts errors in plain words.

fastavro converts silently: it writes any text as the boolean true, 1.5 as the integer 1, "1" as 1.0. So values are
checked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from connectors.codecs.onevalue import only_element, told
from connectors.codecs.schemas import float32
from connectors.codecs.schemas.avroschema import WRITERS, AvroSchema

_NAMED: Final = frozenset({"record", "enum", "fixed"})


class _Easy(NamedTuple):
    """Values that can be written, as far as that shows without a look at the schema."""

    classes: frozenset[type]
    """Those of which every value fits; fastavro itself refuses integers that are too large."""
    floats: bool
    """Whether numbers fit that a `float` can hold."""

    def one(self, value: Any) -> bool:
        """Whether the value surely fits."""
        return value.__class__ in self.classes or (self.floats and value.__class__ is float and float32.fits(value))

    def all(self, values: Sequence[Any]) -> bool:
        """Whether all of them surely fit."""
        found = set(map(type, values)) - self.classes
        return not found or (self.floats and found == {float} and float32.all_fit(values))


class AvroValues:
    """Checks the values of records against a schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._root = schema.prepared
        self._named: dict[str, Any] = dict(_named(schema.prepared))
        fields = {one["name"]: self._branches(one["type"]) for one in schema.prepared["fields"]}
        self.scalars = frozenset(
            name for name, kinds in fields.items() if not any(_kind(one) in _INNER for one in kinds)
        )
        """The fields that are one number, text or boolean, or null."""
        self._types = {one["name"]: one["type"] for one in schema.prepared["fields"]}
        self._easy = {name: self._easy_of(kinds) for name, kinds in fields.items()}
        arrays = {name: [one["items"] for one in kinds if _kind(one) == "array"] for name, kinds in fields.items()}
        self._in_lists = {
            name: self._easy_of(self._branches(items[0])) if len(items) == 1 else _Easy(frozenset(), False)
            for name, items in arrays.items()
        }
        """The elements of lists."""

    def all_fit(self, name: str, values: Sequence[Any]) -> bool:
        """Whether all these values can be written as this field."""
        easy = self._easy[name]
        if easy.all(values):
            return True
        # The elements of all lists at once: to look at each list takes longer than to write it.
        if set(map(type, values)) == {list} and self._in_lists[name].all(list(chain.from_iterable(values))):
            return True
        return all(easy.one(value) or self._fits(value, self._types[name]) for value in values)

    def fit(self, row: Mapping[str, Any]) -> bool:
        """Whether the values of a row can be written; also for one that lacks a field."""
        return all(self._easy[name].one(value) or self._fits(value, self._types[name]) for name, value in row.items())

    def fitted(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with the only element of a list wherever the schema has room for one value (`only_element`), and 2
        for 2.0 wherever it has room for integers only.
        """
        return self._fitted(row, self._root)  # type: ignore[no-any-return]

    def why(self, row: Mapping[str, Any]) -> str | None:
        """The error of the first value that does not follow the schema; `None` if no such value is found here."""
        return self._why(row, self._root, "")

    def _easy_of(self, kinds: Sequence[Any]) -> _Easy:
        plain = [one for one in kinds if isinstance(one, str) or one.get("logicalType") in (None, "streamer-int")]
        classes = frozenset(found for one in plain for found in _CLASSES.get(_kind(one), ()))
        return _Easy(classes, any(_kind(one) == "float" for one in plain))

    def _fits(self, value: Any, schema: Any) -> bool:
        kinds = self._branches(schema)
        if isinstance(value, list):
            arrays = [one["items"] for one in kinds if _kind(one) == "array"]
            return any(
                self._easy_of(self._branches(items)).all(value) or all(self._fits(one, items) for one in value)
                for items in arrays
            )
        if isinstance(value, Mapping):
            return any(self._has_room(value, one) for one in kinds)
        return any(_fits(value, one) for one in kinds)

    def _has_room(self, value: Mapping[str, Any], schema: Any) -> bool:
        if _kind(schema) == "map":
            return all(self._fits(one, schema["values"]) for one in value.values())
        if _kind(schema) != "record":
            return False
        types = {field["name"]: field["type"] for field in schema["fields"]}
        return all(self._fits(one, types[key]) for key, one in value.items() if key in types)

    def _fitted(self, value: Any, schema: Any) -> Any:
        kinds = self._branches(schema)
        if isinstance(value, list):
            array = next((one for one in kinds if _kind(one) == "array"), None)
            if array is None:
                return _without_point(only_element(value), kinds)
            return [self._fitted(one, array["items"]) for one in value]
        if not isinstance(value, Mapping):
            return _without_point(value, kinds)
        for one in kinds:
            if _kind(one) == "record":
                types = {field["name"]: field["type"] for field in one["fields"]}
                return {key: self._fitted(inner, types[key]) if key in types else inner for key, inner in value.items()}
            if _kind(one) == "map":
                return {key: self._fitted(inner, one["values"]) for key, inner in value.items()}
        return value

    def _why(self, value: Any, schema: Any, path: str) -> str | None:
        kinds = self._branches(schema)
        inside = [one for one in kinds if _kind(one) in _INNER and isinstance(value, _INNER[_kind(one)])]
        if len(inside) == 1:
            return self._why_inside(value, inside[0], path)
        if isinstance(value, str) and not _is_utf8(value):
            return f'"{path}" is a text that cannot be written as UTF-8: it has half of a surrogate pair'
        if inside or any(_fits(value, one) for one in kinds):
            return None
        wanted = " or ".join(map(_said, kinds))
        if value is None:
            what = f'"{path}" is null' if path.endswith("]") else f'there is no "{path}"'
            return (
                f"{what}, and its type {wanted} has no null: give the field a default, or the type "
                f'["null", ...], or write the value in a step before the sink'
            )
        advice = "change the type in the schema, or the value in a step before the sink"
        if isinstance(value, list):
            advice = (
                'make it an array ({"type": "array", "items": ...}), or take one element in a step before the sink '
                "(REGRESSION_OUTPUT)"
            )
        return f'"{path}" is {wanted}, and the value is {told(value)}; {advice}{_range(value, kinds)}'

    def _why_inside(self, value: Any, schema: Any, path: str) -> str | None:
        kind = _kind(schema)
        if kind == "array":
            parts: Iterator[tuple[Any, Any, str]] = (
                (one, schema["items"], f"{path}[{at}]") for at, one in enumerate(value)
            )
        elif kind == "map":
            parts = ((one, schema["values"], f"{path}.{key}") for key, one in value.items())
        else:
            begin = f"{path}." if path else ""
            parts = (
                (value.get(field["name"]), field["type"], begin + field["name"])
                for field in schema["fields"]
                if field["name"] in value or "default" not in field
            )
        return next((found for one in parts if (found := self._why(*one)) is not None), None)

    def _branches(self, schema: Any) -> list[Any]:
        """The types that a value may be of."""
        if isinstance(schema, list):
            return [own for one in schema for own in self._branches(one)]
        return [self._named.get(schema, schema) if isinstance(schema, str) else schema]


def _kind(schema: Any) -> str:
    return str(schema if isinstance(schema, str) else schema["type"])


def _without_point(value: Any, kinds: Sequence[Any]) -> Any:
    """The integer that a float without a fraction is, where the types hold integers and no other numbers."""
    if value.__class__ is not float or not value.is_integer() or int(value) not in _INTEGERS["long"]:
        return value
    found = set(map(_kind, kinds))
    return int(value) if found & _INTEGERS.keys() and not found & {"float", "double"} else value


def _said(schema: Any) -> str:
    """The type as an error calls it."""
    kind = _kind(schema)
    logical = "" if isinstance(schema, str) else str(schema.get("logicalType", "")).removeprefix("streamer-")
    if kind == "enum":
        return f"one of {', '.join(schema['symbols'][:10])}"
    if kind == "fixed" and not logical:
        return f"{schema['size']} bytes"
    return f"{kind} ({logical})" if logical and logical != "int" else kind


def _range(value: Any, kinds: Sequence[Any]) -> str:
    """What the types can hold, for a number that is too large or too small."""
    if type(value) is not int and not (type(value) is float and value.is_integer()):
        return ""
    ranges = [f"{_kind(one)} holds {_RANGES[_kind(one)]}" for one in kinds if _kind(one) in _RANGES]
    return f" ({', '.join(ranges)})" if ranges else ""


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fits(value: Any, schema: Any) -> bool:
    """Whether the value may be written as this type, which has no values inside; also if that is not known here."""
    kind = _kind(schema)
    if kind in _INNER:
        return False
    if kind == "null" or value is None:
        return kind == "null" and value is None
    logical = "" if isinstance(schema, str) else str(schema.get("logicalType", ""))
    if logical in _TIMES:
        return type(value) is int and WRITERS[f"{kind}-{logical}"](value, schema) in _INTEGERS[kind]
    if logical.startswith("streamer-") and logical != "streamer-int":
        return not isinstance(value, (list, dict, bool))
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("int", "long"):
        return type(value) is int and value in _INTEGERS[kind]
    if kind in ("float", "double"):
        return type(value) is int or (type(value) is float and (kind == "double" or float32.fits(value)))
    if kind == "enum":
        return value in schema["symbols"]
    if kind == "fixed":
        return isinstance(value, bytes) and len(value) == schema["size"]
    return isinstance(value, bytes if kind == "bytes" else str)


def _named(schema: Any) -> Iterator[tuple[str, Any]]:
    """The types of a schema that have a name, with their names."""
    if isinstance(schema, list):
        for one in schema:
            yield from _named(one)
    elif isinstance(schema, dict):
        if _kind(schema) in _NAMED:
            yield schema["name"], schema
        for field in schema.get("fields", ()):
            yield from _named(field["type"])
        yield from _named(schema.get("items"))
        yield from _named(schema.get("values"))


_CLASSES: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int,),
    "double": (int, float),
    "string": (str,),
    "bytes": (bytes,),
}
_INTEGERS: Final = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}
_RANGES: Final = {
    **{kind: f"{found[0]} to {found[-1]}" for kind, found in _INTEGERS.items()},
    "float": float32.RANGE,
}
_TIMES: Final = frozenset({"streamer-date", "streamer-micros", "streamer-nanos"})
_INNER: Final[Mapping[str, Any]] = {"array": list, "map": Mapping, "record": Mapping}
"""Types with values inside, and the Python types of such values."""
