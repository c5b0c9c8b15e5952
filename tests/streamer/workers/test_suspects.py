"""Suspects and convictions: what the notes of dead workers show."""

from __future__ import annotations

import signal

import pytest

from streamer.workers.board import Entry
from streamer.workers.notes import Note, Span
from streamer.workers.suspects import EXPIRY, Cause, Suspects

PLACE = ("digits", "kafka", "images/3")
CRASH = Cause(signal.SIGSEGV)
KILLED = Cause(signal.SIGKILL)


def note(first: int, last: int | None = None, service: str = "digits", *, whole: bool = True) -> Note:
    return Note(0.0, (Span(service, "kafka", "images/3", first, first if last is None else last),), whole)


def entries(suspects: Suspects) -> tuple[Entry, ...]:
    return suspects.board().places.get(PLACE, ())


def test_a_batch_that_ran_at_a_death_is_suspect() -> None:
    suspects = Suspects()
    verdict = suspects.died([note(100, 199)], CRASH, 0.0)
    assert verdict.convicted == ()
    assert entries(suspects) == (Entry(100, 199),)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (CRASH, "signal 11 while this record was run alone"),
        (Cause(signal.SIGABRT), "signal 6 while this record was run alone"),
        (Cause(signal.SIGKILL, hung=120.0), "no end after 120 s while this record was run alone"),
    ],
)
def test_a_record_that_ran_alone_at_a_crash_or_a_hang_is_convicted_at_once(cause: Cause, reason: str) -> None:
    suspects = Suspects()
    suspects.died([note(100, 103)], cause, 0.0)
    ((place, position, why),) = suspects.died([note(102)], cause, 1.0).convicted
    assert (place, position, why) == (PLACE, 102, reason)
    assert entries(suspects) == (Entry(100, 101), Entry(102, 102, reason), Entry(103, 103))


def test_a_record_that_ran_alone_at_a_sigkill_is_convicted_the_second_time() -> None:
    suspects = Suspects()
    assert suspects.died([note(7)], KILLED, 0.0).convicted == ()
    (convicted,) = suspects.died([note(7)], KILLED, 1.0).convicted
    assert convicted.reason == "signal 9 while this record was run alone, twice"


def test_sigkills_of_different_records_convict_none() -> None:
    suspects = Suspects()
    for position in range(50):
        assert suspects.died([note(position)], KILLED, 0.0).convicted == ()


def test_the_only_suspect_among_several_threads_is_convicted() -> None:
    suspects = Suspects()
    suspects.died([note(100, 199)], CRASH, 0.0)
    (convicted,) = suspects.died([note(150), note(0, 50, "other")], CRASH, 1.0).convicted
    assert convicted.position == 150


def test_records_that_ran_alone_at_the_same_time_need_three_deaths() -> None:
    suspects = Suspects()
    assert suspects.died([note(1), note(10, 12, service="other")], CRASH, 0.0).convicted == ()
    assert suspects.died([note(1), note(10, service="other")], CRASH, 1.0).convicted == ()
    assert [each.position for each in suspects.died([note(1), note(11, service="other")], CRASH, 2.0).convicted] == [1]


def test_a_note_without_all_its_records_convicts_none() -> None:
    assert Suspects().died([note(1, whole=False)], CRASH, 0.0).convicted == ()


def test_what_is_acknowledged_is_no_longer_suspect() -> None:
    suspects = Suspects()
    suspects.died([note(100, 199)], CRASH, 0.0)
    suspects.died([note(150)], CRASH, 0.0)
    assert suspects.acknowledged({PLACE: 140})
    assert [(entry.first, entry.last) for entry in entries(suspects)] == [(140, 149), (150, 150), (151, 199)]
    assert not suspects.acknowledged({PLACE: 140, ("other", "kafka", "0"): 5})
    assert suspects.acknowledged({PLACE: 200})
    assert not suspects.board()


def test_a_record_that_was_acknowledged_starts_afresh() -> None:
    suspects = Suspects()
    suspects.died([note(7)], KILLED, 0.0)
    suspects.acknowledged({PLACE: 8})
    assert suspects.died([note(7)], KILLED, 1.0).convicted == ()


def test_suspects_known_by_digests_expire_and_the_convicted_stay() -> None:
    suspects = Suspects()
    spans = tuple(Span("digits", "mqtt", "0", digest, digest, True) for digest in (5, -3))
    suspects.died([Note(0.0, spans, True)], CRASH, 0.0)
    suspects.died([Note(0.0, spans[:1], True)], CRASH, 1.0)
    assert not suspects.acknowledged({("digits", "mqtt", "0"): 1 << 62})
    assert not suspects.expire(EXPIRY)
    assert suspects.expire(EXPIRY + 2)
    (entry,) = suspects.board().places["digits", "mqtt", "0"]
    assert (entry.first, entry.convicted, entry.digest) == (5, True, True)
    assert suspects.halve()
    assert not suspects.halve()


def test_deaths_in_overlapping_batches_are_joined() -> None:
    suspects = Suspects()
    for first, last in ((10, 19), (30, 39), (15, 29), (50, 59)):
        suspects.died([note(first, last)], KILLED, 0.0)
    assert entries(suspects) == (Entry(10, 39), Entry(50, 59))
