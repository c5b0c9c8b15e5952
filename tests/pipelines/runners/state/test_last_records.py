"""The last record of each key, saved and read back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pipelines import Batch, Data
from pipelines.data.record import RecordContext
from pipelines.errors import StreamerError
from pipelines.runners.state.lastrecords import NO_RECORD, LastRecords


def record(offset: int, key: bytes | None = b"\xff") -> RecordContext:
    return RecordContext("s", "t", 3, offset, key, headers=(("h", b"x"),), timestamp=offset * 10, lane="l")


def test_the_last_record_of_each_key_is_kept_without_what_only_it_has() -> None:
    last = LastRecords()
    batch = Batch.of([Data({}, record=record(n)) for n in range(4)], 100)
    last.note(np.array([7, 8, 7]), batch, np.array([0, 1, 3]))
    assert last.record(7) == RecordContext("s", "t", 3, 3, b"\xff", timestamp=30, lane="l")
    assert last.record(8).offset == 1
    last.drop(np.array([7]))
    assert last.record(7) is NO_RECORD


def test_records_of_several_partitions_keep_their_own() -> None:
    last = LastRecords()
    records = [RecordContext("s", "t", number % 2, number, lane=number % 2) for number in range(5)]
    last.note(np.array([1, 2, 100, 1]), Batch.of([Data({}, record=each) for each in records]), np.array([0, 1, 3, 4]))
    assert [last.record(code) for code in (1, 2, 100)] == [records[4], records[1], records[3]]


@pytest.mark.parametrize("key", [b"\xff\x00a", b"", None])
def test_it_is_read_back_as_it_was_saved_in_another_lane(key: bytes | None) -> None:
    last, again = LastRecords(), LastRecords()
    last.note(np.array([0]), Batch.of([Data({}, record=record(5, key))]), np.array([0]))
    again.load(9, json.loads(json.dumps(last.saved(0))), "other")
    assert again.record(9) == RecordContext("s", "t", 3, 5, key, timestamp=50, lane="other")


@pytest.mark.parametrize("saved", [[], ["s", "t", "x", 0, None, None], ["s", "t", 0, 0, "\u0400", None], 5])
def test_a_damaged_record_is_refused(saved: object) -> None:
    with pytest.raises(StreamerError, match="damaged"):
        LastRecords().load(0, saved, None)  # type: ignore[arg-type]
