"""`msgpack`: maps as records and back."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pytest
from codecsupport import block, read, service_of
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.codec import Codec
from connectors.codecs.msgpack import MsgpackConfig
from connectors.codecs.registry import codec_of
from connectors.contract import CodecContract
from examples import examples
from pipelines import Batch, Data
from pipelines.errors import DataError, RowsFailed, WireError
from streamer import testing
from streamer.testing.running import payload


class TestMsgpack(CodecContract):
    bad = (
        b"",
        b"\xc1",
        b"\x80\x80",
        b"\x93\x01\x02\x03",
        b"\x81\x01\x02",
        b"\x81\xa1\xff\x01",
        b"\x81\xc4\x01a\x01",
        b"\x91" * 5000,
        b"\xdf\xff\xff\xff\xff",
        msgpack.packb({"@type": 1}),
        7,
        "text",
    )

    @pytest.fixture
    def codec(self) -> Codec:
        return MsgpackConfig().build()

    @pytest.fixture
    def record(self) -> Data:
        return Data({"x": [1.5, 2.0], "n": 7, "t": 30.5, "who": "é", "raw": b"\xff", "in": Data({"l": [1, 2]})})


def test_arrays_are_lists_of_numbers_and_bytes_are_bytes() -> None:
    written = payload(Data({"x": np.arange(4, dtype=np.float32).reshape(2, 2), "b": b"\0"}), "msgpack")
    assert msgpack.unpackb(written) == {"x": [[0.0, 1.0], [2.0, 3.0]], "b": b"\0"}


def test_timestamps_are_milliseconds_wherever_they_stand() -> None:
    moment = msgpack.Timestamp(1_700_000_000, 123_456_789)
    old = msgpack.Timestamp(-1, 5_000_000)
    raw = msgpack.packb({"at": moment, "all": [moment, old], "in": {"at": moment}, "none": None})
    assert read("msgpack", raw, wanted=frozenset(["at", "all", "in"])) == [
        Data({"at": 1_700_000_000_123, "all": [1_700_000_000_123, -995], "in": Data({"at": 1_700_000_000_123})})
    ]


def test_a_msgpack_value_that_data_cannot_hold_fails_only_if_it_is_asked_for() -> None:
    odd = msgpack.packb({"a": 1, "mixed": [1, "x"], "large": 2**64 - 1, "own": msgpack.ExtType(5, b"abc")})
    codec = codec_of("msgpack")
    decoded = codec.decode(block([odd]), frozenset(["a"]))
    assert not decoded.failed
    assert list(codec.encode(decoded.batch).values) == [odd]
    for key in ("mixed", "large", "own"):
        assert f'key "{key}" cannot be read' in str(read("msgpack", odd, wanted=frozenset([key]))[0])
    (error,) = read("msgpack", odd, wanted=frozenset(["own"]))
    assert str(error) == 'key "own" cannot be read: a value of type ExtType is not a number, text, list or map'


def test_a_null_in_a_list_is_told_with_its_place() -> None:
    (error,) = read("msgpack", msgpack.packb({"x": [1.5, None, 2.5]}), wanted=frozenset(["x"]))
    assert 'key "x" cannot be read: null is no value; leave element 1 out of the list, or write a value there' in str(
        error
    )


def test_one_bad_record_of_a_thousand_fails_alone() -> None:
    good = [msgpack.packb({"x": float(number)}) for number in range(1000)]
    good[500] = msgpack.packb({"x": "warm"})
    good[501] = msgpack.packb({"y": 1})
    good[502] = good[502][:-1]

    def double(data: Data) -> Data:
        return Data({"y": data.get_double("x") * 2})

    report = testing.run(service_of(double, "msgpack", "msgpack"), good)
    assert len(report.results) == 997
    assert sorted(dead.origin.offset or 0 for dead in report.dead) == [500, 501, 502]


_KEYS = st.text(max_size=5).filter(lambda key: not key.startswith("@"))
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.text(max_size=10)
    | st.binary(max_size=10)
    | st.lists(st.integers(-5, 2**40), max_size=4).filter(bool)
    | st.lists(st.text(max_size=3), max_size=3).filter(bool),
    lambda inner: st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.dictionaries(_KEYS, _VALUES, max_size=5), min_size=1, max_size=6))
def test_any_values_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    codec = codec_of("msgpack")
    batch = Batch.of([Data(row) for row in rows])
    encoded = codec.encode(batch)
    assert not encoded.failed
    assert [msgpack.unpackb(value or b"") for value in encoded.values] == rows
    for wanted in (None, frozenset(key for row in rows for key in row)):
        decoded = codec.decode(block(encoded.values), wanted)
        assert not decoded.failed
        assert decoded.batch.to_list() == batch.to_list()


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_a_record_or_the_failure_of_one(raw: bytes, as_map: bool) -> None:
    decoded = MsgpackConfig().build().decode(block([b"\x82" + raw if as_map else raw]), None)
    assert decoded.batch.size + len(decoded.failed) == 1
    assert all(isinstance(error, (WireError, DataError)) for error in decoded.failed.values())


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (msgpack.packb({"a": {1: 2}}), "int is not allowed for map key, at any depth; write keys as texts"),
        (b"\xc1", "it has a byte that means nothing"),
    ],
)
def test_a_payload_that_is_no_msgpack_is_told_in_plain_words(payload: bytes, told: str) -> None:
    decoded = codec_of("msgpack").decode(block([payload]), None)
    assert str(decoded.failed[0]) == f"the payload is not valid MessagePack: {told}"


def test_a_value_inside_of_another_with_the_same_key_is_named_by_both_keys() -> None:
    odd = msgpack.packb({"a": {"a": [1, "x"]}})
    told = 'key "a.a" cannot be read: a list has elements of one type'
    assert told in str(read("msgpack", odd, wanted=frozenset(["a"]))[0])
    decoded = codec_of("msgpack").decode(block([odd]), frozenset())
    with pytest.raises(RowsFailed, match=told):
        decoded.batch.column("a").values()
