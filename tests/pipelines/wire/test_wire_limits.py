"""How many keys a record may have: more are refused, in every form, before all of them are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.hotpath import HotPath
from pipelines.wire import json as json_form
from pipelines.wire.columns import decode_columns
from pipelines.wire.limits import DEFAULT_LIMITS, Limits, has_more_fields
from pipelines.wire.protobuf import decode, encode, encode_entry

FEW = Limits(max_keys=3)


def keys(count: int) -> Data:
    return Data({f"k{number}": number for number in range(count)})


def entries(count: int, key: str = "k") -> bytes:
    return b"".join(encode_entry(f"{key}{number}", number) for number in range(count))


def one_by_one(message: bytes, limits: Limits) -> Any:
    return decode(message, limits)


def in_columns(hot_path: HotPath) -> Callable[[bytes, Limits], Any]:
    def read(message: bytes, limits: Limits) -> Any:
        found = decode_columns([message, b""], frozenset({"d"}), limits)
        assert 1 in found.rows.tolist()
        if found.failed:
            raise found.failed[0]
        return found.columns

    return read


@pytest.fixture(params=["one by one", "python", "native"])
def read(request: pytest.FixtureRequest) -> Callable[[bytes, Limits], Any]:
    return one_by_one if request.param == "one by one" else in_columns(request.param)


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        (entries(3), True),
        (entries(4), False),
        (encode_entry("k", 1) * 4, False),
        (encode(Data({"a": 1, "b": 2}, metadata={"m": 1})), True),
        (encode(Data({"a": 1, "b": 2}, metadata={"m": 1, "n": 1})), False),
        (encode(Data({"d": keys(3)})), True),
        (encode(Data({"d": keys(4)})), False),
        (encode(Data({"d": [keys(1), keys(4)]})), False),
        (encode(Data({"d": [keys(3)] * 7})), True),
        (encode(Data({"d": [keys(3)] * 8})), False),
        (encode(Data({"d": [Data()] * 30})), True),
        (encode(Data({"d": [Data()] * 31})), False),
    ],
    ids=[
        "three",
        "four",
        "one, four times",
        "metadata",
        "much metadata",
        "inner",
        "much inner",
        "in a list",
        "many",
        "too many",
        "many empty",
        "too many empty",
    ],
)
def test_a_data_has_so_many_keys_at_most(read: Callable[[bytes, Limits], Any], message: bytes, fits: bool) -> None:
    if fits:
        read(message, FEW)
        return
    with pytest.raises(WireError, match=r"more than (3|30) keys .*max_keys"):
        read(message, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("count", [DEFAULT_LIMITS.max_keys, DEFAULT_LIMITS.max_keys + 1])
def test_by_default_a_record_has_ten_thousand_keys_at_most(read: Callable[[bytes, Limits], Any], count: int) -> None:
    message = entries(count)
    if count <= 10_000:
        read(message, DEFAULT_LIMITS)
        return
    with pytest.raises(WireError, match="10000 keys"):
        read(message, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    "message",
    [
        entries(4) + b"\x0a\x7f",
        # In a framing of another kind: a length of two bytes, a group, numbers, and what nobody knows.
        b"\x0a\x80\x00" * 4 + b"\xff",
        b"\x1b" + entries(3) + b"\x1c" + b"\xff",
        b"\x18\x01" * 4 + b"\xff",
        b"\x1d1234" + b"\x1912345678" + entries(2) + b"\xff",
    ],
)
def test_keys_are_counted_before_the_message_is_read_to_its_end(
    read: Callable[[bytes, Limits], Any], message: bytes
) -> None:
    # The end of it is broken, and nobody gets there.
    with pytest.raises(WireError, match="max_keys"):
        read(message, FEW)


def test_a_broken_message_has_the_fields_before_the_break() -> None:
    assert not has_more_fields(b"", 0)
    assert has_more_fields(b"\x0a\x00", 0)
    assert not has_more_fields(b"\x0a", 1)
    assert not has_more_fields(b"\x0a\x7f" + b"\x0a\x00" * 9, 1)
    assert not has_more_fields(b"\x08" + b"\xff" * 20, 3)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('{"a": 1, "b": 2, "c": 3}', True),
        ('{"a": 1, "b": 2, "c": 3, "d": 4}', False),
        ('{"a": 1, "a": 2, "a": 3, "a": 4}', False),
        ('{"a": {"a": 1, "b": 2}, "b": {"a": 1, "b": 2}}', True),
        ('{"a": [{"a": 1, "b": 2, "c": 3, "d": 4}]}', False),
        (r'{"a": "{\":,\"x\":1,\"y\":1,\"z\":1,\"", "b\"": "\\", "c": ":::::\\\""}', True),
        (r'{"a": "{", "b\"": "\\", "c": 3, "d" : 4}', False),
        ('{"a": 1, "b": 2, "@Metadata": {"a": 1}}', True),
        ('{"a": 1, "b": 2, "@Metadata": {"a": 1, "b": 2}}', False),
        ('{"d": [' + ", ".join(['{"a": 1}'] * 15) + "]}", True),
        ('{"d": [' + ", ".join(['{"a": 1}'] * 16) + "]}", False),
    ],
)
def test_a_json_object_has_so_many_keys_at_most(text: str, fits: bool) -> None:
    for form in (text, text.encode()):
        if fits:
            json_form.loads(form, limits=FEW)
            continue
        with pytest.raises(WireError, match=r"more than (3|30) keys .*max_keys"):
            json_form.loads(form, limits=FEW)


def test_keys_of_json_are_counted_before_it_is_parsed() -> None:
    with pytest.raises(WireError, match="max_keys"):
        json_form.loads('{"a": 1, "b": 2, "c": 3, "d": 4, no JSON', limits=FEW)
    # What is no JSON is said to be none.
    for text in ('}{"a": 1, "b": 2, "c": 3, "d": 4}', '"a": 1, "b": 2, "c": 3, "d": 4'):
        with pytest.raises(WireError, match="Error deserializing"):
            json_form.loads(text, limits=FEW)
