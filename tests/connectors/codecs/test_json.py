"""Plain JSON: decoded values, values that no step reads, written payloads, and records that fail alone."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.codec import Decoded
from connectors.codecs.registry import codec_of
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.message import Message, records_of
from connectors.records import Lane, Records, Span
from examples import examples
from pipelines import Batch, BoundingBox, Data, Image
from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.spans import Spans
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DefinitionError, RowsFailed, ValueNotFoundError
from pipelines.hotpath import HotPath
from pipelines.values import ValueType
from streamer import testing
from streamer.definition.service import Service

ALL = frozenset({"a", "b", "c"})
pytestmark = pytest.mark.usefixtures("hot_path")


def decoded(
    payloads: Sequence[Any], wanted: Sequence[str] | None = None, first: int = 0, *, spans: bool = False, **options: Any
) -> Decoded:
    codec = codec_of({"type": "json", **options})
    values: Any = Spans.of(list(payloads)) if spans else list(payloads)
    count = len(payloads)
    records = Records(
        "bus",
        values,
        None,
        np.arange(count, dtype=np.int64),
        [Span(Lane("bus", "0", 0), 0, count)],
        ["topic"],
        [0],
        sum(len(one) for one in payloads if isinstance(one, bytes)),
    )
    return codec.decode(records, None if wanted is None else frozenset(wanted), first)


def rows(payloads: Sequence[Any], wanted: Sequence[str] | None = None, **options: Any) -> list[Data]:
    found = decoded(payloads, wanted, **options)
    assert not found.failed
    return found.batch.to_list()


def written(batch: Batch, **options: Any) -> list[str]:
    encoded = codec_of({"type": "json", **options}).encode(batch)
    assert not encoded.failed
    return [(value or b"").decode() for value in encoded.values]


@pytest.mark.parametrize("wanted", [None, ["v"]])
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("30", 30),
        ("-0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("30.0", 30.0),
        ("-0.0", -0.0),
        ("1e2", 100.0),
        ("1E-2", 0.01),
        ("5e-324", 5e-324),
        ("0.1", 0.1),
        ("123456789012345678901234567890.5", 123456789012345678901234567890.5),
        ("true", True),
        ('"a\\u00e9\\ud83d\\ude00\\n\\/"', "aé😀\n/"),
        ('"é"', "é"),
        ('""', ""),
        ("[]", []),
        ("[1, 2.5]", [1.0, 2.5]),
        ("[[1, 2], [3]]", [[1, 2], [3]]),
        ('["a", "b"]', ["a", "b"]),
        ('{"@type": "x", "coords": [1, 2], "n": null}', Data.trusted({"@type": "x", "coords": [1, 2]})),
        ("{}", Data()),
    ],
)
def test_a_json_value_has_its_type_also_among_values_of_other_types(
    text: str, value: Any, wanted: list[str] | None
) -> None:
    """Alone, and among others of its kind and of other kinds."""
    payload = f' {{ "v" : {text} , "z":1 }} '.encode()
    for others in ([], [b'{"v": 1}'], [b'{"v": 2.5}', b'{"v": "t"}', b'{"z": 3}'] * 5):
        found = rows([*others, payload, *others], wanted)[len(others)]
        assert found == Data({"v": value, "z": 1})
        assert type(found["v"]) is type(value)
        if isinstance(value, float):
            assert math.copysign(1, found["v"]) == math.copysign(1, value)


def test_null_is_an_absent_key() -> None:
    for wanted in (None, ["a", "b"]):
        found = decoded([b'{"a": null, "b": 1}', b'{"a": 2, "b": null}'], wanted).batch
        assert found.to_list() == [Data({"b": 1}), Data({"a": 2})]
        assert written(found) == ['{"b":1}', '{"a":2}']
        assert decoded([b'{"a": null}'] * 3, wanted).batch.keys() == []


@pytest.mark.parametrize(
    "texts",
    [
        ["1", "-0", "7"],
        ["1", "0", "7"],
        ["1", "9223372036854775808", "-9223372036854775809"],
        ['"a"', '"\\u00e9"', '"null"'],
        ['"a"', '"%s %d%"', '"é"'],
        ["true", "false", "true"],
        ["1.10", "1e2", "2"],
        ["1", '"1"', "true"],
    ],
)
def test_texts_that_nobody_asks_for_go_out_as_they_came_whatever_their_neighbours_are(texts: list[str]) -> None:
    for key in ("a", "100%", "%s"):
        payloads = [f'{{"{key}":{text},"b":{number}}}' for number, text in enumerate(texts)]
        batch = decoded([payload.encode() for payload in payloads], []).batch
        assert written(batch) == payloads
        assert written(batch.take(np.array([2, 0]))) == [payloads[2], payloads[0]]


def test_rows_with_the_same_keys_in_another_order_are_read_by_key() -> None:
    found = rows([b'{"a":1,"b":"x"}', b'{"b":"y","a":2}', b'{"a":3,"b":"null"}'] * 4, ["a"])
    assert found[:3] == [Data({"a": 1, "b": "x"}), Data({"a": 2, "b": "y"}), Data({"a": 3, "b": "null"})]


@pytest.mark.parametrize("bad", ["[[1],[2]]", "[1,null]", '"x"', "1180591620717411303424"])
@pytest.mark.parametrize("why", ['"\\ud800"', "[1,null]", "1180591620717411303424"])
def test_a_record_that_fails_leaves_no_trace_in_the_columns_of_its_neighbours(bad: str, why: str) -> None:
    good = b'{"a":[1,2],"b":"t"}'
    found = decoded([good, f'{{"a":{bad},"b":{why},"c":1}}'.encode(), good], ["a", "b"])
    assert list(found.failed) == [1]
    assert found.batch.rows.tolist() == [0, 2]
    assert found.batch["a"].array.tolist() == [[1, 2], [1, 2]]
    assert found.batch.keys() == ["a", "b"]


def test_a_missing_number_is_never_made_up() -> None:
    """Neither for its row nor for the column."""
    batch = decoded([b'{"t": 1.5}', b'{"u": 1.0}', b'{"t": 3}'], ["t"]).batch
    with pytest.raises(RowsFailed) as raised:
        _ = batch["t"].array
    assert list(raised.value.failures) == [1]
    assert isinstance(raised.value.failures[1], ValueNotFoundError)
    assert batch["t"].filled(math.nan)[[0, 2]].tolist() == [1.5, 3.0]


def test_an_integer_among_floats_is_a_number_of_a_float_column() -> None:
    """And still the integer that it was, for its own row."""
    batch = decoded([b'{"t": 30.5}', b'{"t": 30}', b'{"t": 21}'] * 20, ["t"]).batch
    assert batch["t"].array.dtype == np.float64
    assert batch["t"].array[:3].tolist() == [30.5, 30.0, 21.0]
    assert batch.row(1).get_int64("t") == 30
    assert batch.row(1).get_double("t") == 30.0
    assert written(batch)[:3] == ['{"t":30.5}', '{"t":30}', '{"t":21}']


def test_a_list_of_numbers_is_an_array_or_a_list_as_it_is_asked_for() -> None:
    batch = decoded([b'{"x": [1.5, 2]}', b'{"x": [3, 4]}'], ["x"]).batch
    assert batch["x"].array.tolist() == [[1.5, 2.0], [3.0, 4.0]]
    assert batch.row(1).get_list("x", ValueType.INT64) == [3, 4]
    assert batch.row(0).get_list("x", ValueType.DOUBLE) == [1.5, 2.0]
    assert batch.row(0).get_ndarray("x").dtype == np.float32
    unequal = decoded([b'{"x": [1, 2]}', b'{"x": []}', b'{"y": 0}', b'{"x": [3]}'], ["x"]).batch
    assert [row.get("x") for row in unequal.to_list()] == [[1, 2], [], None, [3]]


def test_a_byte_order_mark_is_skipped_and_the_last_of_equal_keys_wins() -> None:
    assert rows([b'\xef\xbb\xbf{"a": 1, "a": 2}'], ["a"]) == [Data({"a": 2})]
    found = decoded([b'{"a": 1, "b": 0, "a": [2,  3]}']).batch
    assert written(found) == ['{"a":[2,  3],"b":0}']
    assert rows([b'{"a": 1, "a": null}'], ["a"]) == [Data()]


NO_VALUES = [
    "[1, null]",
    '[1, "a"]',
    "[1, true]",
    str(2**70),
    "-" + "9" * 5000,
    "1e400",
    "-1e400",
    "[1e400]",
    f"[{2**63}]",
    '{"inner": [null]}',
    '{"inner": 1e999}',
    '"\\ud800"',
    '{"\\ud800": 1}',
]


@pytest.mark.parametrize("odd", NO_VALUES)
def test_a_json_value_that_data_cannot_hold_fails_its_record_only_if_a_step_asks_for_it(odd: str) -> None:
    payloads = [b'{"v": 1, "n": 1}', f'{{"v": {odd}, "n": 2}}'.encode(), b'{"v": 3, "n": 3}'] * 3
    for spans in (False, True):
        asked = decoded(payloads, ["v"], 10, spans=spans)
        assert sorted(asked.failed) == [11, 14, 17]
        assert 'key "v' in str(asked.failed[11])
        assert asked.batch.to_list() == [Data({"v": 1, "n": 1}), Data({"v": 3, "n": 3})] * 3
        passed = decoded(payloads, ["n"], spans=spans)
        assert not passed.failed
        assert written(passed.batch)[1] == f'{{"v":{odd},"n":2}}'
        assert passed.batch["n"].array.tolist() == [1, 2, 3] * 3
        with pytest.raises(RowsFailed) as raised:
            passed.batch["v"].values()
        assert sorted(raised.value.failures) == [1, 4, 7]


def test_values_that_no_step_reads_go_out_as_the_bytes_that_came_in() -> None:
    inner, large = '{"x" : [1,\t2.50,null], "x": 1e2}', "1" + "0" * 20
    record = f'{{"a": 1.10, "b": {inner}, "s": "\\u0041é", "@type": "Sensor", "c": {large}}}'
    for wanted in (None, ["a"], ["zzz"]):
        batch = decoded([record.encode()] * 3, wanted).batch
        expected = f'{{"a":1.10,"b":{inner},"s":"\\u0041é","@type":"Sensor","c":{large}}}'
        if wanted == ["a"]:
            expected = expected.replace("1.10", "1.1")
        assert written(batch) == [expected] * 3
        assert written(batch.take([2, 0])) == [expected] * 2
        assert written(batch.part(1, 2)) == [expected]
        assert written(Batch.concat([batch, batch.numbered(range(3, 6), None)])) == [expected] * 6


def test_a_key_that_no_data_can_have_passes_through_and_is_not_shown() -> None:
    batch = decoded([b'{"@type": "x", "a": 1}', b'{"a": 2}']).batch
    assert batch.to_list() == [Data({"a": 1}), Data({"a": 2})]
    assert written(batch) == ['{"@type":"x","a":1}', '{"a":2}']
    for codec in ("protodata", "konduit-json"):
        encoded = codec_of(codec).encode(batch)
        assert list(encoded.failed) == [0]
        assert "drop: [@type]" in str(encoded.failed[0])
        assert encoded.values[0] is None
        assert encoded.values[1] is not None


NO_JSON = [
    b"",
    b"  ",
    b"7",
    b"null",
    b'"a"',
    b"[1]",
    b"{",
    b'{"a"}',
    b'{"a": }',
    b'{"a": 1,}',
    b'{"a": 01}',
    b'{"a": 1.}',
    b'{"a": .5}',
    b'{"a": +1}',
    b'{"a": 1e}',
    b'{"a": NaN}',
    b'{"a": -Infinity}',
    b'{"a": tru}',
    b'{"a": "\x01"}',
    b'{"a": "\\x"}',
    b'{"a": "\\u12g4"}',
    b'{"a": "\xff"}',
    b'{"a": "\xed\xa0\x80"}',
    b'{"\xff": 1}',
    b'{"a": [1, 2}',
    b'{"a": {"b": }}',
    b'{"a": 1} x',
    b'{"a": 1}{"a": 1}',
    b"{'a': 1}",
    b'{"a": 1 /* c */}',
    b'{"a": "x}',
    b"{1: 2}",
    b'{"\\ud800": 1}',
    b"[" * 100000,
    b'{"a":' * 100000,
    "text",
    7,
]


@pytest.mark.parametrize("wanted", [None, ["a"], ["b"]])
def test_a_payload_that_is_no_json_object_fails_alone(wanted: list[str] | None) -> None:
    for bad in NO_JSON:
        found = decoded([b'{"b": 1}', bad, None, b'{"b": 2}'], wanted, 5)
        assert list(found.failed) == [6], bad
        assert found.batch.rows.tolist() == [5, 8]
        assert found.batch.to_list() == [Data({"b": 1}), Data({"b": 2})]


def test_a_bare_number_is_told_with_the_codec_that_reads_it() -> None:
    payloads = [b"23.5", b'{"temp": 21}', b" 7\n", b"true", b"[1]"]
    found = decoded(payloads, ["temp"])
    assert [
        row for row, error in found.failed.items() if "a bare number is read by codec: {type: csv" in str(error)
    ] == [0, 2]
    assert "each: true" in str(found.failed[4])
    named = codec_of({"type": "csv", "names": ["temp"], "types": {"temp": "number"}})
    read = named.decode(records_of([Message(payloads[0]), Message(payloads[2])], "bus"), None)
    assert [data["temp"] for data in read.batch.to_list()] == [23.5, 7.0]


@pytest.mark.parametrize("codec", ["json", {"type": "json", "each": True}, "konduit-json"])
def test_a_record_that_its_producer_encoded_twice_says_so_and_another_text_does_not(
    codec: str | dict[str, Any],
) -> None:
    payloads = [json.dumps(json.dumps({"a": 1})).encode(), b'{"a": 1}', b'"a text"']
    found = codec_of(codec).decode(records_of([Message(payload) for payload in payloads], "bus"), None)
    assert found.batch.to_list() == [Data({"a": 1})]
    assert "the text is JSON itself: the producer encodes twice" in str(found.failed[0])
    assert "twice" not in str(found.failed[2])


@pytest.mark.parametrize(
    ("options", "good", "bad"),
    [
        ({"max_bytes": 20}, b'{"a": "0123456789"}', b'{"a": "01234567890000"}'),
        ({"max_depth": 2}, b'{"a": [[1], "[[[["]}', b'{"a": [[[1]]]}'),
        ({"max_depth": 2}, b'{"a": {"b": {}}}', b'{"a": {"b": {"c": {}}}}'),
        ({"max_keys": 2}, b'{"a": {"b:": 1, "c": ":"}, "d": 1}', b'{"a": 1, "b": 1, "c": 1}'),
        ({"max_keys": 2}, b'{"a": 1, "a": ":{"}', b'{"a": 1, "a": 1, "a": 1}'),
        ({"max_keys": 2}, b'{"a": {"b": 1, "c": 2}}', b'{"a": {"b": 1, "c": 2, "d": 3}}'),
        ({"max_keys": 1}, b'{"a": [{"b": 1}]}', b'{"a": [' + b",".join([b'{"b": 1}'] * 6) + b"]}"),
        ({"max_elements": 5}, b'{"a": [1, ",,,,,,,"]}', b'{"a": [1, 2, 3, 4, 5, 6]}'),
    ],
)
def test_limits_belong_to_a_record(options: dict[str, Any], good: bytes, bad: bytes) -> None:
    for wanted in (None, ["d"]):
        found = decoded([good, bad, good], wanted, **options)
        assert list(found.failed) == [1]
        assert next(iter(options)) in str(found.failed[1])
        assert found.batch.rows.tolist() == [0, 2]


@pytest.mark.parametrize("codec", ["json", {"type": "json", "each": True}, "konduit-json"])
def test_a_large_text_of_escapes_without_an_end_is_refused_at_once(codec: str | dict[str, Any]) -> None:
    """Tried from each of its quotes it would take hours."""
    payload = b'{"' + b'\\"' * 1_000_000 + b":" * 20_000
    found = codec_of(codec).decode(records_of([Message(payload)], "bus"), None)
    assert list(found.failed) == [0]


def test_fields_reach_inside() -> None:
    fields = {"temp": "/readings/0/temp", "odd": "/a~1b/~01", "all": "/readings", "deep": "/x/y", "kind": "/@type"}
    payload = json.dumps({"readings": [{"temp": 21.5}], "a/b": {"~1": 7}, "temp": "other", "@type": "s"}).encode()
    for wanted in (None, ["temp", "odd", "deep"], ["kind"]):
        batch = decoded(
            [payload, b'{"readings": [], "x": {"y": null}}', b'{"readings": {"0": {"temp": 3}}}'], wanted, fields=fields
        ).batch
        first, second, third = batch.to_list()
        assert (first["temp"], first["odd"], first["kind"]) == (21.5, 7, "s")
        assert first["all"] == [Data({"temp": 21.5})]
        assert set(second) == {"readings", "x", "all"}
        assert third["temp"] == 3
        assert json.loads(written(batch.select({"temp": batch.column("temp")}))[0]) == {"temp": 21.5}
        assert '"kind":"s"' in written(batch)[0]


def test_a_number_at_the_end_of_a_pointer_counts_elements_and_nothing_else() -> None:
    for pointer, found in {
        "/l/1": 20,
        "/l/01": None,
        "/l/-": None,
        "/l/2": None,
        "/l/1/0": None,
        "/l/+1": None,
        "/o/": 5,
    }.items():
        (row,) = rows([b'{"l": [10, 20], "o": {"": 5}}'], ["v"], fields={"v": pointer})
        assert row.get("v") == found


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b'[{"n": 0}, {"n": 1, "x": [1, null]}, {"n": 2}]', 3),
        (b'{"n": 0}\n{"n": 1}\n\n{"n":\n2}\n', 3),
        (b'\xef\xbb\xbf{"n": 0}', 1),
        (b" [ ] ", 0),
        (b"", 0),
        (b"\n", 0),
    ],
)
def test_each_element_or_line_is_a_row(payload: bytes, count: int) -> None:
    found = decoded([b'[{"n": 7}]', payload, None, b'[{"n": 8}, {"n": 9}]'], ["n"], 100, each=True)
    assert not found.failed
    assert found.batch.rows.tolist() == [100, *[101] * count, 103, 103]
    assert found.batch["n"].array.tolist() == [7, *range(count), 8, 9]


@pytest.mark.parametrize(
    "bad",
    [
        b'[{"n": 0}, 7]',
        b'[{"n": 0}, {"n": [1, null]}]',
        b'[{"n": 0}',
        b'[{"n": 0}] 1',
        b'[{"n": 0},]',
        b'{"n": 0} {"n": 1}',
        b'{"n": 0}\n{"n": }',
        b'{"n": 0}\n[]',
        b"[" * 5000,
    ],
)
def test_if_one_of_a_records_rows_fails_all_of_them_do(bad: bytes) -> None:
    found = decoded([b'[{"n": 1}]', bad, b'[{"n": 2}, {"n": 3}]'], ["n"], each=True)
    assert list(found.failed) == [1]
    assert found.batch.rows.tolist() == [0, 2, 2]
    assert found.batch["n"].array.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("each", "payload", "why"),
    [
        (False, b"", "it is empty"),
        (False, b" \n", "it is empty"),
        (False, b'{"n": 0}\n{"n": 1}\n', "at character 9; each: true in the codec makes a row of every line"),
        (False, b'{"n": 0} x', "more follows its value at character 9"),
        (True, b'[{"n": 0}] 1', "more follows its array at character 10"),
        (True, b'{"n": 0} {"n": 1}', "a second value in one line, at character 9"),
    ],
)
def test_a_payload_that_holds_nothing_or_more_than_a_record_says_so(each: bool, payload: bytes, why: str) -> None:
    found = decoded([b'{"n": 1}', payload], ["n"], each=each)
    assert str(found.failed[1]).endswith(why)


def test_a_record_of_many_rows_is_acknowledged_once_all_of_them_are_done(hot_path: HotPath) -> None:
    """Also one without rows; a tombstone is not one."""
    service = Service(
        name="each",
        source=MemorySourceConfig(topic="in", codec={"type": "json", "each": True}),
        pipeline={"steps": [{"@type": "FUNCTION", "function": f"{__name__}:doubled"}]},
        keep=["id"],
        sink=MemorySinkConfig(topic="out", codec="json"),
        dead_letter=MemorySinkConfig(topic="dead"),
    )
    payloads = [
        b'[{"id": 1, "n": 1}, {"id": 2, "n": 2}]',
        b"[]",
        b'[{"id": 3, "n": 3}, {"id": 4, "n": "x"}]',
        b'{"id": 5, "n": 5}',
    ]
    report = testing.run(service, payloads)
    assert [(row["id"], row["n"]) for row in report.results if row is not None] == [(1, 2), (2, 4), (5, 10)]
    assert [letter.message.value for letter in report.dead] == [payloads[2]]
    assert report.acknowledged == 4


def doubled(data: Data) -> Data:
    return Data({"n": data.get_int64("n") * 2})


def test_values_are_written_as_everybody_reads_them() -> None:
    data = Data(
        {
            "i": 7,
            "d": 1e16,
            "f": np.array([0.1, 1 / 3, 1e-7], np.float32),
            "x": np.array([[1, 2], [3, 4]]),
            "flags": np.array([True, False]),
            "zero": np.array(2.5),
            "s": 'é"\\\n\x00\x7f',
            "b": True,
            "raw": b"\x00\xff",
            "l": [1.5, 2.0],
            "inner": {"k": [{"deep": "v"}]},
            "box": BoundingBox.corners(1, 2, 3, 4, "a", 0.5),
        }
    )
    assert (
        written(Batch.of([data, data]))
        == [
            '{"i":7,"d":1e+16,"f":[0.1,0.33333334,1e-07],"x":[[1,2],[3,4]],"flags":[true,false],"zero":2.5,'
            '"s":"é\\"\\\\\\n\\u0000\x7f","b":true,"raw":"AP8=","l":[1.5,2.0],"inner":{"k":[{"deep":"v"}]},'
            '"box":{"x1":1.0,"x2":2.0,"y1":3.0,"y2":4.0,"label":"a","probability":0.5}}'
        ]
        * 2
    )
    (image,) = written(Batch.of([Data({"i": Image(np.zeros((2, 2, 3), np.uint8))})]))
    assert json.loads(image)["i"]["format"] == "png"


def test_a_text_that_a_row_lacks_is_not_written_nor_is_what_a_column_held_besides() -> None:
    texts = Column.of(["a", MISSING, "", '\u00e9"'])
    mixed = Column.of([1.5, "gone", 2, MISSING]).take(np.array([0, 3, 2, 0]))
    assert written(Batch({"t": texts, "m": mixed}, 4)) == [
        '{"t":"a","m":1.5}',
        "{}",
        '{"t":"","m":2}',
        '{"t":"\u00e9\\"","m":1.5}',
    ]


def test_a_key_that_a_row_lacks_is_not_written() -> None:
    batch = Batch.of([Data({"a": 1, "x": np.zeros(2)}), Data({"b": 1.5, "s": "t"}), Data()], first=0)
    assert written(batch) == ['{"a":1,"x":[0.0,0.0]}', '{"b":1.5,"s":"t"}', "{}"]
    assert written(batch, pretty=True)[2] == "{}"


def test_nan_is_null_or_the_failure_of_its_record() -> None:
    datas = [
        Data({"d": math.nan, "x": np.array([1.0, math.inf]), "inner": {"l": [-math.inf]}}),
        Data({"d": 1.5, "x": np.array([1.0, 2.0]), "inner": {"l": [0.5]}}),
    ]
    good = '{"d":1.5,"x":[1.0,2.0],"inner":{"l":[0.5]}}'
    assert written(Batch.of(datas)) == ['{"d":null,"x":[1.0,null],"inner":{"l":[null]}}', good]
    encoded = codec_of({"type": "json", "nan": "error"}).encode(Batch.of(datas))
    assert list(encoded.failed) == [0]
    assert "nan: null" in str(encoded.failed[0])
    assert list(encoded.values) == [None, good.encode()]


def test_pretty_is_for_people() -> None:
    batch = Batch.of([Data({"a": 1, "l": [1, 2], "inner": {"s": "x\ny"}})])
    (text,) = written(batch, pretty=True)
    assert text == json.dumps({"a": 1, "l": [1, 2], "inner": {"s": "x\ny"}}, indent=2)


def test_a_lone_surrogate_in_a_text_or_key_fails_its_row() -> None:
    encoded = codec_of("json").encode(Batch.of([Data({"s": "\ud800"}), Data({"s": "é"}), Data({"\udfff": 1})]))
    assert sorted(encoded.failed) == [0, 2]
    assert encoded.values[1] == '{"s":"é"}'.encode()


def test_unread_json_values_are_written_as_protodata_where_it_can_hold_them() -> None:
    batch = decoded([b'{"a": [1, 2], "o": {"k": null, "v": 1}}', b'{"a": [1, null]}']).batch
    encoded = codec_of("protodata").encode(batch)
    assert list(encoded.failed) == [1]
    assert Data.from_bytes(encoded.values[0] or b"") == Data({"a": [1, 2], "o": {"v": 1}})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"type": "json", "byte_order": "little"}, "konduit-json"),
        ({"type": "json", "nulls": "drop"}, "konduit-json"),
        ({"type": "json", "fields": {"a": "b/c"}}, "begins with a slash: /b/c"),
        ({"type": "json", "fields": {"a": "/~2"}}, "~0"),
        ({"type": "json", "fields": {"@type": "/a"}}, "reserved"),
        ({"type": "json", "feilds": {}}, 'did you mean "fields"'),
    ],
)
def test_a_wrong_setting_is_told(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        codec_of(setting)


def test_columns_are_arrays_at_once() -> None:
    """Numbers that are wanted are dense; unwanted values are not decoded."""
    batch = decoded([b'{"d": 1.5, "i": 7, "x": [1.0, 2.0], "b": true, "o": 1}'] * 30, ["d", "i", "x", "b"]).batch
    for key, dtype in (("d", np.float64), ("i", np.int64), ("b", np.bool_)):
        column = batch.column(key)
        assert isinstance(column, DenseColumn)
        assert column.array.dtype == dtype
    assert batch["x"].array.shape == (30, 2)
    assert isinstance(batch.column("o"), WireColumn)


numbers = st.one_of(
    st.integers(-(2**66), 2**66),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-100, 100),
    st.just(2**53 + 1),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8), st.lists(numbers, max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)
keys = st.one_of(st.sampled_from(["a", "b", "c", "@type", "é", ""]), st.text(max_size=3))


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(
    records=st.lists(st.dictionaries(keys, values, max_size=5), max_size=6),
    wanted=st.sets(st.sampled_from(["a", "b", "é"])),
    ascii=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_values_that_no_step_reads_are_written_unchanged_for_any_json(
    records: list[dict[str, Any]], wanted: set[str], ascii: bool, indent: int | None
) -> None:
    payloads = [json.dumps(one, ensure_ascii=ascii, indent=indent).encode() for one in records]
    found = decoded(payloads, sorted(wanted))
    batch = found.batch
    assert sorted([*found.failed, *batch.rows.tolist()]) == list(range(len(records)))
    for row, text in zip(batch.rows.tolist(), written(batch), strict=True):
        there = {key: value for key, value in records[row].items() if value is not None}
        # Integers in a list with floats are floats, and null inside a decoded object is no key.
        assert json.loads(text).keys() == there.keys()
        for key, value in json.loads(text).items():
            if key not in wanted:
                assert json.dumps(value) == json.dumps(there[key])
            elif isinstance(value, (int, float, str)):
                assert (value, type(value)) == (there[key], type(there[key]))


ODD_AMONG_MANY = [
    b'{"a": 1, "b": "x", "c": [1.5]}',
    b'{"a": 1, "b": "x", "b": "y", "c": [1.5]}',
    b'{"c": [1.5], "b": "x", "a": 1}',
    b'{"a": 1, "b": "x"}',
    b'{"a": 1, "b": "x", "c": [1.5], "d": 4}',
    b'{"a": null, "b": "x", "c": [1.5]}',
    b'{"a": 1, "b": null, "c": [1.5]}',
    b'{"a": 1, "b": "null", "c": [null]}',
    b'{"a": 1.10, "b": 1.10, "c": [1, 2]}',
    b'{"a": -0, "b": -0, "c": []}',
    b'{"a": 1e999, "b": "x", "c": [1.5]}',
    b'{"a": 1, "b": 1e999, "c": [1.5]}',
    b'{"a": 1, "b": %d, "c": [%d]}' % (2**70, 2**63),
    b'{"a": 1, "b": %s, "c": [1.5]}' % (b"9" * 5000),
    b'{"a": true, "b": {"deep": [1, {"er": 2}]}, "c": [true]}',
    b'{"\\u0061": 1, "b": "\\u00e9\\n", "c": [1.5]}',
    '{"a": "\u00e9", "b": "\u00e9", "c": [1.5]}'.encode(),
    b'{"a": 1, "b": "\\ud800", "c": [1.5]}',
    b'{"a": "\xff", "b": "x", "c": [1.5]}',
    b'{"a": 1, "b": "\xff", "c": [1.5]}',
    b'{"a": 1, "b": {"\xed\xa0\x80": 2}, "c": [1.5]}',
    b'{"a": 1, "b": "x", "c": [1.5]',
    b'{"a": 01, "b": "x", "c": [1.5]}',
    b'{"a": 1, "b": 01, "c": [1.5]}',
    b'{"a": 1, "b": nul, "c": [1.5]}',
    b'{"a": 1, "b": "x", "c": %s}' % (b"[" * 200 + b"]" * 200),
    b'\xef\xbb\xbf {"a": 1, "b": "x", "c": [1.5]} ',
    b"[1, 2]",
    b"null",
    b"{}",
    b"",
]


def outcome(payloads: Sequence[bytes], row: int, wanted: Sequence[str]) -> tuple[Any, Any, Any]:
    """Why a row fails, else its values (or why they are none) and the text that is written of it."""
    found = decoded(payloads, wanted)
    if row in found.failed:
        return str(found.failed[row]), None, None
    place = found.batch.rows.tolist().index(row)
    alone = found.batch.take(np.array([place]))
    (text,) = written(alone)
    values = {}
    for key in (key for key, column in alone.columns.items() if not column.empty):
        try:
            values[key] = [repr(value) for value in alone.column(key).values()]
        except RowsFailed as error:
            values[key] = [str(reason) for reason in error.failures.values()]
    return None, values, json.loads(text, parse_float=str, parse_int=str)


@pytest.mark.parametrize("wanted", [(), ("a",), ("a", "b", "c")])
@pytest.mark.parametrize("odd", ODD_AMONG_MANY)
def test_an_odd_row_among_many_alike_is_read_and_written_as_it_is_alone(odd: bytes, wanted: tuple[str, ...]) -> None:
    usual = [b'{"a": %d.5, "b": "text %d", "c": [0.25, %d.5]}' % (row, row, row) for row in range(40)]
    alone = outcome([odd], 0, wanted)
    for place in (0, 20, 39):
        payloads = [*usual[:place], odd, *usual[place + 1 :]]
        assert outcome(payloads, place, wanted) == alone
        other = (place + 7) % 40
        assert outcome(payloads, other, wanted) == outcome([usual[other]], 0, wanted)


def test_of_many_rows_with_the_same_keys_each_passes_through_as_it_came() -> None:
    payloads = [b'{"a":%d.10,"\\u00fc":"\\/ %d","":{"x" : [ %d ]}}' % (row, row, row) for row in range(50)]
    found = decoded(payloads, ["a"])
    texts = written(found.batch.without(["a"]))
    assert texts == [f'{{"\u00fc":"\\/ {row}","":{{"x" : [ {row} ]}}}}' for row in range(50)]
    assert found.batch.take(np.array([7, 3])).column("").values() == [Data({"x": [7]}), Data({"x": [3]})]


@pytest.mark.parametrize(
    "payloads", [[b'{"a":', b"1}", b'{"b":2}{"c":3}'], [b'{"s":"', b'"}', b'{"b":2}\n{"c":3}'], [b"{}{}", b" "]]
)
def test_records_that_are_halves_or_two_in_one_take_nobody_elses_place(payloads: list[bytes]) -> None:
    """Payloads are parsed together: what is wrong in several of them must not add up to something right."""
    answer = decoded([*payloads, b'{"d":4}'])
    assert sorted(answer.failed) == list(range(len(payloads)))
    assert answer.batch.to_list() == [Data({"d": 4})]
