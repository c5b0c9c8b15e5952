"""Records inside of payloads: `at`, `each` and `outer` of the codec `msgpack`, as those of `json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.codec import Decoded
from connectors.codecs.registry import codec_of
from connectors.message import Message, records_of
from examples import examples


def decoded(payloads: Sequence[Any], wanted: Sequence[str] = ("n",), codec: str = "msgpack", **options: Any) -> Decoded:
    packed = [json.dumps(payload).encode() if codec == "json" else msgpack.packb(payload) for payload in payloads]
    records = records_of([Message(payload) for payload in packed], "bus")
    return codec_of({"type": codec, **options}).decode(records, frozenset(wanted), 10)


def shown(found: Decoded) -> tuple[list[dict[str, Any]], list[int]]:
    return [dict(row) for row in found.batch.to_list()], found.batch.rows.tolist()


def test_the_record_is_what_is_at_the_place_and_null_there_is_none() -> None:
    payloads = [{"p": {"a": {"n": 1}, "op": "c"}}, {"p": {"a": None}}, {"p": {"op": "d"}}, {"p": {"a": 7}}]
    found = decoded(payloads, at="/p/a", outer={"op": "/p/op"})
    assert shown(found) == ([{"n": 1, "op": "c"}], [10])
    assert {row: str(error) for row, error in found.failed.items()} == {
        12: 'there is nothing at /p/a (at of the codec): /p has no "a", but "op"',
        13: "a record is an object, but /p/a (at of the codec) is a number",
    }


def test_each_element_is_a_record_with_the_values_around_it() -> None:
    payloads = [{"m": [{"n": 1, "s": 0}, {"n": 2}], "s": 5}, {"m": []}, {"m": [{"n": 3, "s": 0}], "s": None}]
    found = decoded(payloads, at="/m", each=True, outer={"s": "/s"})
    assert shown(found) == ([{"n": 1, "s": 5}, {"n": 2, "s": 5}, {"n": 3}], [10, 10, 12])
    assert shown(decoded([[{"n": 1}, {"n": 2}], []], each=True)) == ([{"n": 1}, {"n": 2}], [10, 10])


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"m": {"n": 1}}, "each: true reads an array of records, but /m (at of the codec) is an object"),
        ({"m": b"x"}, "is of type bytes"),
        ({"m": [{"n": 1}, 2]}, "a record is an object, but /m/1 (at of the codec) is a number"),
        ({"m": [{"n": 1}, {"n": [1, None]}]}, 'key "n" cannot be read'),
        ({"m": [{"n": 1}, {"@type": 1}]}, "@type"),
        ({"m": [{}] * 100_000, "s": "x" * 1_000_000}, "max_bytes"),
        ({"m": [{}] * 200, "s": 0}, "max_elements"),
    ],
)
def test_of_a_list_all_records_fail_together(payload: Any, said: str) -> None:
    limits: dict[str, Any] = {"max_elements": 100} if "max_elements" in said else {}
    found = decoded([{"m": [{"n": 1}]}, payload, {"m": [{"n": 2}]}], at="/m", each=True, outer={"s": "/s"}, **limits)
    assert list(found.failed) == [11]
    assert said in str(found.failed[11])
    assert shown(found) == ([{"n": 1}, {"n": 2}], [10, 12])


def test_a_list_that_is_read_as_a_record_says_what_reads_it() -> None:
    assert "each: true in the codec" in str(decoded([[{"n": 1}]]).failed[10])


@pytest.mark.parametrize(("options", "said"), [({"at": "m"}, "/m"), ({"outer": {"s": "/s"}}, "without at")])
def test_a_wrong_place_is_refused_when_the_file_is_loaded(options: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        codec_of({"type": "msgpack", **options})


leaves = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "x"])
inner = st.dictionaries(st.sampled_from(["n", "s", "k"]), leaves, max_size=3)
several = st.lists(inner, max_size=3)
payload = st.fixed_dictionaries(
    {},
    optional={
        "p": st.fixed_dictionaries({}, optional={"a": inner | several | leaves, "s": leaves}) | leaves,
        "s": leaves,
    },
)


@settings(max_examples=examples(60), deadline=None)
@given(payloads=st.lists(payload, max_size=5), each=st.booleans(), outer=st.booleans())
def test_records_and_errors_are_those_of_json(payloads: list[Any], each: bool, outer: bool) -> None:
    options: dict[str, Any] = {"at": "/p/a", "each": each, "outer": {"s": "/s", "k": "/p/s"} if outer else {}}
    packed, text = (decoded(payloads, ["n", "s"], codec, **options) for codec in ("msgpack", "json"))
    assert shown(packed) == shown(text)
    assert packed.failed.keys() == text.failed.keys()
