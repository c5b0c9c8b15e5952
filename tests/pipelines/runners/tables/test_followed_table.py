"""Tables that are followed: what becomes of rows, and of readers that stand still, fail or end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from waiting import until

from pipelines.data.columns import MISSING, Column
from pipelines.errors import StreamerError
from pipelines.plugins.tables import TableRows
from pipelines.runners.tables import followedtable, rowsbykey
from pipelines.runners.tables.followedtable import FollowedTable
from pipelines.runners.tables.rowsbykey import RowsByKey
from pipelines.runners.tables.tablefile import Limits

Row = tuple[Any, Any]
"""A key and a value: `None` for a tombstone, an exception for a record that cannot be read."""


def rows(*given: Row) -> TableRows:
    values = [value for _, value in given]
    return TableRows(
        [key for key, _ in given],
        {"line": [MISSING if isinstance(value, (Exception, type(None))) else value for value in values]},
        [10] * len(given),
        frozenset(row for row, value in enumerate(values) if value is None),
        {row: value for row, value in enumerate(values) if isinstance(value, Exception)},
    )


def table(most_rows: int = 100, most_bytes: int = 10_000) -> RowsByKey:
    limits = Limits(most_rows, most_bytes)
    return RowsByKey("topic t", "id", "text", "", {"line": "line"}, {}, limits)


def lines(rows: RowsByKey, *keys: str) -> list[Any]:
    """The value that a record with each key gets, `None` without a row."""
    columns, absent = rows.looked_up([Column.of(list(keys))], {})
    values = columns["line"].values()
    return [None if place in absent else value for place, value in enumerate(values)]


class Bus:
    """What readers get, one block at each poll. Then there is no more, or the error that the test puts."""

    def __init__(self, *blocks: TableRows) -> None:
        self.blocks = list(blocks)
        self.later: list[TableRows | Exception] = []
        self.opened = self.closed = 0
        self.silent = False

    def reader(self) -> Reader:
        return Reader(self)

    def followed(self, rows: Callable[[], RowsByKey] = table, patience: float = 60, **more: Any) -> FollowedTable:
        return FollowedTable(self.reader, rows, "lines", patience, **more)


class Reader:
    """Reads a `Bus`."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._left = list(bus.blocks)
        self.total = sum(map(len, bus.blocks))

    @property
    def at_end(self) -> bool:
        return not self._left and not self._bus.silent

    def __enter__(self) -> Self:
        self._bus.opened += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._bus.closed += 1

    def poll(self, timeout: float) -> TableRows:
        if self._left:
            return self._left.pop(0)
        if self._bus.later:
            more = self._bus.later.pop(0)
            if isinstance(more, Exception):
                raise more
            return more
        threading.Event().wait(0.002)
        return TableRows()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(followedtable, "AGAIN", 0.02)
    yield
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "table topic t"])


def test_the_last_record_of_a_key_counts_also_within_a_block() -> None:
    there = table()
    there.put(rows(("a", 1), ("b", 1), ("a", 2), ("b", None), ("c", None)))
    assert (lines(there, "a", "b", "c"), there.size, there.bytes) == ([2, None, None], 1, 10)
    there.put(rows(("b", 3), ("a", None)))
    assert (lines(there, "a", "b"), there.size, there.bytes) == ([None, 3], 1, 10)


def test_a_row_that_cannot_be_read_takes_the_one_before_away_and_is_told_until_it_is_right() -> None:
    there = table()
    there.put(rows(("a", 1), ("a", ValueError("no JSON")), (None, 1)))
    assert (lines(there, "a"), there.unread, there.bytes) == ([None], 2, 0)
    assert str(there.no_row([Column.of(["a"])], 0)) == "topic t has no row for id 'a': no JSON"
    there.put(rows(("a", 2)))
    there.put(rows(("a", None)))
    assert str(there.no_row([Column.of(["a"])], 0)) == "topic t has no row for id 'a'"


def test_the_reasons_of_rows_that_cannot_be_read_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowsbykey, "_REASONS", 1)
    there = table()
    there.put(rows(*((key, ValueError(f"no JSON in {key}")) for key in "ab")))
    said = [str(there.no_row([Column.of([key])], 0)) for key in "ab"]
    assert said == ["topic t has no row for id 'a': no JSON in a", "topic t has no row for id 'b'"]
    assert there.unread == 2
    # One that can be read makes room for the reason of another.
    there.put(rows(("a", 1), ("c", ValueError("no JSON in c"))))
    assert str(there.no_row([Column.of(["c"])], 0)) == "topic t has no row for id 'c': no JSON in c"


