"""NaN and infinity as bare words, which programs in C and Python write though JSON has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from connectors.codec import Decoded
from connectors.codecs.registry import codec_of
from connectors.message import Message, records_of

pytestmark = pytest.mark.usefixtures("hot_path")

WORDS = ["NaN", "nan", "-nan", "NAN", "Infinity", "-Infinity", "inf", "-inf", "INF"]


def decoded(payloads: Sequence[bytes], wanted: Sequence[str] = ("t",), **options: Any) -> Decoded:
    codec = codec_of({"type": "json", **options})
    return codec.decode(records_of([Message(payload) for payload in payloads], "bus"), frozenset(wanted))


def passed_through(decoded: Decoded) -> list[bytes | None]:
    return list(codec_of("json").encode(decoded.batch).values)


@pytest.mark.parametrize("word", WORDS)
def test_a_number_that_is_none_fails_its_record_and_the_error_names_it_and_the_remedy(word: str) -> None:
    found = decoded([b'{"t": 1.5}', f'{{"u": 1, "t": {word}}}'.encode()])
    assert list(found.failed) == [1]
    assert f"{word} is no number there" in str(found.failed[1])
    assert "read_nan: missing" in str(found.failed[1])


@pytest.mark.parametrize("word", WORDS)
def test_a_number_that_is_none_is_missing_if_asked_for(word: str) -> None:
    payloads = [b'{"t": 1.5, "u": 1}', f'{{"t":{word},"u":2}}'.encode(), f'{{"u":3 , "t" : {word} }}'.encode()]
    for wanted in (["t"], ["u"], ["zzz"]):
        found = decoded(payloads, wanted, read_nan="missing")
        assert not found.failed
        assert passed_through(found) == [b'{"t":1.5,"u":1}', b'{"u":2}', b'{"u":3}']
        assert found.batch["t"].mask is not None
        assert found.batch["t"].mask.tolist() == [True, False, False]


def test_inside_of_a_value_it_becomes_null_so_that_results_are_json() -> None:
    payload = b'{"l": [1, NaN, 2], "o": {"k": -inf, "nan": 1}, "s": "nan, \\" -inf", "inf": 1.10}'
    found = decoded([payload], read_nan="missing")
    assert passed_through(found) == [b'{"l":[1, null, 2],"o":{"k": null, "nan": 1},"s":"nan, \\" -inf","inf":1.10}']
    assert "null" in str(decoded([payload], ["l"], read_nan="missing").failed[0])


def test_of_a_key_that_is_there_twice_the_last_value_counts_also_if_it_is_missing() -> None:
    payloads = [b'{"t": 1, "t": NaN}', b'{"t": NaN, "t": 2}', b'{"t": NaN, "t": NaN}', b'{"t": 4}']
    found = decoded(payloads, read_nan="missing")
    assert [row.get("t") for row in found.batch.to_list()] == [None, 2, None, 4]


def test_fields_may_be_missing_in_the_same_way() -> None:
    payloads = [b'{"a": NaN, "b": [1, inf]}', b'{"a": 1, "b": [2, 3]}']
    found = decoded(payloads, ["t", "u"], read_nan="missing", fields={"t": "/a", "u": "/b/1"})
    assert [(row.get("t"), row.get("u")) for row in found.batch.to_list()] == [(None, None), (1, 3)]


def test_each_record_of_a_payload_may_lack_its_number() -> None:
    found = decoded([b'[{"t": 1}, {"t": nan}]', b'{"t": nan}\n{"t": 2}'], read_nan="missing", each=True)
    assert [row.get("t") for row in found.batch.to_list()] == [1, None, None, 2]


@pytest.mark.parametrize(
    "broken",
    [b'{"t": nanny}', b'{"t": -}', b'{"t": +nan}', b'{"t": 1nan}', b'{"t": nan1}', b'{nan: 1}', b'{"t": - nan}',
     b'{"t": nan', b"nan", b'{"t": NaN, "u": tru}', b'{"t": NaN, "u": "}'],
)  # fmt: skip
def test_what_is_broken_stays_broken(broken: bytes) -> None:
    found = decoded([b'{"t": NaN}', broken, b'{"t": 2}'], read_nan="missing")
    assert list(found.failed) == [1]
    assert found.batch["t"].mask is not None


def test_a_text_of_escapes_without_an_end_is_refused_at_once() -> None:
    found = decoded([b'{"t": NaN, "u": "' + b'\\"' * 1_000_000], read_nan="missing")
    assert list(found.failed) == [0]
