"""Columns of byte strings: the same as lists of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.data.spans import Spans

pytestmark = pytest.mark.usefixtures("hot_path")

STRINGS = st.lists(st.none() | st.binary(max_size=20), max_size=20)


@given(STRINGS)
def test_spans_hold_what_they_were_made_of(strings: list[bytes | None]) -> None:
    spans = Spans.of(strings)
    assert list(spans) == strings == [spans[row] for row in range(len(strings))]
    assert spans.byte_count == sum(len(one or b"") for one in strings)
    assert spans.null.tolist() == [one is None for one in strings]
    assert spans == strings


@given(STRINGS, STRINGS)
def test_spans_put_together_are_the_lists_put_together(a: list[bytes | None], b: list[bytes | None]) -> None:
    assert list(Spans.concat([Spans.of(a), Spans.of(b)])) == a + b


def test_rows_that_are_taken_share_the_buffer_until_they_are_made_compact() -> None:
    spans = Spans.of([b"ab", None, b"", b"cde"])
    taken = spans.take(np.array([3, 1, 3]))
    assert list(taken) == [b"cde", None, b"cde"]
    assert taken.buffer is spans.buffer
    assert list(Spans.concat([spans, taken])) == [b"ab", None, b"", b"cde", b"cde", None, b"cde"]
    assert len(taken.compact().buffer) == 6
    assert list(taken.compact()) == list(taken)
    assert list(spans[1:3]) == [None, b""]
    assert spans[-1] == b"cde"


def test_spans_of_one_memory_are_put_together_without_a_copy() -> None:
    """A source gives away what has come so far, as often as something comes."""
    memory = np.frombuffer(b"abcdef", np.uint8)
    first = Spans(memory[:3], np.array([0]), np.array([3]))
    second = Spans(memory[:6], np.array([3, 4]), np.array([1, 2]))
    joined = Spans.concat([first, second])
    assert list(joined) == [b"abc", b"d", b"ef"]
    assert np.shares_memory(joined.buffer, memory)
    shifted = Spans(memory[1:], np.array([0]), np.array([2]))
    assert list(Spans.concat([first, shifted])) == [b"abc", b"bc"]


def test_joined_spans_copy_only_their_own_bytes() -> None:
    large = [b"x" * 1000, b"a", None, b"b"]
    first, second = (Spans.of(large).take(np.array([3, 2, 1])) for _ in range(2))
    joined = Spans.concat([first, second])
    assert list(joined) == [b"b", None, b"a"] * 2
    assert len(joined.buffer) == 4
    assert list(Spans.of(large)[::-2].compact()) == [b"b", b"a"]


def test_spans_of_a_block_that_grew_in_between_are_put_together_without_a_copy() -> None:
    block = np.frombuffer(b"abcdef", np.uint8)
    early = Spans(block[:3], np.array([0, 1]), np.array([1, 2]))
    late = Spans(block[:6], np.array([3]), np.array([3]))
    for parts in ([early, late], [late, early]):
        joined = Spans.concat(parts)
        assert list(joined) == [*parts[0], *parts[1]]
        assert np.shares_memory(joined.buffer, block)
    # These begin elsewhere in the block.
    shifted, reverse = (Spans(one, np.array([0]), np.array([2])) for one in (block[2:], block[::-1]))
    assert list(Spans.concat([early, shifted])) == [b"a", b"bc", b"cd"]
    assert list(Spans.concat([reverse, early])) == [b"fe", b"a", b"bc"]


def test_a_place_outside_is_an_error() -> None:
    with pytest.raises(IndexError):
        Spans.of([b"a"])[1]
