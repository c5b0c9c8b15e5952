"""Columns of record headers: the same as lists of lists of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.headers import Header, Headers
from pipelines.data.spans import Spans

ROWS = st.lists(
    st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), min_size=1, max_size=3),
    max_size=10,
)
Rows = list[list[Header] | None]


@pytest.mark.slow
@given(ROWS, ROWS)
def test_headers_hold_what_they_were_made_of(a: Rows, b: Rows) -> None:
    assert list(Headers.of(a)) == a
    assert list(Headers.concat([Headers.of(a), Headers.of(b)])) == a + b


def test_headers_of_some_rows_can_be_taken() -> None:
    headers = Headers.of([[("a", b"1"), ("b", None)], None, [("c", b"")]])
    assert list(headers.take(np.array([2, 0]))) == [[("c", b"")], [("a", b"1"), ("b", None)]]
    assert list(headers[1:]) == [None, [("c", b"")]]
    assert list(headers[1:2]) == [None]
    assert list(headers[:0]) == []
    assert list(headers.take(np.array([2, 0, 1, 2]))) == [headers[2], headers[0], None, headers[2]]


def test_headers_of_some_rows_can_be_replaced() -> None:
    headers = Headers.of([[("a", b"1")], None, [("c", b""), ("d", None)]]).take(np.array([2, 1, 0]))
    changed = headers.replaced({1: [("x", b"7")], 0: [("c", b"2")]})
    assert list(changed) == [[("c", b"2")], [("x", b"7")], [("a", b"1")]]
    assert list(headers)[1] is None
    assert list(Headers.none(2).replaced({1: [("x", None)]})) == [None, [("x", None)]]


def test_a_name_that_is_no_text_is_read_all_the_same() -> None:
    one = np.array([0]), np.array([1])
    assert list(Headers(Spans.of([b"a\xff"]), Spans.of([b"v"]), *one)) == [[("a\ufffd", b"v")]]
