"""The quick parser of plain JSON: whatever it reads, Python's own `json` reads as the same."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from pipelines.errors import WireError
from pipelines.wire.jsontext import REFUSED, members, parsed, quickly_parsed

PIECES = [
    *'0123456789-+.eE"\\{}[]:, \n\t/n\x01\x0b\x7f', "true", "false", "null", "NaN", "Infinity", '"a"', '"b":', '{"a":',
    "1.5", "[1,2]", "é", "\u2028", "\ufeff", "\\u00e9", "\\ud83d", "\\ude00", "00", "0.", ".5", "-0", "1e400",
    "9223372036854775808", "18446744073709551616", "12345678901234567890",
]  # fmt: skip


def typed(plain: Any) -> Any:
    """With the type of each number, and the sign of each zero."""
    if isinstance(plain, dict):
        return {key: typed(value) for key, value in plain.items()}
    return [typed(one) for one in plain] if isinstance(plain, list) else (type(plain), repr(plain))


def compare(text: str) -> None:
    try:
        found = quickly_parsed(text.encode())
    except REFUSED:
        return
    assert typed(found) == typed(json.loads(text))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
def test_the_fast_parser_gives_what_python_does(text: str) -> None:
    compare(text)
    compare(f'{{"a":{text}}}')


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
def test_the_values_of_an_object_are_cut_out_of_every_text_that_python_reads_and_of_no_other(text: str) -> None:
    text = f'{{"a":{text},"\\ud800":"\\udc00"}}'
    for piece in (text, text.replace("\\ud800", "b").replace("\\udc00", "")):
        try:
            # NaN and Infinity are no integers.
            found = json.loads(piece, parse_constant=int)
        except ValueError:
            with pytest.raises(WireError):
                members(piece.encode())
        else:
            assert typed({key: parsed(value) for key, value in members(piece.encode()).items()}) == typed(found)


@pytest.mark.slow
@settings(max_examples=examples(50), deadline=None)
@given(st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
def test_numbers_are_python_s_to_the_last_bit(text: str) -> None:
    compare(text)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_json_that_python_writes_is_read_back_equal(plain: Any) -> None:
    assert typed(parsed(json.dumps(plain).encode())) == typed(plain)
    assert typed(parsed(json.dumps(plain, ensure_ascii=False).encode())) == typed(plain)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"9223372036854775808", 2**63),
        (b"-9223372036854775809", -(2**63) - 1),
        (b"18446744073709551616", 2**64),
        (b"1" * 400, int("1" * 400)),
        (b"1e400", math.inf),
        (b'"\\ud800"', "\ud800"),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b"[" * 300 + b"]" * 300, None),
    ],
)
def test_texts_that_the_fast_parser_refuses_are_read_by_python(text: bytes, expected: Any) -> None:
    assert parsed(text) == (json.loads(text) if expected is None else expected)


@pytest.mark.parametrize(
    "text", [b"NaN", b"-Infinity", b"[1, NaN]", b"[" * 100_000, b'{"a":' * 100_000, b"\xef\xbb\xbf1"]
)
def test_nan_infinity_endless_nesting_and_a_byte_order_mark_are_errors(text: bytes) -> None:
    with pytest.raises(WireError):
        parsed(text)
