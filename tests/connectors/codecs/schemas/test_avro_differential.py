"""Records of made schemas, whole and mutilated, through both ways of the codec: equal rows, values and errors."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import fastavro
import numpy as np
import pytest
from codecsupport import block
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.codec import Codec, Decoded
from connectors.codecs.plainrows import AS_OBJECTS
from connectors.codecs.schemas.avro import AvroConfig
from connectors.codecs.schemas.compiledavro import MOST_FRAMES
from connectors.codecs.schemas.framing import HEADER, by_guid
from connectors.codecs.schemas.registry import mock_registry
from connectors.records import Records
from examples import examples
from pipelines import Batch, Data
from pipelines.data.columns import Column, DenseColumn, RaggedColumn
from pipelines.data.spans import Spans
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DefinitionError, RowsFailed
from pipelines.hotpath import choosing, why_not
from pipelines.values import ValueType
from pipelines.wire.plainvalues import plain_rows

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"there is one way only: {why_not()}")

Made = tuple[Any, st.SearchStrategy[Any]]
"""A type and its values."""

_INT, _LONG = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_SCALARS: list[Made] = [
    ("boolean", st.booleans()),
    ("int", _INT),
    ("long", st.one_of(_LONG, st.integers(-3, 200), st.sampled_from([2**53, 2**53 + 1, -(2**63)]))),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("string", st.text(max_size=8)),
    ("bytes", st.binary(max_size=8)),
]
_LOGICAL: list[Made] = [
    ({"type": "int", "logicalType": "date"}, _INT),
    ({"type": "int", "logicalType": "time-millis"}, _INT),
    *(({"type": "long", "logicalType": f"timestamp-{unit}"}, _LONG) for unit in ("millis", "micros", "nanos")),
    ({"type": "long", "logicalType": "time-micros"}, _LONG),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}, st.binary(max_size=6)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": -2}, st.binary(max_size=3)),
    ({"type": "string", "logicalType": "uuid"}, st.text(max_size=4)),
]


class _Names:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.known: list[Made] = []
        """Types with names that were written out before."""

    def new(self) -> str:
        return f"N{len(self.known)}_{self._draw(st.integers(0, 10**9))}"


def _raw(kind: Any) -> Any:
    """The type without its logical type, so that fastavro writes the raw values."""
    if isinstance(kind, dict) and "logicalType" in kind:
        return {key: value for key, value in kind.items() if key != "logicalType"}
    if isinstance(kind, dict):
        return {
            key: _raw(value) if key in ("items", "values", "type", "fields") else value for key, value in kind.items()
        }
    return [_raw(one) for one in kind] if isinstance(kind, list) else kind


def _kind(draw: st.DrawFn, names: _Names, depth: int) -> Made:
    deeper = ["array", "map", "record", "union", "union"] if depth < 3 else []
    shape = draw(st.sampled_from(["scalar"] * 5 + ["logical", "enum", "fixed", "known"] + deeper))
    if shape == "known" and names.known:
        kind, values = draw(st.sampled_from(names.known))
        return kind["name"], values
    if shape == "logical":
        return draw(st.sampled_from(_LOGICAL))
    if shape == "enum":
        symbols = draw(st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=4, unique=True))
        return _known(names, {"type": "enum", "name": names.new(), "symbols": symbols}, st.sampled_from(symbols))
    if shape == "fixed":
        size = draw(st.integers(1, 5))
        made = {"type": "fixed", "name": names.new(), "size": size}
        return _known(names, made, st.binary(min_size=size, max_size=size))
    if shape == "union":
        return _union(draw, names, depth)
    if shape == "array":
        inner, values = _kind(draw, names, depth + 1)
        return {"type": "array", "items": inner}, st.lists(values, max_size=4)
    if shape == "map":
        inner, values = _kind(draw, names, depth + 1)
        return {"type": "map", "values": inner}, st.dictionaries(st.text("abé", max_size=3), values, max_size=3)
    if shape == "record":
        kind, values = _record(draw, names, draw(st.integers(1, 3)), depth + 1)
        return _known(names, kind, values)
    return draw(st.sampled_from(_SCALARS))


def _known(names: _Names, kind: Any, values: st.SearchStrategy[Any]) -> Made:
    names.known.append((kind, values))
    return kind, values


def _union(draw: st.DrawFn, names: _Names, depth: int) -> Made:
    """A union of types that fastavro tells apart by their values."""
    null: Made = ("null", st.none())
    if depth > 1 or draw(st.booleans()):
        made = [null, ("int", _INT), ("double", st.floats()), ("string", st.text(max_size=3))]
        chosen = draw(st.lists(st.sampled_from(made), min_size=1, max_size=4, unique_by=lambda one: str(one[0])))
    else:
        chosen = draw(st.permutations([null, _kind(draw, names, 3)]))
    return [kind for kind, _ in chosen], st.one_of([values for _, values in chosen])


def _record(draw: st.DrawFn, names: _Names, count: int, depth: int) -> Made:
    fields = {f"f{number}": _kind(draw, names, depth) for number in range(count)}
    made = [{"name": name, "type": kind} for name, (kind, _) in fields.items()]
    values = st.fixed_dictionaries({name: values for name, (_, values) in fields.items()})
    return {"type": "record", "name": names.new(), "fields": made}, values


@st.composite
def _schemas(draw: st.DrawFn) -> Made:
    kind, values = _record(draw, _Names(draw), draw(st.integers(1, 5)), 0)
    return {**kind, "name": "Top"}, values


_WIDER = {"int": ["long", "float", "double"], "long": ["float", "double"], "float": ["double"], "string": ["bytes"],
          "bytes": ["string"]}  # fmt: skip


@st.composite
def _evolved(draw: st.DrawFn, kind: Any) -> Any:
    """A schema that records of this one may be read as, or not."""
    if isinstance(kind, str):
        return draw(st.sampled_from([kind, kind, ["null", kind], *_WIDER.get(kind, ()), "string"]))
    if isinstance(kind, list):
        return draw(st.sampled_from([kind, kind[::-1], kind[-1], [*kind, {"type": "array", "items": "int"}]]))
    if "symbols" in kind:
        others = [{}, {"symbols": [*kind["symbols"], "Z"]}, {"symbols": ["A"], "default": "A"}, {"symbols": ["B"]}]
        return {**kind, **draw(st.sampled_from(others))}
    for inner in ("items", "values"):
        if inner in kind:
            return {**kind, inner: draw(_evolved(kind[inner]))}
    if "fields" not in kind:
        return kind
    fields = [
        {
            **one,
            "type": draw(_evolved(one["type"])),
            **({"name": f"{one['name']}n", "aliases": [one["name"]]} if other else {}),
        }
        for one in kind["fields"]
        for other in [draw(st.integers(0, 5)) == 0]
        if draw(st.integers(0, 5))
    ]
    if draw(st.booleans()):
        more = draw(
            st.sampled_from(
                [("long", 7), ("string", "x"), (["null", "int"], None), ({"type": "array", "items": "int"}, [1])]
            )
        )
        fields.append({"name": "more", "type": more[0], "default": more[1]})
    return {**kind, "fields": draw(st.permutations(fields))}


def avro(schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(_raw(json.loads(json.dumps(schema)))), value)
    return buffer.getvalue()


@st.composite
def _mutilated(draw: st.DrawFn, good: list[bytes]) -> bytes:
    text = draw(st.sampled_from(good))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(text)))
        what = draw(
            st.sampled_from([b"", b"\0", b"\1", b"\2", b"\3", b"\x04", b"\x80", b"\x80\0", b"\xff" * 9, b"\x7f"])
        )
        text = text[:at] + what + text[at + draw(st.integers(0, 2)) :]
    return text


def ways(options: dict[str, Any]) -> tuple[Codec, Codec]:
    """The codec in plain Python, and compiled: not `Guarded`, so that its exceptions are seen."""
    config = AvroConfig.model_validate({"type": "avro", **options})
    plain, native = choosing("python")(config.build)(), choosing("native")(config.build)()
    assert (plain.hot_path.path, native.hot_path.path) == ("python", "native")
    return plain, native


def shown(column: Column) -> Any:
    try:
        return [f"{type(value).__name__} {value!r}" for value in column.values()]
    except RowsFailed as error:
        return {row: str(failure) for row, failure in error.failures.items()}


def array(column: Column) -> str:
    try:
        found = column.array
    except Exception as error:  # noqa: BLE001 - which error it is is compared
        return type(error).__name__
    return f"{found.dtype} {found.tolist()}"


def errors(decoded: Decoded) -> dict[int, str]:
    return {row: f"{type(error).__name__} {error}" for row, error in decoded.failed.items()}


def same(setting: dict[str, Any], records: Records, wanted: frozenset[str]) -> Decoded:
    """Check that both hot paths decode the records alike; returns the compiled result."""
    a, b = (codec.decode(records, wanted, 3) for codec in ways(setting))
    assert errors(a) == errors(b)
    assert list(a.batch.rows) == list(b.batch.rows)
    assert list(a.batch.keys()) == list(b.batch.keys())
    undecoded: list[Any] = []
    for one in (a, b):
        failed: dict[int, Exception] = {}
        rows = plain_rows(one.batch.without(wanted), AS_OBJECTS, failed)
        undecoded.append(([repr(row) for row in rows], failed))
    assert undecoded[0] == undecoded[1]
    for part in (slice(None), slice(1, 3)):
        places = np.arange(a.batch.size)[part]
        first, second = a.batch.take(places), b.batch.take(places)
        for key in first.columns:
            assert shown(first.column(key)) == shown(second.column(key)), key
            if key in wanted:
                assert array(first.column(key)) == array(second.column(key)), key
    return b


def spans_of(payloads: Sequence[bytes | None]) -> Records:
    records = block(payloads)
    records.values = Spans.of(list(payloads))
    return records


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_both_ways_read_the_same_of_any_schema(data: st.DataObject) -> None:
    schema, values = data.draw(_schemas())
    good = [avro(schema, data.draw(values)) for _ in range(data.draw(st.integers(1, 5)))]
    payloads = data.draw(st.lists(st.sampled_from(good) | _mutilated(good) | st.none(), min_size=1, max_size=12))
    names = [one["name"] for one in schema["fields"]]
    wanted = data.draw(st.frozensets(st.sampled_from([*names, "other"])))
    setting = {"schema": schema, "decimals": data.draw(st.sampled_from(["number", "text"]))}
    same(setting, (spans_of if data.draw(st.booleans()) else block)(payloads), wanted)


@settings(max_examples=examples(80), deadline=None)
@given(st.data())
def test_both_ways_read_one_schema_as_another(data: st.DataObject) -> None:
    schema, values = data.draw(_schemas())
    reader = data.draw(_evolved(schema))
    try:
        ways({"schema": schema, "reader_schema": reader})
    except Exception:  # noqa: BLE001 - no schema
        return
    payloads = [avro(schema, data.draw(values)) for _ in range(data.draw(st.integers(1, 9)))]
    names = [one["name"] for one in reader["fields"]]
    wanted = data.draw(st.frozensets(st.sampled_from([*names, "other"])))
    same({"schema": schema, "reader_schema": reader}, block(payloads), wanted)


FIELDS: dict[str, Any] = {
    "n": "int",
    "s": "string",
    "l": {"type": "array", "items": "long"},
    "m": {"type": "map", "values": "string"},
    "e": {"type": "enum", "name": "E", "symbols": ["A", "B", "AB"]},
    "u": ["null", "int", "double", "string"],
    "d": {"type": "array", "items": "double"},
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
}
VALUE: dict[str, Any] = {"n": 5, "s": "é", "l": [1, -2], "m": {"k": "v"}, "e": "AB", "u": 2.5, "d": [0.5]}
PARTS = [avro({**SCHEMA, "fields": [one]}, VALUE) for one in SCHEMA["fields"]]
"""The bytes of each field."""

HOSTILE = {
    "n": [b"\x80", b"\x80\0", b"\xff" * 9 + b"\1", b"\x80\x80\x80\x80\x10", b"\xff" * 20, b""],
    "s": [b"\1", b"\x7f", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1", b"\4\xff\xfe", b"\4\xc3", b"\x82\0a"],
    "l": [
        b"\3\4\2\3\0",  # a block with its size, which skips may use
        b"\3\x7f\2\3\0",
        b"\3\x0a\2\3\0",  # the size is more than the array has, and less than the record
        b"\3\3\2\3\0",
        b"\2\2\2\3\0",  # two blocks
        b"\1\2\2\0",
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0",
        b"\x80\x80\x80\x80\x80\x80\x01" + b"\2" * 9,
        b"\0",
    ],
    "m": [b"\1\4\2k\2v\0", b"\4\2k\2v\2k\2w\0", b"\x7f", b"\xff" * 9 + b"\1\0", b"\2\3\2v\0", b"\2\2\xff\2v\0"],
    "e": [b"\6", b"\1", b"\3", b"\5", b"\x7f", b"\xff\x01"],
    "u": [b"\x08", b"\1\2", b"\0", b"\2\4", b"\6\2x", b"\x0a", b"\3\4"],
    "d": [b"\1\x10" + b"\0" * 8 + b"\0", b"\2" + b"\0" * 7, b"\4" + b"\0" * 15 + b"\0", b"\x80\x80\x80\x80\x04"],
}


@pytest.mark.parametrize("wanted", [frozenset(), frozenset(FIELDS)], ids=["undecoded", "read"])
@pytest.mark.parametrize("field", list(FIELDS))
def test_hostile_bytes_fail_their_record_alone_and_as_fastavro_says(field: str, wanted: frozenset[str]) -> None:
    good = b"".join(PARTS)
    place = list(FIELDS).index(field)
    for bad in HOSTILE[field]:
        odd = b"".join([*PARTS[:place], bad, *PARTS[place + 1 :]])
        found = same({"schema": SCHEMA}, block([good, odd, None, good, good[:-1], good + b"\0"]), wanted)
        assert {3, 6} <= set(found.batch.rows)
        assert {7, 8} <= set(found.failed)


def test_a_record_of_few_bytes_takes_little_memory() -> None:
    """A record may claim to hold thousands of millions of elements."""
    import tracemalloc

    claim = b"\xfe\xff\xff\xff\x0f"
    payloads = [claim, claim * 40, b"\2" * 500, b"\x80\x80\x80\x08" + b"\2" * 100]
    for items in ("long", "double", "string", {"type": "map", "values": "int"}):
        schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "array", "items": items}}]}
        (_, native) = ways({"schema": schema})
        native.decode(block(payloads), frozenset("x"))
        tracemalloc.start()
        native.decode(block(payloads * 10), frozenset("x"))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
        tracemalloc.stop()


def test_a_record_that_is_too_large_fails_as_in_python() -> None:
    good = b"".join(PARTS)
    large = avro(SCHEMA, {**VALUE, "s": "x" * 100})
    found = same({"schema": SCHEMA, "max_bytes": 60}, block([large, good, large]), frozenset("n"))
    assert set(found.failed) == {3, 5}


class _Topic:
    """A registry with versions of a schema, and payloads of each."""

    def __init__(self, count: int) -> None:
        self.url = f"mock://differential-{id(self)}"
        self.payloads: list[bytes] = []
        self.headers: list[Any] = []
        client = mock_registry(self.url)
        from confluent_kafka.schema_registry import Schema

        for number in range(count):
            more = [{"name": f"v{one}", "type": "long"} for one in range(number)]
            fields = [*SCHEMA["fields"][:2], *more]
            if number == 1:
                fields[0] = {"name": "n", "type": ["null", "double"]}
            schema = {**SCHEMA, "fields": fields}
            text = json.dumps(schema)
            schema_id = client.register_schema("t", Schema(text, "AVRO"))
            guid = client.register_schema_full_response("t", Schema(text, "AVRO")).guid
            values = {"n": number, "s": f"s{number}", **{one["name"]: number for one in more}}
            if number == 1:
                values["n"] = None
            body = avro(schema, values)
            self.payloads.append(b"\0" + schema_id.to_bytes(4, "big") + body)
            self.headers.append(None)
            if guid is not None:
                self.payloads += [by_guid(guid) + body, body, body]
                self.headers += [None, ((HEADER, by_guid(guid)),), ((HEADER, b"\0" + schema_id.to_bytes(4, "big")),)]


@cache
def _topic(count: int) -> _Topic:
    return _Topic(count)


@settings(max_examples=examples(30), deadline=None)
@given(st.data())
def test_records_of_several_schemas_are_read_the_same_however_these_are_named(data: st.DataObject) -> None:
    topic = _topic(data.draw(st.integers(1, 3)))
    odd = [b"", b"\0", b"\0\0\0\xff\xff\2", b"\1" * 20, b"{}", b"\0\0\0\0\1", 7, None]
    count = len(topic.payloads)
    places = data.draw(st.lists(st.integers(0, count + len(odd) - 1), min_size=1, max_size=14))
    payloads = [topic.payloads[one] if one < count else odd[one - count] for one in places]
    bare = data.draw(st.booleans())
    headers = [topic.headers[one] if one < count else None for one in places]
    if data.draw(st.integers(0, 4)) == 0:
        headers[0] = ((HEADER, b""),)
    wanted = data.draw(st.frozensets(st.sampled_from(["n", "s", "v0"])))
    setting: dict[str, Any] = {"registry": {"url": topic.url}}
    if data.draw(st.booleans()):
        setting["reader_schema"] = {
            **SCHEMA,
            "fields": [
                {"name": "v0", "type": ["null", "double"], "default": None},
                {"name": "s", "type": "string"},
                {"name": "n", "type": ["null", "double"]},
            ],
        }
    same(setting, block(payloads, None if bare else headers), wanted)


def test_more_schemas_than_are_read_together_are_read_all_the_same() -> None:
    topic = _topic(MOST_FRAMES + 5)
    order = list(range(len(topic.payloads))) * 2
    found = same(
        {"registry": {"url": topic.url}},
        block([topic.payloads[one] for one in order], [topic.headers[one] for one in order]),
        frozenset("n"),
    )
    assert not found.failed


def test_the_compiled_reader_leaves_no_good_record_to_fastavro(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither good records nor one bad one among them let fastavro read the others."""
    good = b"".join(PARTS)
    _, native = ways({"schema": SCHEMA})
    calls: list[bytes] = []
    real = native._read_one  # type: ignore[attr-defined]

    def counted(text: Any, *rest: Any) -> Any:
        calls.append(text.getvalue())
        return real(text, *rest)

    monkeypatch.setattr(native, "_read_one", counted)
    decoded = native.decode(block([good] * 20 + [good[:-1]]), frozenset(FIELDS))
    assert decoded.batch.size == 20
    assert calls == [good[:-1]]


