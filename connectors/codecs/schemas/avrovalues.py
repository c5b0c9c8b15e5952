"""`AvroValues`: plain values as the types of an Avro schema hold them, for fastavro to write.

fastavro converts silently: it writes any text as the boolean true, 1.5 as the integer 1, "1" as 1.0, drops keys that a
record has no field for, and takes the first type of a union that is of the value's kind, whether it holds the value or
not. So values are checked here, and of a union the first type is taken that holds the value exactly; if none does, the
first that holds it rounded (0.1 as a `float`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from connectors.codecs.onevalue import only_element, told
from connectors.codecs.schemas.avroleaves import INTEGERS, Leaf, Written, is_utf8, leaf
from connectors.codecs.schemas.avroschema import AvroSchema, default_value
from connectors.codecs.schemas.avrotree import NAMED, kind_of, named_types, without_logical_types
from pipelines.errors import WireError, nearest


class AvroValues:
    """The values of records, as a schema holds them."""

    def __init__(self, schema: AvroSchema) -> None:
        """Raises `WireError` for a default that is no value of its field."""
        plain = _Making(named_types(without_logical_types(schema.prepared)), None)
        self._record = _Making(named_types(schema.prepared), plain).record(schema.prepared)
        self.scalars = frozenset(name for name, one in self._record.fields.items() if one.slot.is_scalar)
        """The fields that are one number, text or boolean, or null."""

    def column(self, name: str, values: Sequence[Any]) -> Sequence[Any] | None:
        """These values of a field, for fastavro to write; `None` if one of them cannot be written."""
        slot = self._record.fields[name].slot
        if slot.takes(values):
            return values
        try:
            return [slot.put(value)[0] for value in values]
        except _Misfit:
            return None

    def lacking(self, names: Container[str]) -> dict[str, Any] | None:
        """What is written for the fields that are not among these; `None` if one must have a value."""
        fields = {name: one.lacking for name, one in self._record.fields.items() if name not in names}
        if any(one is None for one in fields.values()):
            return None
        return {name: one[0] for name, one in fields.items() if one is not None}

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a row, for fastavro to write. Raises `WireError`, which names the field and the value."""
        try:
            return self._record.written(row)[0]
        except _Misfit as error:
            raise WireError(error.text()) from None


class _Misfit(Exception):
    """A value that its type cannot hold."""

    def __init__(self, why: Callable[[str], str], *path: str) -> None:
        """`path` leads from here to the value, the last part first; `why` makes a text of it: `.items[2].name`."""
        self._why = why
        self._path = list(path)

    def inside(self, part: str) -> _Misfit:
        """The same, as it is seen from one level above."""
        self._path.append(part)
        return self

    def text(self, begin: str = "") -> str:
        """`begin` is the place that the path leads from."""
        return self._why((begin + "".join(reversed(self._path))).removeprefix("."))


@dataclass(frozen=True, slots=True)
class _Field:
    slot: _Slot
    lacking: Written | None
    """What is written for a row without a value: the default, or null; `None`: such a row cannot be written."""


