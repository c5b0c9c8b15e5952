"""`csv`: rows of a table as records and back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from codecsupport import block, read, service_of
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.codec import Codec
from connectors.codecs.csv import CsvConfig
from connectors.codecs.registry import codec_of
from connectors.contract import CodecContract
from connectors.message import Message, records_of
from examples import examples
from pipelines import Batch, Data
from pipelines.errors import DataError, DefinitionError, WireError
from streamer import testing
from streamer.definition.loading import loads
from streamer.testing.running import payload


class TestNamedColumns(CodecContract):
    bad = (b"", b"a,b", b'"a', b"a,1.5,1\nb,2.5,2", b"\xff,1,1", 7)
    unwritable = (Data({"other": 1}), Data({"id": b"bytes"}), Data({"id": "\ud800"}))

    @pytest.fixture
    def codec(self) -> Codec:
        return CsvConfig(names=("id", "temp", "count"), types={"temp": "number", "count": "integer"}).build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"id": 'a "quoted", é\nname', "temp": 30.5, "count": -7})


class TestHeaderInEachPayload(CodecContract):
    bad = (b"", b"id,temp", b"id,temp\n1", b"id,id\n1,2", b"@type\n1", b"id\n1\n2", 7)
    unwritable = (Data({"x": [1, 2]}), Data({"x": Data({"a": 1})}))

    @pytest.fixture
    def codec(self) -> Codec:
        return CsvConfig(types={"temp": "number", "ok": "boolean"}).build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"id": "007", "temp": 1e-7, "ok": True})


def test_an_example_shows_the_types() -> None:
    config = {"type": "csv", "names": ["id", "temp", "count", "ok"], "example": "pump-7,30.5,12,TRUE"}
    assert read(config, b"7, 30 ,5,false", b"x,.5e1,-1,0") == [
        Data({"id": "7", "temp": 30.0, "count": 5, "ok": False}),
        Data({"id": "x", "temp": 5.0, "count": -1, "ok": False}),
    ]


def test_an_empty_field_is_an_absent_number_and_an_empty_text() -> None:
    config = {"type": "csv", "names": ["id", "temp"], "types": {"temp": "number"}}
    assert read(config, b",", b'"", ') == [Data({"id": ""}), Data({"id": ""})]


def test_a_wrong_field_is_named_with_its_column() -> None:
    types = {"temp": "number", "n": "integer", "ok": "boolean"}
    config = {"type": "csv", "names": ["temp", "n", "ok"], "types": types}
    for row, said in (
        (b"warm,1,true", 'temp: "warm" is no number'),
        (b"1_0,1,true", 'temp: "1_0" is no number'),
        (b"1,1.0,true", 'n: "1.0" is no integer'),
        (b"1,99999999999999999999,true", 'n: "99999999999999999999" is no integer: it does not fit in 64 bits; '),
        (b"1,1,maybe", 'ok: "maybe" is no boolean: '),
        ("1,٣,true".encode(), 'n: "٣" is no integer'),
    ):
        decoded = codec_of(config).decode(block([row]), frozenset(types))
        assert str(decoded.failed[0]).startswith(said)


def test_fields_that_no_step_reads_stay_as_they_came_and_wrong_ones_fail_where_they_are_read() -> None:
    config: dict[str, object] = {
        "type": "csv",
        "names": ["id", "temp", "n"],
        "types": {"temp": "number", "n": "integer"},
    }
    rows = [b"a, 1.10 ,7", b"b,warm,", b"c,,1"]
    decoded = codec_of(config).decode(block(rows), frozenset({"n"}))
    assert not decoded.failed
    assert list(
        codec_of(config).encode(decoded.batch.select({k: decoded.batch.column(k) for k in ("id", "temp")})).values
    ) == [
        b"a, 1.10 ,",
        b"b,warm,",
        b"c,,",
    ]
    assert decoded.batch["n"].values()[0] == 7
    # Other formats, and a table that writes numbers in another way, have to read them.
    for other in ("json", {**config, "delimiter": ";", "decimal": ","}):
        written = codec_of(other).encode(decoded.batch)
        assert [str(error) for error in written.failed.values()] == ['temp: "warm" is no number']
        assert written.values[0] in (b'{"id":"a","temp":1.1,"n":7}', b"a;1,1;7")


def test_a_wrong_field_that_a_function_does_not_look_at_goes_on_as_it_came() -> None:
    def doubled(data: Data) -> Data:
        data["n"] = data["n"] * 2
        return data

    codec = {"type": "csv", "names": ["temp", "n"], "types": {"temp": "number", "n": "integer"}}
    report = testing.run(service_of(doubled, codec, codec), [b"warm,1", b"1.5,x"])
    assert [message.value for message in report.sinks["memory"]] == [b"warm,2"]
    assert 'n: "x" is no integer' in report.dead[0].error


def test_numbers_with_a_decimal_comma_are_read_and_written_where_the_codec_says_so() -> None:
    config: dict[str, object] = {"type": "csv", "names": ["id", "temp"], "delimiter": ";", "decimal": ","}
    shown = config | {"example": "m1;30,5"}
    rows = read(shown, b"a,b;21,5", b"a;-1,5e3", b"a;21", b"a;1.234,5", b"a;21.5", wanted=frozenset({"temp"}))
    assert rows[:3] == [
        Data({"id": "a,b", "temp": 21.5}),
        Data({"id": "a", "temp": -1500.0}),
        Data({"id": "a", "temp": 21.0}),
    ]
    assert str(rows[3]) == 'temp: "1.234,5" is no number'
    assert str(rows[4]) == 'temp: "21.5" is no number; if numbers are written so, set decimal: "." in the codec'
    assert payload(Data({"id": "a", "temp": 0.25}), config) == b"a;0,25"


def test_a_decimal_comma_that_the_codec_does_not_know_is_told_with_what_to_set() -> None:
    config: dict[str, object] = {"type": "csv", "names": ["t"], "types": {"t": "number"}, "delimiter": ";"}
    (error,) = read(config, b"21,5", wanted=frozenset({"t"}))
    assert str(error) == 't: "21,5" is no number; if numbers are written so, set decimal: "," in the codec'


def test_a_bare_number_with_a_comma_is_told_with_what_to_set() -> None:
    config: dict[str, object] = {"type": "csv", "names": ["t"], "types": {"t": "number"}}
    number, words, large = read(config, b"21,5", b"a,b", b"1e400", wanted=frozenset({"t"}))
    assert str(number) == (
        'the row has 2 fields, but there is one column, "t"; if numbers are written so, set delimiter: ";" and '
        'decimal: "," in the codec'
    )
    assert str(words) == 'the row has 2 fields, but there is one column, "t"'
    assert str(large) == 't: "1e400" is no number: it is beyond the largest, 1.8e308'
    set_so = {"type": "csv", "names": ["t"], "types": {"t": "number"}, "delimiter": ";", "decimal": ","}
    assert read(set_so, b"21,5", b"-3") == [Data({"t": 21.5}), Data({"t": -3.0})]


def test_a_long_text_is_read_up_to_max_bytes() -> None:
    text = "x" * 200_000
    (row,) = read({"type": "csv", "names": ["id", "text"]}, f"a,{text}".encode())
    assert row == Data({"id": "a", "text": text})


def test_a_quotation_mark_that_is_never_closed_harms_no_neighbour() -> None:
    config = {"type": "csv", "names": ["id", "temp"]}
    good, bad, other = read(config, b"a,1", b'"b,1', b"c,1")
    assert (good, other) == (Data({"id": "a", "temp": "1"}), Data({"id": "c", "temp": "1"}))
    assert "not a row of CSV" in str(bad)


def test_a_byte_order_mark_and_ends_of_lines_of_any_kind_are_read() -> None:
    assert (
        read("csv", b"\xef\xbb\xbfid;x\r\n1;2\r\n".replace(b";", b","), b"id,x\n\n1,2\n\n")
        == [Data({"id": "1", "x": "2"})] * 2
    )


def test_rows_beyond_max_bytes_or_max_keys_are_refused() -> None:
    assert "raise max_bytes" in str(read({"type": "csv", "names": ["a"], "max_bytes": 10}, b"a" * 11)[0])
    assert "max_keys" in str(read({"type": "csv", "max_keys": 2}, b"a,b,c\n1,2,3")[0])


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"names": ["a", "a"]}, "two columns have the same name"),
        ({"names": ["temp"], "types": {"tmp": "number"}}, 'did you mean "temp"'),
        ({"names": ["a", "b"], "example": "1"}, "not a row of 2 fields"),
        ({"example": "1"}, "give names with it"),
        ({"names": ["a"], "example": "1", "types": {"a": "text"}}, "no types"),
        ({"delimiter": '"'}, "a delimiter is"),
        ({"delimiter": ";;"}, "delimiter"),
        ({"names": ["@type"]}, "reserved"),
        ({"decimal": ","}, "decimal and delimiter are the same sign"),
    ],
)
def test_contradictory_settings_are_refused_at_loading(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(DefinitionError, match=told):
        codec_of({"type": "csv", **fields})


def test_a_result_is_written_in_the_order_of_the_names_with_gaps_where_it_lacks_one() -> None:
    setting: dict[str, object] = {"type": "csv", "names": ["id", "score", "label"], "delimiter": ";"}
    assert payload(Data({"label": "a;b", "id": 7}), setting) == b'7;;"a;b"'
    assert payload(Data({"id": math.nan, "score": True}), setting) == b"nan;true;"
    with pytest.raises(WireError, match=r'no column "scor"; did you mean "score"'):
        payload(Data({"scor": 1}), setting)


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"id": _TEXTS, "x": st.floats(allow_nan=False), "n": st.integers(-(2**63), 2**63 - 1), "ok": st.booleans()}
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([",", ";", "\t", "|"]),
)
def test_any_row_comes_back_as_it_was(rows: list[dict[str, Any]], delimiter: str) -> None:
    types = {"x": "number", "n": "integer", "ok": "boolean"}
    for names in ([], ["id", "x", "n", "ok"]):
        codec = codec_of({"type": "csv", "names": names, "types": types, "delimiter": delimiter})
        encoded = codec.encode(Batch.of([Data(row) for row in rows]))
        assert not encoded.failed
        decoded = codec.decode(block(encoded.values), None)
        assert not decoded.failed
        assert decoded.batch.to_list() == [Data(row) for row in rows]


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_row_or_the_failure_of_their_record(raw: bytes) -> None:
    for config in (CsvConfig(), CsvConfig(names=("a", "b"), example="1,2.5")):
        decoded = config.build().decode(block([raw]), None)
        assert decoded.batch.size + len(decoded.failed) == 1
        assert all(isinstance(error, (WireError, DataError)) for error in decoded.failed.values())


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.array([25.75], "f4"), b"25.75"),
        (np.array([0.1], "f4"), b"0.1"),
        (np.array([[0.1]], "f2"), b"0.1"),
        (np.array(2**53 + 1), b"9007199254740993"),
        (np.array([255], "u1"), b"255"),
        (np.array([True]), b"true"),
        (np.array([math.nan], "f4"), b"nan"),
        (np.array([math.inf]), b"inf"),
    ],
    ids=str,
)
def test_an_array_of_one_number_as_models_give_it_is_written_as_that_number(value: Any, written: bytes) -> None:
    encoded = CsvConfig(names=("id", "risk")).build().encode(Batch.of([Data({"id": "a", "risk": value})]))
    assert list(encoded.values) == [b"a," + written]


def test_an_array_of_several_numbers_is_no_field() -> None:
    encoded = CsvConfig(names=("risk",)).build().encode(Batch.of([Data({"risk": np.zeros(2)})]))
    assert 'but "risk" is float64[2]' in str(encoded.failed[0])


def test_a_service_reads_rows_of_a_table() -> None:
    def double(data: Data) -> Data:
        return Data({"y": data["temp"] * 2})

    service = service_of(double, {"type": "csv", "names": ["id", "temp"], "types": {"temp": "number"}})
    report = testing.run(service, [b"a,1.5", b"b,warm", b"c,2.5"])
    assert [data["y"] for data in report.results if data is not None] == [3.0, 5.0]
    assert 'temp: "warm" is no number' in report.dead[0].error


def test_a_number_beyond_the_largest_double_fails_and_infinity_is_read() -> None:
    codec = CsvConfig(names=("x",), types={"x": "number"}).build()
    rows = [Message(b"1e400"), Message(b"-inf"), Message(b"1e300")]
    decoded = codec.decode(records_of(rows, "csv"), frozenset({"x"}))
    assert [data["x"] for data in decoded.batch.to_list()] == [-math.inf, 1e300]
    assert 'x: "1e400" is no number: it is beyond the largest' in str(decoded.failed[0])


def test_a_header_line_of_a_file_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"\xef\xbb\xbfid,temp\na,21.5\nb,22\nid, temp\nc,23\n")
    codec = {"type": "csv", "names": ["id", "temp"], "types": {"temp": "number"}, "header": True}
    service = {
        "source": {"type": "file", "path": "in.csv", "format": "lines", "codec": codec, "checkpoint": "done"},
        "pipeline": [{"@type": "LOGGING"}],
        "sink": {"type": "file", "path": "out.jsonl", "format": "jsonl"},
    }
    # Without a dead letter a record that fails stops the service.
    for _ in range(2):
        loads(json.dumps(service), tmp_path).run()
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert found == [{"id": "a", "temp": 21.5}, {"id": "b", "temp": 22.0}, {"id": "c", "temp": 23.0}]


def test_a_header_that_is_not_expected_is_told_what_to_set() -> None:
    codec = codec_of({"type": "csv", "names": ["id", "temp"], "types": {"temp": "number"}})
    found = codec.decode(records_of([Message(b"id,temp"), Message(b"a,x")], "file"), frozenset({"temp"}))
    assert "with header: true in the codec such rows are not records" in str(found.failed[0])
    assert "header" not in str(found.failed[1])
    with pytest.raises(DefinitionError, match="give the names of its columns"):
        codec_of({"type": "csv", "header": True})