_LONGS = st.integers(-(2**63), 2**63 - 1)
_TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", st.booleans()),
    "int": ("int", _INT),
    "long": ("long", _LONGS),
    "float": ("float", st.floats(width=32)),
    "double": ("double", st.floats() | st.integers(-5, 5)),
    "string": ("string", st.text(max_size=5)),
    "bytes": ("bytes", st.binary(max_size=5)),
    "date": ({"type": "int", "logicalType": "date"}, st.integers(-(10**14), 10**14)),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, st.integers(-(10**14), 10**14)),
    "time": ({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_399_999)),
    "day's micros": ({"type": "long", "logicalType": "time-micros"}, st.integers(0, 86_399_999)),
    "uuid": ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
    "times": ({"type": "array", "items": {"type": "int", "logicalType": "time-millis"}}, st.lists(st.integers(0, 9))),
    "floats": ({"type": "array", "items": "float"}, st.lists(st.floats(width=32), max_size=3)),
    "longs": ({"type": "array", "items": "long"}, st.lists(_LONGS, max_size=3)),
}
_STRANGE: list[Any] = [
    7, -1.5, 1e300, 2**40, True, "x", b"y", [1, 2.5], ["x"], [], Data({"k": 1}), -1, 86_400_000, [0, 86_400_000],
    "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-42661417400g", "x" * 36,
]  # fmt: skip