class _Record:
    def __init__(self, name: str, fields: Mapping[str, _Field]) -> None:
        self.name = name
        self.said = f"record {name}"
        self.fields = fields

    def put(self, value: Any) -> Written | None:
        return self.written(value) if isinstance(value, Mapping) else None

    def written(self, value: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        fields = self.fields
        if not value.keys() <= fields.keys():
            other = next((key for key in value if key not in fields and value[key] is not None), None)
            if other is not None:
                raise _Misfit(lambda path: self._no_field(path, other), f".{other}")
        found, exactly = {}, True
        for name, field in fields.items():
            own = value.get(name)
            written = field.lacking if own is None else None
            if written is None:
                try:
                    written = field.slot.put(own)
                except _Misfit as error:
                    raise error.inside(f".{name}") from None
            found[name] = written[0]
            exactly = exactly and written[1]
        return found, exactly

    def _no_field(self, path: str, key: str) -> str:
        return (
            f'the schema of the results has no field "{path}"{nearest(key, self.fields)}; choose what the sink writes '
            "(keys: [NAME], drop: [NAME]), leave the value out in a step before the sink, or add the field"
        )


class _Array:
    name: Final = "array"
    said: Final = "array"

    def __init__(self, items: _Slot) -> None:
        self.items = items

    def put(self, value: Any) -> Written | None:
        if not isinstance(value, list):
            return None
        if self.items.takes(value):
            return value, True
        found, exactly = [], True
        for at, one in enumerate(value):
            try:
                written, exact = self.items.put(one)
            except _Misfit as error:
                raise error.inside(f"[{at}]") from None
            found.append(written)
            exactly = exactly and exact
        return found, exactly


class _Map:
    name: Final = "map"
    said: Final = "map"

    def __init__(self, values: _Slot) -> None:
        self._values = values

    def put(self, value: Any) -> Written | None:
        if not isinstance(value, Mapping):
            return None
        found, exactly = {}, True
        for key, one in value.items():
            try:
                found[key], exact = self._values.put(one)
            except _Misfit as error:
                raise error.inside(f".{key}") from None
            exactly = exactly and exact
        return found, exactly


_Type = Leaf | _Record | _Array | _Map


class _Slot:
    """The place of a value: a type, or a union of types."""

    def __init__(self, types: Sequence[_Type], union: bool) -> None:
        self._types = types
        self._union = union
        leaves = [one for one in types if isinstance(one, Leaf)]
        arrays = [one for one in types if isinstance(one, _Array)]
        kinds = {one.name for one in leaves}
        self.is_scalar = len(leaves) == len(types)
        self._elements = arrays[0].items if len(arrays) == 1 else None
        self._takes_lists = bool(arrays)
        self._takes_whole_floats = bool(kinds & INTEGERS.keys()) and not kinds & {"float", "double"}
        only = {kind: of[0] for kind in _CLASSES if len(of := [one for one in leaves if kind in one.classes]) == 1}
        self._plain = frozenset(kind for kind, one in only.items() if kind in one.plain)
        """Python's types whose values fastavro writes rightly without a look at each."""
        self._all_fit = {kind: one.all_fit for kind, one in only.items()}

    def takes(self, values: Sequence[Any]) -> bool:
        """Whether fastavro writes all these values rightly as they are. It may say no although it does."""
        found = set(map(type, values)) - self._plain
        if not found:
            return True
        if len(found) > 1:
            return False
        (kind,) = found
        if kind is list and self._elements is not None:
            # The elements of all lists at once: to look at each list takes longer than to write it.
            lists = [one for one in values if one.__class__ is list]
            return self._elements.takes(list(chain.from_iterable(lists)))
        return kind in self._all_fit and self._all_fit[kind]([one for one in values if one.__class__ is kind])

    def put(self, value: Any) -> Written:
        """The value, and whether it is exactly this one. Raises `_Misfit`.

        A list of one element is that element where no list has a place, and 2.0 is 2 among integers.
        """
        if value.__class__ is list and not self._takes_lists:
            value = only_element(value)
        if value.__class__ is float and self._takes_whole_floats and value.is_integer():
            value = int(value) if int(value) in INTEGERS["long"] else value
        rounded: Written | None = None
        wrong: list[tuple[_Type, _Misfit]] = []
        for one in self._types:
            try:
                found = one.put(value)
            except _Misfit as error:
                wrong.append((one, error))
                continue
            if found is None:
                continue
            written = ((one.name, found[0]) if self._union else found[0]), found[1]
            if found[1]:
                return written
            rounded = rounded or written
        if rounded is not None:
            return rounded
        if len(wrong) == 1:
            raise wrong[0][1]
        raise _Misfit(lambda path: self._why(path, value, wrong))

    def _why(self, path: str, value: Any, wrong: Sequence[tuple[_Type, _Misfit]]) -> str:
        if isinstance(value, str) and not is_utf8(value):
            return f'"{path}" is a text that cannot be written as UTF-8: it has half of a surrogate pair'
        wanted = " or ".join(one.said for one in self._types)
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
        hints = [hint for one in self._types if isinstance(one, Leaf) and (hint := one.hint(value))]
        hints += [f"{one.said}: {error.text(path)}" for one, error in wrong]
        more = f" ({'; '.join(hints)})" if hints else ""
        return f'"{path}" is {wanted}, and the value is {told(value)}; {advice}{more}'


class _Making:
    """Makes types of schemas: each type with a name once."""

    def __init__(self, named: Mapping[str, Any], plain: _Making | None) -> None:
        """`named` are the types with names. `plain` makes the types of defaults, which are as Avro has them: days,
        microseconds; `None`: this one does."""
        self._named = named
        self._made: dict[str, _Type] = {}
        self._plain = plain or self

    def record(self, schema: Any) -> _Record:
        fields: dict[str, _Field] = {}
        for one in schema["fields"]:
            slot = self._slot(one["type"])
            fields[one["name"]] = _Field(slot, self._lacking(one, slot))
        return _Record(schema["name"], fields)

    def _slot(self, schema: Any) -> _Slot:
        types: dict[str, _Type] = {}
        for one in schema if isinstance(schema, list) else [schema]:
            made = self._type(one)
            # Of two types with one name, which Avro forbids, fastavro can be told to write the first.
            types.setdefault(made.name, made)
        return _Slot(list(types.values()), isinstance(schema, list))

    def _type(self, schema: Any) -> _Type:
        schema = self._named.get(schema, schema) if isinstance(schema, str) else schema
        kind = kind_of(schema)
        if kind == "array":
            return _Array(self._slot(schema["items"]))
        if kind == "map":
            return _Map(self._slot(schema["values"]))
        if kind not in NAMED:
            return leaf(schema)
        name = schema["name"]
        if name not in self._made:
            self._made[name] = self.record(schema) if kind == "record" else leaf(schema)
        return self._made[name]

    def _lacking(self, field: Mapping[str, Any], slot: _Slot) -> Written | None:
        if "default" not in field:
            try:
                return slot.put(None)
            except _Misfit:
                return None
        schema = without_logical_types(field["type"])
        try:
            return self._plain._slot(schema).put(default_value(schema, field["default"], self._plain._named))[0], True
        except (_Misfit, ValueError):
            told = f"the default of {field['name']!r}, {str(field['default'])[:60]!r}, does not have its type"
            raise WireError(f"the Avro schema is wrong: {told}") from None


_CLASSES: Final = (type(None), bool, int, float, str, bytes)