def test_the_reason_goes_with_the_record_that_could_not_be_read() -> None:
    there = table()
    there.put(rows(("a", ValueError("no JSON"))))
    there.put(rows(("a", None)))
    assert str(there.no_row([Column.of(["a"])], 0)) == "topic t has no row for id 'a'"


def test_a_value_of_another_type_than_the_step_says_fails_its_row_and_one_that_is_missing_does_not() -> None:
    there = RowsByKey("topic t", "id", "text", "", {"line": "line"}, {"line": "integer"}, Limits(100, 10_000))
    there.put(rows(("a", "north"), ("b", 2), ("c", MISSING), ("d", "south")))
    assert (lines(there, "b"), there.size, there.unread) == ([2], 2, 2)
    assert "north" in str(there.no_row([Column.of(["a"])], 0))


@pytest.mark.parametrize(("most", "field"), [((2, 10_000), "maxRows"), ((100, 20), "maxBytes")])
def test_there_is_no_row_that_there_is_no_room_for(most: tuple[int, int], field: str) -> None:
    there = table(*most)
    there.put(rows(("a", 1), ("b", 1)))
    assert (there.refused, there.full) == (0, "")
    there.put(rows(("c", 1), ("a", 2)))
    assert (lines(there, "a", "b", "c"), there.refused) == ([2, 1, None], 1)
    assert f"raise {field} of the step" in str(there.no_row([Column.of(["c"])], 0))
    there.put(rows(("a", None), ("c", 3)))
    assert lines(there, "a", "b", "c") == [None, 1, 3]


def test_a_row_that_grows_beyond_the_room_is_not_there_rather_than_old() -> None:
    there = table(most_bytes=20)
    there.put(rows(("a", 1), ("b", 1)))
    there.put(TableRows(["a"], {"line": [2]}, [11]))
    assert (lines(there, "a", "b"), there.bytes) == ([None, 1], 10)


def test_a_table_that_is_too_large_is_refused_and_its_reader_closed() -> None:
    bus = Bus(rows(("a", 1), ("b", 1), ("c", 1)))
    with pytest.raises(StreamerError, match="more than 2 rows; raise maxRows"):
        bus.followed(lambda: table(2))
    assert (bus.opened, bus.closed) == (1, 1)


def test_a_table_whose_end_does_not_come_is_not_waited_for_without_a_limit() -> None:
    bus = Bus(rows(("a", 1)))
    bus.silent = True
    with pytest.raises(StreamerError, match="no record came for 0 s, after 1 of 1; see whether all brokers run"):
        bus.followed(patience=0.05)
    stopping = threading.Event()
    stopping.set()
    with pytest.raises(StreamerError, match="as the service stops"):
        bus.followed(stopping=stopping)
    assert bus.closed == 2


def test_progress_is_told_while_a_table_is_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(followedtable, "_SHOWN", 0.0)
    told: list[str] = []
    expected = ["reads topic t, 2 records", "has read 1 of 2 records of topic t", "has read 2 of 2 records of topic t"]
    Bus(rows(("a", 1)), rows(("b", 1))).followed(progress=told.append).close()
    assert told == [f"lines {line}" for line in expected]
    caplog.set_level(logging.INFO, "pipelines.runners.tables.followedtable")
    Bus(rows(("a", 1)), rows(("b", 1))).followed().close()
    assert caplog.messages[:3] == [f"lines: {line}" for line in expected]


def test_after_an_error_the_rows_stay_until_the_table_has_been_read_anew(caplog: pytest.LogCaptureFixture) -> None:
    bus = Bus(rows(("a", 1), ("b", 1)))
    live = bus.followed()
    bus.later.append(rows(("a", 2)))
    until(lambda: lines(live.table, "a") == [2])
    before = live.table
    bus.blocks = [rows(("a", 3))]
    bus.later += [StreamerError("the bus is away"), StreamerError("the bus is away")]
    until(lambda: live.table is not before and not bus.later and not live.outdated)
    assert lines(before, "a", "b") == [2, 1], "a batch that runs may have it"
    assert lines(live.table, "a", "b") == [3, None]
    until(lambda: bus.opened == bus.closed + 1)
    assert "lines: topic t is not followed: the bus is away; its 2 rows stay in use" in caplog.messages
    live.close()
    until(lambda: bus.opened == bus.closed)
