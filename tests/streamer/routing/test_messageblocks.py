"""Blocks of messages: some of them, without some of them, two in one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from connectors.records import Messages
from streamer.routing.messageblocks import in_row_order, without


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def plain(*rows: int) -> Messages:
    """A message for each row, with everything that a message can have."""
    return Messages(
        ints(*rows),
        [b"v%d" % row for row in rows],
        [b"k%d" % row for row in rows],
        [[("h", b"%d" % row)] for row in rows],
        ints(*rows) * 10,
        [f"t{row}" for row in rows],
    )


def windows(*parents: list[int]) -> Messages:
    """A message for each list of rows."""
    rows = [row for one in parents for row in one]
    return Messages(
        ints(*rows), [b"w%d" % n for n in range(len(parents))], splits=ints(0, *np.cumsum([*map(len, parents)]))
    )


def told(messages: Messages) -> list[tuple[bytes | None, list[int]]]:
    return [(value, messages.parents(at).tolist()) for at, value in enumerate(messages.values)]


def test_the_chosen_messages_keep_all_their_columns() -> None:
    found = plain(4, 5, 6).take(ints(2, 0))
    assert told(found) == [(b"v6", [6]), (b"v4", [4])]
    assert found.keys == [b"k6", b"k4"]
    assert found.headers == [[("h", b"6")], [("h", b"4")]]
    assert found.timestamps is not None
    assert found.timestamps.tolist() == [60, 40]
    assert found.topics == ["t6", "t4"]


def test_columns_that_no_message_has_stay_away() -> None:
    found = Messages(ints(1, 2), [b"a", b"b"]).take(ints(1))
    assert (found.keys, found.headers, found.timestamps, found.topics, found.splits) == (None,) * 5


def test_chosen_windows_keep_all_their_parents() -> None:
    messages = windows([1, 2], [], [3], [4, 5, 6])
    assert told(messages.take(ints(3, 1, 0))) == [(b"w3", [4, 5, 6]), (b"w1", []), (b"w0", [1, 2])]
    assert told(messages.take(ints())) == []


def test_messages_of_rows_that_failed_are_left_out() -> None:
    assert told(without(plain(4, 5, 6), [5, 99])) == [(b"v4", [4]), (b"v6", [6])]
    same = plain(1)
    assert without(same, [2]) is same


def test_a_window_is_left_out_with_any_of_its_rows() -> None:
    messages = windows([1, 2], [], [3], [4, 5, 6], [])
    assert told(without(messages, [5, 1])) == [(b"w1", []), (b"w2", [3]), (b"w4", [])]


def test_a_row_that_failed_takes_all_its_messages_along() -> None:
    messages = Messages(ints(1, 2, 2, 3), [b"a", b"b", b"c", b"d"])
    assert told(without(messages, [2])) == [(b"a", [1]), (b"d", [3])]


def test_two_blocks_become_one_in_the_order_of_their_rows() -> None:
    tombstones = Messages(ints(3, 8), [None, None], [b"x", b"y"])
    found = in_row_order(plain(2, 4, 4, 9), tombstones)
    assert told(found) == [(b"v2", [2]), (None, [3]), (b"v4", [4]), (b"v4", [4]), (None, [8]), (b"v9", [9])]
    assert found.keys == [b"k2", b"x", b"k4", b"k4", b"y", b"k9"]
    assert found.headers is not None
    assert [one is None for one in found.headers] == [False, True, False, False, True, False]


@pytest.mark.parametrize(("first", "second"), [(plain(1), plain()), (plain(), plain(1))])
def test_a_block_and_nothing_is_the_block(first: Messages, second: Messages) -> None:
    assert told(in_row_order(first, second)) == [(b"v1", [1])]


def test_windows_stand_where_their_last_row_does() -> None:
    found = in_row_order(windows([0, 1, 4], [5]), Messages(ints(2, 4, 6), [None] * 3))
    assert told(found) == [(None, [2]), (b"w0", [0, 1, 4]), (None, [4]), (b"w1", [5]), (None, [6])]