def _besides(number: int) -> list[list[Any]]:
    """Types that may stand beside another in a union."""
    return [
        ["null"],
        ["null", {"type": "map", "values": "int"}],
        [
            {"type": "fixed", "name": f"F{number}", "size": 3},
            {"type": "enum", "name": f"E{number}", "symbols": ["a", "x"]},
        ],
        [{"type": "record", "name": f"R{number}", "fields": [{"name": "k", "type": "long"}]}],
    ]


@st.composite
def _results(draw: st.DrawFn) -> tuple[Any, list[Data]]:
    """A flat schema, and rows for it, of which one may be strange."""
    fields: list[Any] = []
    values: dict[str, st.SearchStrategy[Any]] = {}
    for number, name in enumerate(draw(st.lists(st.sampled_from(list(_TYPES)), min_size=1, max_size=4))):
        kind, own = _TYPES[name]
        form = draw(st.sampled_from(["plain", "plain", "null first", "null last", "default"]))
        key = f"f{number}"
        if form == "plain" and draw(st.integers(0, 3)) == 0:
            # A union in which a value may have several places.
            others = draw(st.permutations([kind, *draw(st.sampled_from(_besides(number)))]))
            fields.append({"name": key, "type": others})
            values[key] = own
        elif form == "plain":
            fields.append({"name": key, "type": kind})
            values[key] = own
        elif form == "default" and name == "long":
            fields.append({"name": key, "type": kind, "default": 7})
            values[key] = own | st.none()
        else:
            fields.append({"name": key, "type": ["null", kind] if form == "null first" else [kind, "null"]})
            values[key] = draw(st.sampled_from([own, own | st.none(), st.none()]))
    rows = [{key: draw(one) for key, one in values.items()} for _ in range(draw(st.integers(1, 10)))]
    if draw(st.integers(0, 2)) == 0:
        row = draw(st.sampled_from(rows))
        row[draw(st.sampled_from([*values, "other"]))] = draw(st.sampled_from(_STRANGE))
    schema = {"type": "record", "name": "Out", "fields": fields}
    return schema, [Data({key: value for key, value in row.items() if value is not None}) for row in rows]


