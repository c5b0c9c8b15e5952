"""Blocks of `Spans` and `Headers` are taken apart and joined as those of lists are, and keep their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from connectors.blockcolumns import joined, lengths, take_rows, where_null
from connectors.headers import Header, Headers
from connectors.kafka.producer.writing import Sent
from connectors.records import Lane, Messages, Records, Span
from pipelines.data.spans import Spans
from streamer.routing.messageblocks import in_row_order, without

VALUES: list[bytes | None] = [b"a", None, b"", b"dd", b"e"]
KEYS: list[bytes | None] = [None, b"k", b"", None, b"m"]
HEADERS: list[Sequence[Header] | None] = [None, [("n", b"v"), ("n", None)], None, [("ü", b"")], None]


def records(compiled: bool, first: int = 0, keyed: bool = True) -> Records:
    lanes = [Lane("s", "t-0", 1), Lane("s", "t-1", 1)]
    headers = Headers.of(HEADERS) if compiled else HEADERS
    return Records(
        "s",
        Spans.of(VALUES) if compiled else VALUES,
        (Spans.of(KEYS) if compiled else KEYS) if keyed else None,
        np.arange(first, first + 5, dtype=np.int64),
        [Span(lanes[0], 0, 2), Span(lanes[1], 2, 5)],
        ["t", "t"],
        [0, 1],
        9,
        headers=lambda: headers,
        timestamps=lambda: np.arange(5, dtype=np.int64),
    )


def messages(compiled: bool, first: int = 0) -> Messages:
    return Messages(
        np.arange(first, first + 10, 2, dtype=np.int64),
        Spans.of(VALUES) if compiled else VALUES,
        Spans.of(KEYS) if compiled else KEYS,
        Headers.of(HEADERS) if compiled else HEADERS,
    )


def plain(column: Sequence[Any] | None) -> list[Any] | None:
    return None if column is None else [list(one) if isinstance(one, (list, tuple)) else one for one in column]


@pytest.mark.parametrize("rows", [np.array([4, 0, 1, 1]), np.array([True, False, True, True, False]), np.zeros(0, int)])
@pytest.mark.parametrize(("column", "kind"), [(VALUES, Spans), (HEADERS, Headers)])
def test_rows_of_columns_are_those_of_lists(column: Sequence[Any], kind: type[Any], rows: Any) -> None:
    found = take_rows(kind.of(column), rows)
    assert isinstance(found, kind)
    assert plain(found) == plain(take_rows(column, rows)) == plain(list(np.array([*column, 0], object)[:-1][rows]))


def test_columns_next_to_lists_are_joined_to_columns() -> None:
    assert isinstance(joined([Spans.of(VALUES), [None, b"x"]]), Spans)
    assert list(joined([Spans.of(VALUES), [None, b"x"]])) == [*VALUES, None, b"x"]
    assert isinstance(joined([[None], Headers.of(HEADERS)]), Headers)
    assert plain(joined([[None], Headers.of(HEADERS)])) == plain([None, *HEADERS])
    assert joined([[1], [2, 3]]) == [1, 2, 3]


def test_nulls_are_found_in_columns_and_lists() -> None:
    assert where_null(Spans.of(VALUES)) == where_null(VALUES) == [1]


def test_the_bytes_of_columns_and_lists_are_counted_and_a_null_has_none() -> None:
    assert lengths(Spans.of(VALUES)).tolist() == lengths(VALUES).tolist() == [1, 0, 0, 2, 1]
    assert lengths([]).tolist() == []


@pytest.mark.slow
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("keyed", [True, False])
def test_blocks_of_columns_are_joined_and_cut_like_blocks_of_lists(second: bool, keyed: bool) -> None:
    found = Records.concat([records(True), records(second, 5, keyed)])
    wanted = Records.concat([records(False), records(False, 5, keyed)])
    for one, other in (
        (found, wanted),
        (found.of_spans([1, 2]), wanted.of_spans([1, 2])),
        (found.of_spans([]), wanted.of_spans([])),
        *((found.part(start, stop), wanted.part(start, stop)) for start, stop in [(0, 10), (1, 3), (4, 9), (5, 5)]),
    ):
        assert isinstance(one.values, Spans)
        assert isinstance(one.keys, Spans)
        assert list(one.values) == list(other.values)
        assert list(one.keys) == list(other.keys or ())
        assert isinstance(one.header_column(), Headers)
        assert plain(one.header_column()) == plain(other.header_column())
        assert one.spans == other.spans
        assert one.positions.tolist() == other.positions.tolist()
        assert one.timestamp_column().tolist() == other.timestamp_column().tolist()
        assert [one.context(row) for row in range(len(one))] == [other.context(row) for row in range(len(other))]


def test_a_part_of_a_block_is_these_rows_of_it() -> None:
    block = Records.concat([records(True), records(False, 5)])
    for start in range(len(block) + 1):
        for stop in range(start, len(block) + 1):
            part = block.part(start, stop)
            assert [part.context(row) for row in range(len(part))] == [block.context(row) for row in range(start, stop)]
            assert list(part.values) == list(block.values)[start:stop]
            assert [span.stop for span in part.spans[-1:]] == [stop - start] * (stop > start)


def test_messages_of_columns_are_picked_and_merged_like_those_of_lists() -> None:
    tombstones = Messages(np.array([3, 5], np.int64), [None, None], [b"x", None])
    for compiled in (True, False):
        block = messages(compiled)
        picked = block.take(np.array([4, 1], np.int64))
        assert (list(picked.values), list(picked.keys or ())) == ([b"e", None], [b"m", b"k"])
        assert plain(picked.headers) == [None, [("n", b"v"), ("n", None)]]
        assert list(without(block, [0, 8]).values) == VALUES[1:4]
        merged = in_row_order(block, tombstones)
        assert merged.rows.tolist() == [0, 2, 3, 4, 5, 6, 8]
        assert list(merged.values) == [b"a", None, None, b"", None, b"dd", b"e"]
        assert list(merged.keys or ()) == [None, b"k", b"x", b"", None, None, b"m"]
        assert isinstance(merged.values, Spans) is isinstance(merged.headers, Headers) is compiled


def test_a_message_of_columns_can_be_sent_again_alone() -> None:
    for compiled in (True, False):
        only = Sent(messages(compiled), "t").only(1)
        assert (list(only.values), list(only.keys or ()), only.rows.tolist()) == ([None], [b"k"], [2])
        assert plain(only.headers) == [[("n", b"v"), ("n", None)]]
