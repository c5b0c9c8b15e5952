"""Headers of records with those that a sink adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamer.routing.sinkroute import _merged


class MadeRowByRow:
    """A column that makes the headers of a row when it is read, and keeps none."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        return ([("n", b"%d" % number)] for number in range(self.count))


def test_each_row_keeps_its_headers_though_nobody_keeps_the_objects() -> None:
    column: Any = MadeRowByRow(300)
    added = [(("v", b"1"),), (("v", b"2"),)] * 150
    merged = _merged(column, added)
    assert [dict(row or ()) for row in merged] == [
        {"n": b"%d" % number, "v": b"12"[number % 2 : number % 2 + 1]} for number in range(300)
    ]


def test_what_is_added_replaces_headers_of_its_name_in_any_case_of_letters() -> None:
    assert _merged([[("V", b"0"), ("a", b"1")], None], [[("v", b"1")], []]) == [(("a", b"1"), ("v", b"1")), None]
