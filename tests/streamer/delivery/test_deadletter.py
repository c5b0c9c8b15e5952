"""Dead letters and the way back to the records that they were."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from connectors.coded import Coded
from connectors.records import Header, Lane, Records, Span
from pipelines.data.columns import MISSING, Column
from pipelines.errors import StepError
from streamer.delivery.deadletter import NAMES, PREFIX, SHORT_NAMES, Letter, dead_letters, original


def records(topic: str, headers: list[Header]) -> Records:
    return Records(
        source="kafka",
        values=[b"payload"],
        keys=[b"key"],
        positions=np.array([41], np.int64),
        spans=[Span(Lane("kafka", "3", 0), 0, 1)],
        topics=[topic],
        partitions=[3],
        byte_count=10,
        headers=lambda: [headers],
        timestamps=lambda: np.array([1234], np.int64),
    )


def buried(topic: str, headers: list[Header]) -> list[Header]:
    letters = dead_letters(records(topic, headers), 0, {0: Letter.of(StepError("broken", step="scale"))}, "digits")
    assert letters.headers is not None
    return list(letters.headers[0] or ())


def test_a_dead_letter_says_where_its_record_was_and_gives_its_headers_back() -> None:
    own: list[Header] = [("trace", b"a"), ("trace", b"b"), ("empty", None), ("streamer-like", b"mine")]
    found = original(buried("images", own))
    assert found is not None
    assert (found.topic, found.partition, found.offset, found.timestamp) == ("images", 3, 41, 1234)
    assert (found.step, found.error, found.text) == ("scale", "StepError", "broken")
    assert found.headers == own


def test_a_header_of_the_record_cannot_say_where_it_is_replayed_to() -> None:
    own: list[Header] = [(PREFIX + "topic", b"payments"), (PREFIX + "step", b"none")]
    found = original(buried("images", own))
    assert found is not None
    assert (found.topic, found.step) == ("images", "scale")
    assert found.headers == own


def test_a_dead_letter_that_died_again_goes_back_one_way_at_a_time() -> None:
    once = buried("images", [("trace", b"a")])
    twice = original(buried("images.dead", once))
    assert twice is not None
    assert twice.topic == "images.dead"
    back = original(twice.headers)
    assert back is not None
    assert (back.topic, back.headers) == ("images", [("trace", b"a")])


def test_every_header_of_ours_is_known_by_name() -> None:
    assert [name for name, _ in buried("images", [])] == [PREFIX + name for name in NAMES]


def test_a_dead_letter_says_of_which_topic_its_row_was_and_what_else_its_source_said() -> None:
    lane = Lane("bus", "0", 0)
    extras: dict[str, Callable[[], Column]] = {
        "qos": lambda: Column.of([1, 2, 0]),
        "correlation": lambda: Column.of([MISSING, b"\xff", b"plain"]),
        "content_type": lambda: Column.of(["text/plain", MISSING, "\ud800"]),
    }
    block = Records(
        "bus", [b"0", b"1", b"2"], None, np.arange(3, dtype=np.int64), [Span(lane, 0, 3)],
        Coded.of(["a/1", "a/2", "a/1"]), [0], 3, extras=extras,
    )  # fmt: skip
    failed = {row: Letter.of(ValueError("no")) for row in range(3)}
    letters = dead_letters(block, 0, failed, "digits")
    assert letters.headers is not None
    found = [original(headers) for headers in letters.headers]
    assert [one.topic for one in found if one] == ["a/1", "a/2", "a/1"]
    assert [one.record for one in found if one] == [
        {"qos": 1, "content_type": "text/plain"},
        {"qos": 2, "correlation": b"\xff"},
        {"qos": 0, "correlation": b"plain", "content_type": "?"},
    ]
    assert [one.headers for one in found if one] == [[], [], []]


@pytest.mark.parametrize("document", [b"", b"[]", b"{", b"\xff", b'{"a": {"base64": "%"}}', b"[" * 100_000])
def test_a_letter_that_a_stranger_wrote_may_say_anything_of_its_record(document: bytes) -> None:
    found = original([(PREFIX + "record", document), *buried("images", [])])
    assert found is not None
    assert found.topic == "images"
    assert found.record in ({}, {"a": b""})


def test_a_header_of_the_record_is_not_what_its_source_said_of_it() -> None:
    own: list[Header] = [(PREFIX + "record", b'{"qos": 1}')]
    found = original(buried("images", own))
    assert found is not None
    assert (found.record, found.headers) == ({}, own)


def test_a_letter_without_payload_says_which_it_was_and_keeps_the_headers_of_its_record() -> None:
    own: list[Header] = [("trace", b"a"), (PREFIX + "left-out", b"mine")]
    failure = Letter.of(StepError("broken " * 1000, step="scale"))
    short = failure.shorter("too large")
    assert short is not None
    letters = dead_letters(records("images", own), 0, {0: short}, "digits")
    found = original(letters.headers[0] if letters.headers else None)
    assert found is not None
    assert (found.topic, found.partition, found.offset, found.left_out) == ("images", 3, 41, "payload")
    assert (found.size, found.sha256) == (7, hashlib.sha256(b"payload").hexdigest())
    assert (found.refusal, found.headers) == ("too large", own)
    assert letters.keys == [b"key"]


def test_the_shortest_letter_is_short_whatever_its_record_and_failure_were() -> None:
    long = "\U0001f600" * 5000
    short: Letter | None = Letter.of(StepError(long, step=long))
    for _ in range(2):
        assert short is not None
        short = short.shorter(long)
    assert short is not None
    assert short.shorter(long) is None
    own: list[Header] = [("trace", b"a" * 10_000)]
    letters = dead_letters(records("i" * 249, own), 0, {0: short}, "s" * 200)
    assert letters.headers is not None
    headers = sum(len(name) + len(value or b"") for name, value in letters.headers[0] or ())
    assert headers + len(letters.values[0] or b"") + len(letters.keys[0] or b"") < 9000  # type: ignore[index]
    assert letters.keys == [b"i" * 249 + b"-3-41"]


def test_a_record_cannot_have_its_letter_taken_for_one_without_payload() -> None:
    own: list[Header] = [(PREFIX + name, b"1") for name in (*SHORT_NAMES, *NAMES)]
    found = original(buried("images", own))
    assert found is not None
    assert (found.topic, found.left_out, found.size, found.sha256) == ("images", "", -1, "")
    assert found.headers == own


def test_headers_of_other_records_are_none_of_a_dead_letter() -> None:
    assert original([("trace", b"a")]) is None
    assert original(None) is None


WINDOW = b'{"sum": 6, "count": 3}'


def test_the_letter_of_a_window_has_the_window_in_place_of_the_payload_and_says_so() -> None:
    letter = Letter.of(StepError("broken", step="fault"), WINDOW)
    letters = dead_letters(records("images", [("trace", b"a")]), 0, {0: letter}, "digits")
    assert (list(letters.values), list(letters.keys or ())) == ([WINDOW], [b"key"])
    assert letters.headers is not None
    read = original(letters.headers[0])
    assert read is not None
    assert (read.is_window, read.topic, read.offset, read.headers) == (True, "images", 41, [("trace", b"a")])


class Unwritable:
    """The payload of a record that no bytes can be made of."""

    def payload(self) -> bytes:
        raise ValueError("no picture was ever decoded")


def test_the_letter_of_a_window_is_whole_although_the_payload_of_its_last_record_cannot_be_written() -> None:
    unwritable = replace(records("images", []), values=[Unwritable()])
    error = StepError("broken", step="fault")
    (window,), (short,) = (
        list(dead_letters(unwritable, 0, {0: Letter.of(error, window)}, "digits").values) for window in (WINDOW, None)
    )
    assert window == WINDOW
    assert b"no picture was ever decoded" in short


def test_a_header_of_the_record_cannot_say_that_it_is_a_window() -> None:
    read = original(buried("images", [(PREFIX + "window", b"json")]))
    assert read is not None
    assert not read.is_window


def test_the_letter_of_a_window_that_is_too_large_describes_the_window() -> None:
    letter = Letter.of(StepError("broken", step="fault"), WINDOW).shorter("too large")
    while letter is not None:
        letters = dead_letters(records("images", []), 0, {0: letter}, "digits")
        assert letters.headers is not None
        read = original(letters.headers[0])
        assert read is not None
        assert (read.is_window, read.size, read.sha256) == (True, len(WINDOW), hashlib.sha256(WINDOW).hexdigest())
        letter = letter.shorter("too large")