def written(codec: Codec, batch: Batch) -> tuple[list[Any], dict[int, str]]:
    """The payloads, and the errors."""
    encoded = codec.encode(batch)
    return list(encoded.values), {row: str(error) for row, error in encoded.failed.items()}


@settings(max_examples=examples(100), deadline=None)
@given(_results())
def test_both_ways_write_the_same(results: tuple[Any, list[Data]]) -> None:
    schema, rows = results
    plain, native = ways({"schema": schema})
    batch = Batch.of(rows)
    assert written(plain, batch) == written(native, batch)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_both_ways_write_what_they_have_read(data: st.DataObject) -> None:
    """Fields that no step has read, written by the schema that they came with and by another."""
    schema, values = data.draw(_schemas())
    payloads = [avro(schema, data.draw(values)) for _ in range(data.draw(st.integers(1, 5)))]
    outs = [{**one, "type": ["null", one["type"]]} if isinstance(one["type"], str) else one for one in schema["fields"]]
    wanted = data.draw(st.frozensets(st.sampled_from([one["name"] for one in outs])))
    records = block(payloads)
    for out in (schema, {**schema, "fields": outs}):
        try:
            sinks = ways({"schema": out})
        except DefinitionError:
            # A named type in a union with null is not there for those behind it.
            return
        found = []
        for source, sink in zip(ways({"schema": schema}), sinks, strict=True):
            batch = source.decode(records, wanted).batch
            twice = Batch.concat([batch, source.decode(records, wanted).batch])
            found.append(
                [written(sink, batch), written(sink, twice), written(sink, batch.take(np.arange(1, batch.size)))]
            )
        assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint8", "uint64", "bool"])
