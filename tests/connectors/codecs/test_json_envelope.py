"""Records inside of payloads: `at`, `each` and `outer` of the codec `json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from connectors.codec import Decoded
from connectors.codecs.registry import codec_of
from connectors.message import Message, records_of
from pipelines import Data
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DefinitionError

pytestmark = pytest.mark.usefixtures("hot_path")

GOOD = b'{"p": {"a": {"n": 1}}}'


def decoded(payloads: Sequence[bytes | None], wanted: Sequence[str] = ("n",), **options: Any) -> Decoded:
    codec = codec_of({"type": "json", "at": "/p/a", **options})
    return codec.decode(records_of([Message(payload) for payload in payloads], "bus"), frozenset(wanted), 10)


def results(found: Decoded) -> list[bytes | None]:
    return list(codec_of("json").encode(found.batch).values)


def why(payload: bytes, **options: Any) -> str:
    """The error of a payload among others, which are read."""
    good = [GOOD, GOOD.replace(b"1", b"2")]
    if options.get("each"):
        good = [payload.replace(b'{"n"', b'[{"n"').replace(b"}}}", b"}]}}") for payload in good]
    found = decoded([good[0], payload, good[1]], **options)
    assert list(found.failed) == [11]
    assert [row["n"] for row in found.batch.to_list()] == [1, 2]
    assert found.batch.rows.tolist() == [10, 12]
    return str(found.failed[11])


def test_the_record_is_what_is_at_the_place_and_results_have_nothing_of_what_is_around_it() -> None:
    payload = b'{"schema": {"type": "struct"}, "p": {"b": null, "a": {"n": 7, "x": 1.10, "l": [1, null]}, "op": "u"}}'
    found = decoded([payload, GOOD])
    assert results(found) == [b'{"n":7,"x":1.10,"l":[1, null]}', b'{"n":1}']
    column = found.batch.column("x")
    assert isinstance(column, WireColumn)
    assert not column.is_decoded


def test_values_that_no_step_reads_stay_undecoded_beside_the_record_too() -> None:
    found = decoded([b'{"s": 1.10, "p": {"a": {"n": 1}}}'], outer={"site": "/s"})
    assert results(found) == [b'{"n":1,"site":1.10}']


def test_null_at_the_place_is_no_record_and_no_failure() -> None:
    for options in ({}, {"each": True}, {"outer": {"op": "/p/op"}}):
        found = decoded([b'{"p": {"a": null, "op": "d"}}', None, b' {"p":{"op":"d","a" : null}} '], **options)
        assert not found.failed
        assert found.batch.size == 0
    found = decoded([GOOD, b'{"p": {"a": null}}', GOOD])
    assert found.batch.rows.tolist() == [10, 12]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"p": {"b": 1, "op": "c"}}', 'there is nothing at /p/a (at of the codec): /p has no "a", but "b", "op"'),
        (b'{"p": {"A": 1}}', '/p has no "a"; did you mean "A"?'),
        (b'{"p": {}}', '/p has no "a"'),
        (b'{"q": {"a": {}}}', 'the payload has no "p"'),
        (b"{}", 'the payload has no "p"'),
        (b'{"p": null}', "/p is null"),
        (b'{"p": 7}', "/p is a number"),
        (b'{"p": [{"a": {}}]}', "/p is an array of 1 elements"),
        (b'[{"p": {"a": {}}}]', "the payload is an array of 1 elements"),
        (b"7", "the payload is a number"),
        (b'{"p": "{\\"a\\": {}}"}', "/p is a string; the text is JSON itself: the producer encodes twice"),
        (b'{"p": {"\\ud800": 1, "\\u0000": 2, "b": 3}}', '/p has no "a", but "b"'),
        (b'{"p": {' + b",".join(b'"key %d": 1' % key for key in range(9000)) + b"}}", '"key 7", ...'),
        (b'{"p": {"' + b"k" * 100_000 + b'": 1}}', '"' + "k" * 40 + '"'),
        (b'{"p": {"a": {}}, "p": {}}', '/p has no "a"'),
    ],
)
def test_a_payload_without_the_place_fails_and_the_error_names_what_there_is(payload: bytes, said: str) -> None:
    assert said in why(payload)
    assert said in why(payload, each=True)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"p": {"a": 7}}', "a record is an object, but /p/a (at of the codec) is a number"),
        (b'{"p": {"a": true}}', "is a boolean"),
        (b'{"p": {"a": "x"}}', "is a string"),
        (b'{"p": {"a": [{"n": 1}]}}', "is an array; each: true makes a row of every element"),
        (b'{"p": {"a": "{}"}}', "the producer encodes twice (json.dumps, and a serializer that does the same)"),
        (b"", "it is empty"),
        (b"x", "the payload is no JSON"),
        (b'{"p": {"a": {"n": 1}}', "the payload is no JSON"),
        (b'{"p": {"a": {"n": 1}}} {}', "more follows its value at character 23"),
        (b'{"p": {"a": {"n": 1}}, "q": 01}', "the payload is no JSON"),
        (b'{"p": {"a": {"n": 1}}, "q": NaN}', "NaN is no number there"),
        (b'{"p": {"a": {"n": 1}}}\0', "a NUL byte (\\x00) at the end, at character 22"),
        (b'{"p": {"a": {"n": 1}}, "q": "\xff"}', "it is not UTF-8 at byte 29"),
        (b"[" * 100_000, "max_depth"),
        (b'{"p": {"a": ' * 100_000, "max_depth"),
        (b'{"p": {"a": {"n": 1}}, "q": ' + b"[" * 40 + b"]" * 40 + b"}", "max_depth"),
        (b'{"p": {"a": {"n": [1, null]}}}', 'key "n" cannot be read'),
    ],
)
def test_what_is_no_record_at_the_place_fails(payload: bytes, said: str) -> None:
    assert said in why(payload)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"p": {"a": {"n": 1}}}', "each: true reads an array of records, but /p/a (at of the codec) is an object"),
        (b'{"p": {"a": "[]"}}', "the producer encodes twice"),
        (b'{"p": {"a": [{"n": 1}, 7]}}', "each row is a JSON object, but /p/a/1 is a number"),
        (b'{"p": {"a": [{"n": 1}, null]}}', "each row is a JSON object, but /p/a/1 is null"),
        (b'{"p": {"a": [{"n": 1}, {"n": [1, null]}]}}', 'key "n" cannot be read'),
        (b'{"p": {"a": [{"n": 1},]}}', "the payload is no JSON"),
        (b'{"p": {"a": [{"n": 1}]}} 1', "more follows its value"),
        (b'{"p": {"a": [{"n": 1}, {"o": ' + b"[" * 40 + b"]" * 40 + b"}]}}", "max_depth"),
    ],
)
def test_of_a_list_all_records_fail_together(payload: bytes, said: str) -> None:
    assert said in why(payload, each=True)


@pytest.mark.parametrize(
    ("pointer", "payload"),
    [
        ("/a~1b/~0c", b'{"a/b": {"~c": {"n": 3}}}'),
        ("/", b'{"": {"n": 3}}'),
        ("/l/1", b'{"l": [{"n": 1}, {"n": 3}, {"n": 2}]}'),
        ("/1", b'[[], {"n": 3}]'),
        ("/o/1", b'{"o": {"1": {"n": 3}}}'),
        ("/a", b'{"\\u0061": {"n": 3}}'),
        ("/a", b'{"a": {"n": 1}, "a": {"n": 3}}'),
        ("/a", b'{"a": null, "a": {"n": 3}}'),
        ("/a", b'{"a": {"n": 1, "n": 3}}'),
        ("/é", '{"é": {"n": 3}}'.encode()),
        ("/a", b'\xef\xbb\xbf {"a" :\n{ "n" : 3 } }\r\n'),
    ],
)
def test_a_pointer_goes_by_keys_and_elements(pointer: str, payload: bytes) -> None:
    found = decoded([payload], at=pointer)
    assert [row["n"] for row in found.batch.to_list()] == [3]


@pytest.mark.parametrize("pointer", ["/l/01", "/l/-", "/l/+1", "/l/2", "/l/x", "/l/1/n/0", "/a" * 200])
def test_a_place_that_is_no_place_of_an_array_is_absent(pointer: str) -> None:
    found = decoded([b'{"l": [{"n": 1}, {"n": 2}]}'], at=pointer)
    assert "there is nothing at " + pointer in str(found.failed[10])


def test_each_record_of_a_list_gets_the_values_around_it() -> None:
    payloads = [
        b'{"site": "s", "meters": [{"n": 1}, {"n": 2, "site": "own"}], "at": {"z": 5}}',
        b'{"meters": [], "site": "s"}',
        b'{"meters": [{"n": 3}]}',
        b'{"meters": [{"n": 4}], "site": null}',
    ]
    found = decoded(payloads, ["n", "site"], at="/meters", each=True, outer={"site": "/site", "z": "/at/z"})
    assert not found.failed
    assert found.batch.rows.tolist() == [10, 10, 12, 13]
    assert results(found) == [b'{"n":1,"site":"s","z":5}', b'{"n":2,"site":"s","z":5}', b'{"n":3}', b'{"n":4}']


def test_outer_counts_from_the_payload_and_fields_from_the_record() -> None:
    payload = b'{"k": 1, "p": {"k": 2, "a": {"k": 3, "i": {"k": 4}}}}'
    outer = {"top": "/k", "beside": "/p/k", "own": "/p/a/i/k", "none": "/i/k"}
    found = decoded([payload], list(outer), outer=outer, fields={"inner": "/i/k", "i": "/k"})
    assert [dict(row) for row in found.batch.to_list()] == [
        {"k": 3, "inner": 4, "i": 3, "top": 1, "beside": 2, "own": 4},
    ]


def test_an_outer_value_that_no_data_can_hold_fails_the_payload_only_if_it_is_read() -> None:
    payloads = [b'{"m": [{"n": 1}, {"n": 2}], "s": [1, null]}', b'{"m": [{"n": 3}], "s": 1}']
    found = decoded(payloads, ["n"], at="/m", each=True, outer={"s": "/s"})
    assert results(found) == [b'{"n":1,"s":[1, null]}', b'{"n":2,"s":[1, null]}', b'{"n":3,"s":1}']
    found = decoded(payloads, ["n", "s"], at="/m", each=True, outer={"s": "/s"})
    assert list(found.failed) == [10]
    assert results(found) == [b'{"n":3,"s":1}']


def test_a_large_value_around_many_records_does_not_multiply_without_a_limit() -> None:
    """A hostile payload of 2 MB would otherwise make 100 GB."""
    payload = b'{"s": "' + b"x" * 1_000_000 + b'", "m": [' + b",".join([b"{}"] * 100_000) + b"]}"
    found = decoded([payload], at="/m", each=True, outer={"s": "/s"})
    assert "max_bytes" in str(found.failed[10])
    found = decoded([payload], at="/m", each=True)
    assert found.batch.size == 100_000


def test_the_limits_of_a_record_count_what_is_around_it_but_not_the_other_records_of_a_list() -> None:
    record = {"a": 1, "b": 2, "c": 3}
    enclosed = json.dumps({"m": [record] * 500, "s": [1, 2]}).encode()
    assert decoded([enclosed], at="/m", each=True, max_keys=3, outer={"s": "/s"}).batch.size == 500
    assert "max_keys" in str(decoded([enclosed], at="/m", each=True, max_keys=2).failed[10])
    assert "max_elements" in str(decoded([enclosed], at="/m", each=True, max_elements=400).failed[10])
    assert "max_elements" in str(decoded([enclosed], at="/m", each=True, max_elements=498).failed[10])
    assert "max_depth" in str(
        decoded([b'{"m": [{}], "s": [[[[]]]]}'], at="/m", each=True, max_depth=2, outer={"s": "/s"}).failed[10]
    )
    around = json.dumps({"p": {"a": record, **dict.fromkeys("defghi", 0)}}).encode()
    assert "max_keys" in str(decoded([around], max_keys=6).failed[10])
    assert not decoded([around], max_keys=7).failed


def test_missing_numbers_may_be_in_and_around_records() -> None:
    payloads = [b'{"s": NaN, "m": [{"n": nan, "x": 1}, {"n": 2}]}', b'{"s": 1, "m": [{"n": 3}], "t": [inf]}']
    found = decoded(payloads, ["n", "s"], at="/m", each=True, outer={"s": "/s"}, read_nan="missing")
    assert [dict(row) for row in found.batch.to_list()] == [{"x": 1}, {"n": 2}, {"n": 3, "s": 1}]
    assert decoded([b'{"m": nan}'], at="/m", read_nan="missing").batch.size == 0


def test_outer_values_may_have_stated_types() -> None:
    payloads = [b'{"s": "1.5", "m": [{"n": "1"}, {"n": 2}]}', b'{"s": "on", "m": [{"n": "3"}]}']
    types = {"s": "number", "n": "number"}
    found = decoded(payloads, ["n", "s"], at="/m", each=True, outer={"s": "/s"}, types=types)
    assert [dict(row) for row in found.batch.to_list()] == [{"n": 1, "s": 1.5}, {"n": 2, "s": 1.5}]
    assert 's: "on" is no number' in str(found.failed[11])
    unread = decoded(payloads, ["n"], at="/m", each=True, outer={"s": "/s"}, types=types)
    assert results(unread)[2] == b'{"n":3.0,"s":"on"}'


def test_the_data_of_a_cloud_event_may_be_an_envelope() -> None:
    codec = codec_of({"type": "cloudevents", "codec": {"type": "json", "at": "/m", "each": True, "outer": {"s": "/s"}}})
    attributes = {"specversion": "1.0", "id": "1", "source": "/x", "type": "y"}
    events = [{**attributes, "data": data} for data in ({"s": 1, "m": [{"n": 1}, {"n": 2}]}, {"m": None}, {"s": 2})]
    found = codec.decode(records_of([Message(json.dumps(event).encode()) for event in events], "bus"), None)
    assert found.batch.to_list() == [Data({"n": 1, "s": 1}), Data({"n": 2, "s": 1})]
    assert found.batch.rows.tolist() == [0, 0]
    assert "there is nothing at /m" in str(found.failed[2])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"at": "p/a"}, "begins with a slash: /p/a"),
        ({"at": "/~2"}, "~0"),
        ({"outer": {"s": "/s"}}, "without at the payload is the record"),
        ({"at": "/m", "outer": {"s": "s"}}, "begins with a slash: /s"),
        ({"at": "/m", "outer": {"@type": "/s"}}, "reserved"),
        ({"at": "/m", "outer": {"s": "/s"}, "fields": {"s": "/t"}}, '"s" is in fields and in outer'),
        ({"att": "/m"}, 'did you mean "at"'),
    ],
)
def test_a_wrong_place_is_refused_when_the_file_is_loaded(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        codec_of({"type": "json", **setting})
