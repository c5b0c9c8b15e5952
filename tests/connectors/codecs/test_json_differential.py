"""Made and mutilated records through both ways of the codec: equal rows, values, types, failures, and bytes out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.codec import Codec, Decoded
from connectors.codecs.registry import codec_of
from connectors.records import Lane, Records, Span
from examples import examples
from pipelines import Batch
from pipelines.data.columns import Column
from pipelines.data.spans import Spans
from pipelines.errors import RowsFailed
from pipelines.hotpath import choosing, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"there is one way only: {why_not()}")

SCRAPS = [
    "0", "-0", "7", "30.5", "1e2", "-1.5E-3", "9223372036854775807", "9223372036854775808", "1e400", "0.1", "5e-324",
    "9007199254740993", "9007199254740993.0", "123456789012345678901234567890.5", "true", "false", "null", '""', '"a"',
    '"é"', '"\\u00e9\\n"', '"\\ud83d\\ude00"', '"\\ud800"', '"' + "x" * 40 + '"', "[]", "[1, 2]", "[1, 2.5]", "[1.5]",
    "[3]", "[[1], [2]]", '["a"]', "[1, null]", "[true]", "[9007199254740993]", "[18446744073709551616, 0.5]", "{}",
    '{"k": 1}', '{"k": null, "coords": [1, 2]}', '{"k": [{"l": [1, {"m": "]}"}]}]}', "01", "1.", "+1", "NaN", "nul",
    "[1,]", '{"k"}', '"\x01"', '"\\x"', "[1 2]", "]", "", "-9223372036854775808", "-9223372036854775809", "-0.0",
    "18446744073709551615", "18446744073709551616", "-18446744073709551616", "1" * 400, "1" * 5000, "-1e400", "1e-400",
    "1.7976931348623158e308", "1.7976931348623159e308", "Infinity", "-Infinity", "-NaN", "-", "1e", "00", "-01", "1E+2",
    '"\\ud800\\u0041"', '"\\udc00"', '{"\\ud800": 1}', '"\x7f"', '"\\u0000"', '"\\/"', '"\t"', "tru", "1 2",
    "[" * 31 + "]" * 31, "[" * 40 + "]" * 40, "[" * 1100 + "]" * 1100, '{"k":' * 1100 + "1" + "}" * 1100,
    "\ufeff1", '"\u2028"', "nan", "-inf", "INFINITY", "[nan, 1]", '{"k": NaN}', '"nan"', "nanny", "-", "nan1",
]  # fmt: skip
KEYS = ['"a"', '"b"', '"a"', '"c"', '"é"', '"\\u0061"', '""', '"@type"', '"long key of many characters"', "b"]

spaces = st.sampled_from(["", "", " ", "\n", "\t "])
member = st.tuples(spaces, st.sampled_from(KEYS), spaces, spaces, st.sampled_from(SCRAPS), spaces).map(
    lambda parts: f"{parts[0]}{parts[1]}{parts[2]}:{parts[3]}{parts[4]}{parts[5]}"
)
record = st.lists(member, max_size=5).map(lambda members: "{" + ",".join(members) + "}")
usual = st.tuples(st.sampled_from(SCRAPS[:12]), st.sampled_from(SCRAPS[24:30]), st.sampled_from(SCRAPS[17:24])).map(
    lambda values: f'{{"a":{values[0]},"b":{values[1]},"c":{values[2]}}}'
)


@st.composite
def mutilated(draw: st.DrawFn) -> bytes:
    text = draw(st.one_of(record, usual)).encode()
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(text)))
        what = draw(
            st.sampled_from([b"", b'"', b"}", b",", b"\\", b"\x00", b"\xff", b"1", b"e", b" ", b"\xef\xbb\xbf", b"{"])
        )
        text = text[:at] + what + text[at + draw(st.integers(0, 2)) :]
    return text


def decoded(codec: Codec, payloads: Sequence[Any], wanted: frozenset[str], *, spans: bool) -> Decoded:
    values: Any = Spans.of(list(payloads)) if spans else list(payloads)
    rows = np.arange(len(payloads), dtype=np.int64)
    lanes = [Span(Lane("bus", "0", 0), 0, len(payloads))]
    return codec.decode(Records("bus", values, None, rows, lanes, ["topic"], [0], 0), wanted, 3)


def shown(column: Column) -> list[str] | str:
    """Values with their types, and the array where there is one."""
    try:
        values = [f"{type(value).__name__} {value!r}" for value in column.values()]
    except RowsFailed as error:
        return f"rows {sorted(error.failures)} fail"
    return values


def array(column: Column) -> str:
    try:
        found = column.array
    except Exception as error:  # noqa: BLE001 - which error it is is compared
        return type(error).__name__
    return f"{found.dtype} {found.tolist()}"


def same(payloads: Sequence[Any], wanted: frozenset[str], *, spans: bool = False, **options: Any) -> None:
    plain, native = (choosing(way)(codec_of)({"type": "json", **options}) for way in ("python", "native"))
    a, b = (decoded(codec, payloads, wanted, spans=spans) for codec in (plain, native))
    assert {row: str(error) for row, error in a.failed.items()} == {row: str(error) for row, error in b.failed.items()}
    assert a.batch.rows.tolist() == b.batch.rows.tolist()
    assert set(a.batch.keys()) == set(b.batch.keys())
    missing = {"fields", "read_nan", "at", "types"} & options.keys()
    nulls = missing or any(b"null" in bytes(payload or b"") for payload in payloads)
    if not a.failed and not nulls:
        # A key that is null in one record and has a value in another, which is left to Python, comes by the latter.
        assert a.batch.keys() == b.batch.keys()
    # As they came, before any value was read.
    texts = [list(codec.encode(batch).values) for codec, batch in ((plain, a.batch), (native, _like(b.batch, a.batch)))]
    assert texts[0] == texts[1]
    for key in a.batch.columns:
        one, other = a.batch[key] if key in wanted else a.batch.column(key), b.batch.column(key)
        assert shown(one) == shown(other), key
        if key in wanted:
            assert array(one) == array(other), key
    # And made of values, which may fail.
    made = [_rows(codec, batch) for codec, batch in ((plain, a.batch), (native, _like(b.batch, a.batch)))]
    assert made[0] == made[1]


def _like(batch: Batch, other: Batch) -> Batch:
    return batch.select({key: batch.column(key) for key in other.columns})


def _rows(codec: Codec, batch: Batch) -> tuple[list[Any], list[int]]:
    failed: dict[int, Exception] = {}
    values = batch.row_values(failed)
    columns = {key: Column.of([row[key] for row in values if key in row]) for key in batch.columns}
    made = [
        codec.encode(Batch({key: column}, len(column))) for key, column in columns.items() if not key.startswith("@")
    ]
    return [list(one.values) for one in made], sorted(failed)


payloads = st.lists(st.one_of(mutilated(), mutilated(), st.none()), max_size=10)
wanted = st.frozensets(st.sampled_from(["a", "b", "c", "é", "", "zzz"]))


@settings(max_examples=examples(60), deadline=None)
@given(payloads=payloads, wanted=wanted, spans=st.booleans())
def test_both_ways_read_and_write_the_same(payloads: list[bytes | None], wanted: frozenset[str], spans: bool) -> None:
    same(payloads, wanted, spans=spans)


@pytest.mark.slow
@pytest.mark.parametrize("scrap", SCRAPS)
@pytest.mark.parametrize("wanted", [frozenset({"a"}), frozenset()])
def test_a_value_of_each_kind_among_usual_records(scrap: str, wanted: frozenset[str]) -> None:
    records = [f'{{"a": {value}, "b": "x", "c": 1.10}}'.encode() for value in ("1.5", "2.5", scrap, "3.5")]
    same(records, wanted)
    same([*records, None, b"\xef\xbb\xbf" + records[2], records[2].replace(b'"c"', b'"a"')], wanted, spans=True)


def test_of_several_wrong_values_the_first_by_name_is_told_whatever_keys_other_records_have() -> None:
    wrong, good = b'{"b": -9223372036854775809, "a": 0, "a": -9223372036854775809}', [b'{"a": 0}', b'{"b": 0, "a": 0}']
    plain = b'{"b": -9223372036854775809, "a": -9223372036854775809}'
    codec, wanted = choosing("python")(codec_of)({"type": "json"}), frozenset({"a", "b"})
    for payloads in (
        [wrong],
        [*good, wrong],
        [wrong, *good],
        [*good[::-1], wrong],
        [plain],
        [good[1], plain],
        [plain, good[1]],
    ):
        same(payloads, wanted)
        (error,) = decoded(codec, payloads, wanted, spans=False).failed.values()
        assert str(error).startswith('key "a" cannot be read')


@pytest.mark.parametrize("wanted", [frozenset(), frozenset({"a"}), frozenset({"a", "x"})])
def test_keys_stand_in_the_order_in_which_records_name_them_also_where_their_value_is_null(
    wanted: frozenset[str],
) -> None:
    records = [b'{"x": null, "z": 1}'] * 9 + [b'{"a": {"k": 1}, "b": [1, 2], "x": 1}']
    for payloads in (records, records[-2:]):
        same(payloads, wanted)
        same(payloads, wanted, fields={"a": "/b/0", "none": "/a/k", "whole": ""})
    codec = codec_of("json")
    batch = decoded(codec, records[-2:], wanted, spans=False).batch
    assert batch.keys() == ["x", "z", "a", "b"]


@settings(max_examples=examples(25), deadline=None)
@given(payloads=payloads, wanted=wanted, each=st.booleans())
def test_both_ways_agree_on_numbers_that_are_missing(
    payloads: list[bytes | None], wanted: frozenset[str], each: bool
) -> None:
    same(payloads, wanted, read_nan="missing", each=each)
    same(payloads, wanted, read_nan="missing", fields={"b": "/a", "zzz": "/c/k"})


@settings(max_examples=examples(25), deadline=None)
@given(payloads=payloads, wanted=wanted)
def test_both_ways_agree_with_fields_and_limits(payloads: list[bytes | None], wanted: frozenset[str]) -> None:
    fields = {"a": "/b/0", "zzz": "/a/k", "whole": "", "deep": "/c/k/0/l/1/m"}
    same(payloads, wanted, fields=fields, max_depth=4, max_keys=3, max_elements=6, max_bytes=80)


@settings(max_examples=examples(25), deadline=None)
@given(
    parts=st.lists(st.lists(mutilated(), max_size=3), max_size=5),
    wanted=wanted,
    form=st.sampled_from([b"[%s]", b"%s", b" [ %s ] \n"]),
)
def test_both_ways_agree_on_several_records_in_a_payload(
    parts: list[list[bytes]], wanted: frozenset[str], form: bytes
) -> None:
    between = b"\n" if form == b"%s" else b", "
    same([form % between.join(own) for own in parts], wanted, each=True)
    same([form % between.join(own) for own in parts], wanted, each=True, max_elements=1)


ENVELOPES = [
    b'{"s": 1, "p": {"a": %s, "op": "c"}}', b'{"p":{"b":null,"a":%s},"s":[1,{"k":2}]}', b'{"p": {"a": %s, "s": 1}}',
    b' { "p" : [7, %s] , "s" : "x" } ', b'{"p":{"a":1,"a":%s},"s":1,"s":2}', b'{"p":{"a":%s,"a":{}}}', b"%s",
    b'{"p":%s}', b'{"p":{"a":%s},"s":NaN}', b'{"\\u0070":{"a":%s}}', b'[{"p":{"a":%s}}]', b'{"p":{"a":%s}} 1',
    b'{"s":{"s":{"s":"y"}},"p":{"a":%s}}\x00', b'\xef\xbb\xbf{"p":{"a":%s}}', b'{"s":01,"p":{"a":%s}}', b'{"p":{}%s}',
    b'{"s":' + b"[" * 70 + b"]" * 70 + b',"p":{"a":%s}}', b'{"p":{"a":%s,"\xff":1}}',
    b'{"s":"' + b"x" * 90 + b'","p":{"a":%s}}',
]  # fmt: skip
OUTER = [
    {},
    {"op": "/p/op", "a": "/s"},
    {"b": "/s/1/k", "whole": "", "p": "/p", "in": "/p/a/a", "zzz": "/p/a/0/b", "deep": "/s/s/s"},
]
inside = st.one_of(record, usual, mutilated().map(lambda text: text.decode(errors="replace")), st.just("null"))
at_place = st.one_of(
    st.tuples(st.sampled_from(ENVELOPES), inside),
    st.tuples(
        st.sampled_from(ENVELOPES),
        st.lists(inside, max_size=4).map(lambda records: "[" + ", ".join(records) + "]"),
    ),
).map(lambda parts: parts[0].replace(b"%s", parts[1].encode()))


@settings(max_examples=examples(60), deadline=None)
@given(
    payloads=st.lists(st.one_of(at_place, at_place, at_place, st.none()), max_size=8),
    wanted=st.frozensets(st.sampled_from(["a", "b", "op", "whole", "in", "zzz"])),
    at=st.sampled_from(["/p/a", "/p/a", "/p/a", "/p/1", "/p", "/p/a/0"]),
    outer=st.sampled_from(OUTER),
    each=st.booleans(),
    spans=st.booleans(),
    more=st.sampled_from(
        [
            {},
            {},
            {"read_nan": "missing"},
            {"fields": {"c": "/b/0"}},
            {"max_bytes": 90, "max_keys": 4},
            {"types": {"op": "text", "b": "number", "whole": "integer"}},
        ]
    ),
)
def test_both_ways_agree_on_records_inside_of_payloads(
    payloads: list[bytes | None],
    wanted: frozenset[str],
    at: str,
    outer: dict[str, str],
    each: bool,
    spans: bool,
    more: dict[str, Any],
) -> None:
    same(payloads, wanted, spans=spans, at=at, outer=outer, each=each, **more)


TYPED = [
    '"23.5"', '" 7 "', '"-1e3"', '"+.5"', '"NaN"', '"nan "', '"-inf"', '"Infinity"', '"on"', '"21,5"', '"0x1F"', '""',
    '"1_000"', '"1e400"', '"-0"', '"007"', '"9007199254740993"', '"9223372036854775807"', '"9223372036854775808"',
    '"true"', '"FALSE"', '"1"', '"0"', '"aGk="', '"aGk"', '"1\\n"', '"\\u0031"', '"\\ud800"', '"٣"', '"1\\u0000"',
    "1.10", "7", "-0", "1E5", "true", "null", "[1]", "[]", '{"base64": "aGk="}',
    '"data:image/gif;base64,R0lGODlhAQABAAAAACw="',
]  # fmt: skip


@settings(max_examples=examples(100), deadline=None)
@given(
    rows=st.lists(
        st.one_of(st.sampled_from(TYPED), st.sampled_from(TYPED[:4]), st.sampled_from(SCRAPS)), min_size=1, max_size=10
    ),
    kind=st.sampled_from(["number", "integer", "boolean", "text", "bytes", "image"]),
    wanted=st.booleans(),
    spans=st.booleans(),
    inside=st.booleans(),
)
def test_both_ways_make_the_same_of_values_whose_type_is_stated(
    rows: list[str], kind: str, wanted: bool, spans: bool, inside: bool
) -> None:
    records = [f'{{"k": {value}, "in": {{"k": {value}}}, "n": 1.10}}'.encode() for value in rows]
    fields = {"fields": {"f": "/in/k"}} if inside else {}
    keys = frozenset({"k", "f"} if wanted else {"n"})
    same(records, keys, spans=spans, types={"k": kind, "f": kind}, **fields)


def test_the_comparison_of_both_ways_finds_differences() -> None:
    """The comparison itself finds differences."""
    with pytest.raises(AssertionError):
        assert shown(Column.of([1])) == shown(Column.of([1.0]))


@pytest.mark.filterwarnings("error")
def test_texts_and_numbers_of_numpy_s_types_are_written_as_python_s() -> None:
    for way in ("python", "native"):
        columns = {"s": Column.of([np.str_("a")]), "h": Column.of([np.array([1.5, 6e4, 1e-5], np.float16)])}
        assert list(choosing(way)(codec_of)("json").encode(Batch(columns, 1)).values) == [
            b'{"s":"a","h":[1.5,60000.0,1e-05]}'
        ]


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.floats(width=64), min_size=1), st.lists(st.floats(width=32), min_size=1), st.lists(st.text()))
def test_numbers_and_texts_are_written_alike(doubles: list[float], singles: list[float], texts: list[str]) -> None:
    columns = {
        "d": Column.of([np.array(doubles)]),
        "f": Column.of([np.array(singles, np.float32)]),
        "i": Column.of([np.array([2**64 - 1, 0], np.uint64)]),
        "t": Column.of([texts]),
        "s": Column.of(["".join(texts)]),
    }
    found = [list(choosing(way)(codec_of)("json").encode(Batch(columns, 1)).values) for way in ("python", "native")]
    assert found[0] == found[1]
    read = json.loads(found[1][0] or b"null")
    if np.isfinite(doubles).all():
        assert read["d"] == doubles
    if np.isfinite(singles).all():
        assert (np.array(read["f"], np.float32) == np.array(singles, np.float32)).all()