@pytest.mark.parametrize("kind", ["int", "long", "float", "double", "boolean"])
def test_arrays_of_every_dtype_are_written_as_in_python(kind: str, dtype: str) -> None:
    schema = {
        "type": "record",
        "name": "Out",
        "fields": [
            {"name": "one", "type": kind},
            {"name": "many", "type": {"type": "array", "items": kind}},
            {"name": "some", "type": ["null", {"type": "array", "items": kind}]},
        ],
    }
    plain, native = ways({"schema": schema})
    array: Any = np.array([[0, 1], [1, 0], [1, 1]], dtype)
    ragged = RaggedColumn(array.reshape(-1), np.array([0, 1, 1, 6]), np.array([True, False, True]))
    columns = {"one": DenseColumn(array[:, 0].copy(), ValueType.NDARRAY), "many": DenseColumn(array, ValueType.NDARRAY)}
    batch = Batch({**columns, "some": ragged}, 3)
    assert written(plain, batch) == written(native, batch)


def test_results_are_written_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {
        "type": "record",
        "name": "Out",
        "fields": [
            {"name": "y", "type": {"type": "array", "items": "float"}},
            {"name": "s", "type": ["null", "string"]},
            {"name": "n", "type": "int"},
            {"name": "more", "type": ["null", "double"], "default": None},
        ],
    }
    _, source = ways({"schema": SCHEMA})
    _, sink = ways({"schema": schema})
    decoded = source.decode(block([b"".join(PARTS)] * 3), frozenset()).batch
    decoded = Batch.concat([decoded.take(np.arange(2)), decoded.take(np.arange(2, 3))])
    assert isinstance(decoded.column("s"), WireColumn)
    batch = decoded.select({key: decoded.column(key) for key in ("s", "n")}).with_columns(
        {"y": DenseColumn(np.ones((3, 2), np.float32), ValueType.NDARRAY)}
    )
    sink.encode(batch)
    writer = sink._writer  # type: ignore[attr-defined]

    def refuse(*_: Any) -> None:
        raise AssertionError("fastavro was asked")

    monkeypatch.setattr(writer, "_write", refuse)
    values = sink.encode(batch).values
    assert values[2] == avro(schema, {"y": [1.0, 1.0], "s": "é", "n": 5, "more": None})
