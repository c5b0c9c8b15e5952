"""Dead letters in the log."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.errors import StepError
from streamer.delivery.letterlog import BURST, LetterLog


class Log:
    """Keeps what is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **what: Any) -> None:
        self.lines.append((event, what))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be set."""
    now = [100.0]
    monkeypatch.setattr("streamer.delivery.letterlog.time.monotonic", lambda: now[0])
    return now


def add(letters: LetterLog, *numbers: int) -> None:
    letters.add({number: StepError(f"no {number}") for number in numbers}, lambda row: f"t[0]@{row}")


def test_a_few_dead_letters_are_logged_one_by_one(clock: list[float]) -> None:
    log = Log()
    letters = LetterLog(log, "dead letter")
    add(letters, 1, 2)
    assert log.lines == [
        ("dead letter", {"at": "t[0]@1", "error": "no 1"}),
        ("dead letter", {"at": "t[0]@2", "error": "no 2"}),
    ]


def test_of_many_in_a_second_the_rest_is_counted_and_told_when_it_is_over(clock: list[float]) -> None:
    log = Log()
    letters = LetterLog(log, "dead letter")
    add(letters, *range(BURST + 5))
    letters.tell()
    assert len(log.lines) == BURST
    assert letters.untold == 5
    clock[0] += 1.0
    add(letters, 99)
    assert log.lines[BURST:] == [
        ("more dead letters", {"records": 5}),
        ("dead letter", {"at": "t[0]@99", "error": "no 99"}),
    ]


def test_at_the_end_none_is_left_untold(clock: list[float]) -> None:
    log = Log()
    letters = LetterLog(log, "dead letter")
    add(letters, *range(BURST + 1))
    letters.tell(now=True)
    letters.tell(now=True)
    assert log.lines[BURST:] == [("more dead letters", {"records": 1})]
