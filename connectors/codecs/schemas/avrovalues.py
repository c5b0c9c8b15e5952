"""`AvroValues`: plain values as the types of an Avro schema hold them, for fastavro to write.

fastavro converts silently: it writes any text as the boolean true, 1.5 as the integer 1, "1" as 1.0, drops keys that a
record has no field for, and takes the first type of a union that is of the value's kind, whether it holds the value or
not. So values are checked here, and of a union the first type is taken that holds the value exactly; if none does, the
first that holds it rounded (0.1 as a `float`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from connectors.codecs.onevalue import described, only_element
from connectors.codecs.plainrows import AS_OBJECTS
from connectors.codecs.schemas.avroleaves import INTEGERS, Leaf, Written, is_utf8, leaf
from connectors.codecs.schemas.avroschema import AvroSchema, default_value
from connectors.codecs.schemas.avrotree import NAMED, kind_of, named_types
from pipelines.data.batch import Batch
from pipelines.errors import WireError, nearest
from pipelines.wire.plainvalues import plain_cells


class AvroValues:
    """The values of records, as a schema holds them."""

    def __init__(self, schema: AvroSchema) -> None:
        """Raises `WireError` for a default that is no value of its field."""
        named = named_types(schema.prepared)
        self._record = _Types(named, _Types(named, None)).record(schema.prepared)

    def rows(self, batch: Batch, failed: dict[int, Exception]) -> list[dict[str, Any]]:
        """The values of each row, for fastavro to write.

        `failed` gets the errors of the rows that cannot be written, by position: a `WireError` that names the field and
        the value.
        """
        fields = self._record.fields
        lacking = {name: field.lacking[0] for name, field in fields.items() if field.lacking is not None}
        rows: list[dict[str, Any]] = [{**lacking} for _ in range(batch.size)]
        for key, column in batch.columns.items():
            cells = plain_cells(key, column, AS_OBJECTS, failed)
            if key not in fields:
                for at, _ in cells:
                    failed.setdefault(at, unwritable(self._record.no_field(key, key)))
                continue
            put = fields[key].slot.put
            for at, value in cells:
                try:
                    rows[at][key] = put(value, key)[0]
                except WireError as error:
                    failed.setdefault(at, unwritable(error))
        for name in fields:
            for at, row in enumerate(rows if name not in lacking else ()):
                if name not in row:
                    failed.setdefault(at, unwritable(fields[name].slot.misfit(None, name)))
        return rows


def unwritable(why: object) -> WireError:
    """The error of a row that a schema cannot hold."""
    return WireError(f"the values do not follow the schema of the results: {why}")


@dataclass(frozen=True, slots=True)
class _Field:
    slot: _Slot
    lacking: Written | None
    """What is written for a row without a value: the default, or null; `None`: such a row cannot be written."""


@dataclass(frozen=True, slots=True)
class _Record:
    name: str
    fields: Mapping[str, _Field]
    holds: ClassVar[type] = dict

    @property
    def said(self) -> str:
        return f"record {self.name}"

    def put(self, value: Any, path: str) -> Written:
        for key in value:
            if key not in self.fields and value[key] is not None:
                raise self.no_field(key, f"{path}.{key}")
        written, exactly = {}, True
        for name, field in self.fields.items():
            given = value.get(name)
            put = field.lacking if given is None else None
            put = put or field.slot.put(given, f"{path}.{name}")
            written[name] = put[0]
            exactly = exactly and put[1]
        return written, exactly

    def no_field(self, key: str, path: str) -> WireError:
        return WireError(
            f'the schema of the results has no field "{path}"{nearest(key, self.fields)}; choose what the sink writes '
            "(keys: [NAME], drop: [NAME]), leave the value out in a step before the sink, or add the field"
        )


@dataclass(frozen=True, slots=True)
class _Array:
    items: _Slot
    name: ClassVar[str] = "array"
    said: ClassVar[str] = "array"
    holds: ClassVar[type] = list

    def put(self, value: Any, path: str) -> Written:
        if self.items.holds_all(value):
            return value, True
        items = [self.items.put(item, f"{path}[{at}]") for at, item in enumerate(value)]
        return [item for item, _ in items], all(exactly for _, exactly in items)


@dataclass(frozen=True, slots=True)
class _Map:
    values: _Slot
    name: ClassVar[str] = "map"
    said: ClassVar[str] = "map"
    holds: ClassVar[type] = dict

    def put(self, value: Any, path: str) -> Written:
        entries = {key: self.values.put(entry, f"{path}.{key}") for key, entry in value.items()}
        return {key: entry for key, (entry, _) in entries.items()}, all(exactly for _, exactly in entries.values())


_Type = Leaf | _Record | _Array | _Map


class _Slot:
    """The place of a value: a type, or a union of types."""

    __slots__ = ("_only", "_takes_lists", "_takes_whole_floats", "_types")

    def __init__(self, types: Sequence[_Type], union: bool) -> None:
        self._types = types
        self._only = None if union else types[0]
        names = {branch.name for branch in types}
        self._takes_lists = "array" in names
        self._takes_whole_floats = bool(names & INTEGERS.keys()) and not names & {"float", "double"}

    def holds_all(self, values: list[Any]) -> bool:
        """Whether it holds all these numbers, as they are. It may say no although it does."""
        return self._only is not None and isinstance(self._only, Leaf) and self._only.holds_all(values)

    def put(self, value: Any, path: str) -> Written:
        """The value, and whether it is exactly this one. Raises `WireError`, which names the value by its path.

        A list of one element is that element where no list has a place, and 2.0 is 2 among integers.
        """
        if value.__class__ is list and not self._takes_lists:
            value = only_element(value)
        if value.__class__ is float and self._takes_whole_floats and value.is_integer():
            value = int(value) if int(value) in INTEGERS["long"] else value
        if self._only is not None:
            put = _put(self._only, value, path)
            if put is None:
                raise self.misfit(value, path)
            return put
        return self._in_union(value, path)

    def _in_union(self, value: Any, path: str) -> Written:
        rounded: Written | None = None
        wrong: list[tuple[_Type, WireError]] = []
        for branch in self._types:
            try:
                put = _put(branch, value, path)
            except WireError as error:
                wrong.append((branch, error))
                continue
            if put is not None and put[1]:
                return (branch.name, put[0]), True
            if put is not None and rounded is None:
                rounded = (branch.name, put[0]), False
        if rounded is not None:
            return rounded
        if len(wrong) == 1:
            raise wrong[0][1]
        raise self.misfit(value, path, wrong)

    def misfit(self, value: Any, path: str, wrong: Sequence[tuple[_Type, WireError]] = ()) -> WireError:
        """The error of a value that it does not hold; `wrong` are the errors inside it, by types of a union."""
        if isinstance(value, str) and not is_utf8(value):
            return WireError(f'"{path}" is a text that cannot be written as UTF-8: it has half of a surrogate pair')
        wanted = " or ".join(branch.said for branch in self._types)
        if value is None:
            what = f'"{path}" is null' if path.endswith("]") else f'there is no "{path}"'
            return WireError(
                f"{what}, and its type {wanted} has no null: give the field a default, or the type "
                f'["null", ...], or write the value in a step before the sink'
            )
        advice = "change the type in the schema, or the value in a step before the sink"
        if isinstance(value, list):
            advice = (
                'make it an array ({"type": "array", "items": ...}), or take one element in a step before the sink '
                "(REGRESSION_OUTPUT)"
            )
        hints = [hint for branch in self._types if isinstance(branch, Leaf) and (hint := branch.hint(value))]
        hints += [f"{branch.said}: {error}" for branch, error in wrong]
        more = f" ({'; '.join(hints)})" if hints else ""
        return WireError(f'"{path}" is {wanted}, and the value is {described(value)}; {advice}{more}')


def _put(kind: _Type, value: Any, path: str) -> Written | None:
    if isinstance(kind, Leaf):
        return kind.put(value)
    return kind.put(value, path) if isinstance(value, kind.holds) else None


class _Types:
    """Makes types of schemas: each type with a name once."""

    def __init__(self, named: Mapping[str, Any], defaults: _Types | None) -> None:
        """`named` are the types with names. `defaults` makes the types of defaults, which have no logical types: they
        are days, microseconds; `None`: this one does."""
        self._named = named
        self._made: dict[str, _Type] = {}
        self._defaults = defaults

    def record(self, schema: Any) -> _Record:
        fields: dict[str, _Field] = {}
        for field in schema["fields"]:
            slot = self._slot(field["type"])
            fields[field["name"]] = _Field(slot, self._lacking(field, slot))
        return _Record(schema["name"], fields)

    def _slot(self, schema: Any) -> _Slot:
        types: dict[str, _Type] = {}
        for branch in schema if isinstance(schema, list) else [schema]:
            made = self._type(branch)
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
            return self._leaf(schema)
        name = schema["name"]
        if name not in self._made:
            self._made[name] = self.record(schema) if kind == "record" else self._leaf(schema)
        return self._made[name]

    def _leaf(self, schema: Any) -> Leaf:
        return leaf(schema, logical=self._defaults is not None)

    def _lacking(self, field: Mapping[str, Any], slot: _Slot) -> Written | None:
        if "default" not in field:
            try:
                return slot.put(None, "")
            except WireError:
                return None
        try:
            default = default_value(field["type"], field["default"], self._named, logical=False)
            return (self._defaults or self)._slot(field["type"]).put(default, "")[0], True
        except (WireError, ValueError):
            wrong = f"the default of {field['name']!r}, {str(field['default'])[:60]!r}, does not have its type"
            raise WireError(f"the Avro schema is wrong: {wrong}") from None
