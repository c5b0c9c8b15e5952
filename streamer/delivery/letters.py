"""`DeadLetters`: sends the dead letters of records that failed, until the sink accepts them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from connectors.records import Ints
from connectors.sink import Voided
from pipelines.errors import ConnectorError, WireError
from streamer.agent.decodedbatch import SOURCE_BITS, DecodedBatch
from streamer.delivery.confirming import Confirming
from streamer.delivery.deadletter import Letter, dead_letters, gathered_json
from streamer.delivery.failures import Failures, ServiceStopped
from streamer.delivery.ledger import Ledger
from streamer.delivery.letterlog import LetterLog, Logged
from streamer.delivery.sending import Sender
from streamer.routing.sinkroute import Failed, Sinks

HOLD = 5.0
"""Seconds that dead letters are held back while it is unknown whether most records fail."""
LET_GO = "the record was not kept until its results were confirmed, as its source is live"
"""Why a letter that is sent after all results lacks the payload."""


class DeadLetters:
    """The dead letters of a service. Owned by the run thread."""

    def __init__(
        self,
        service: str,
        sinks: Sinks,
        ledger: Ledger,
        confirming: Confirming,
        failures: Failures,
        sender: Sender,
        log: Any,
    ) -> None:
        """`service` is its name; `sinks` has the ways of its dead letters."""
        self.waiting = False
        """Whether `release` may have something to do."""
        self.held_back: Failed = {}
        """Rows that failed, whose letters are held back while every record seems to fail."""
        self._held_back_since = 0.0
        self._service = service
        self._sinks = sinks
        self._ledger = ledger
        self._confirming = confirming
        self._failures = failures
        self._sender = sender
        self._sent = LetterLog(log, "dead letter")
        self._answered = LetterLog(log, "error answer")
        self._shortened = LetterLog(log, "shortened dead letter")
        self._logs = self._sent, self._answered, self._shortened

    @property
    def last(self) -> list[Logged]:
        """The last letters; of those that many fail together some. From any thread."""
        # A deque cannot be iterated while it changes, but it can be copied.
        return list(self._sent.last.copy())

    def expect(self, failed: Failed) -> None:
        """Note in the ledger that these rows wait for their letters, if they get any."""
        self._ledger.expect(in_order(self._failures.with_letters(failed)))

    def add(self, failed: Failed) -> None:
        """Send letters, or hold them back while every record seems to fail. The ledger expects them already."""
        failed = self._failures.with_letters(failed)
        if not failed:
            return
        self.waiting = True
        answered, watched = self._failures.apart(failed)
        if answered:
            self._send(answered)
        if not watched:
            return
        if self._failures.suspect is not None:
            if not self.held_back:
                self._held_back_since = time.monotonic()
            self.held_back.update(watched)
            self._confirming.postponed = True
            return
        self.send_held_back()
        self._send(watched)

    def send_held_back(self) -> None:
        """Send the letters that are held back."""
        if self.held_back:
            held_back, self.held_back = self.held_back, {}
            self._confirming.postponed = False
            try:
                self._send(held_back)
            except Voided as error:
                self._confirming.voided(error)

    def release(self, *, now: bool = False) -> None:
        """Send the letters that were held back, once it is clear that not every record fails, or `now`."""
        self.tell(now=now)
        if now or self._failures.suspect is None or time.monotonic() - self._held_back_since >= HOLD:
            self.send_held_back()
        self.waiting = bool(self.held_back or any(log.untold for log in self._logs))

    def tell(self, *, now: bool) -> None:
        """Log how many letters were not logged one by one, if their second is over, or `now`."""
        for log in self._logs:
            if log.untold:
                log.tell(now=now)

    def send_again(self, lost: Mapping[int, ConnectorError]) -> None:
        """Send these lost letters again, by row number: unchanged if the error is retriable, else shorter."""
        # A row that is complete by now was in a lane that has just ended.
        for entry, rows in self._ledger.open_among(in_order(lost)):
            decoded: DecodedBatch = entry.note
            errors = {row: lost[row] for row in rows.tolist()}
            same = {row: decoded.letters[row] for row, error in errors.items() if error.retriable}
            refused = {row: error for row, error in errors.items() if not error.retriable}
            self._send_until_accepted(decoded, {**same, **self._shorter(decoded, refused)})

    def _send(self, failed: Failed) -> None:
        # A row that is complete by now was in a lane that has ended: another consumer has its record.
        for entry, rows in self._ledger.open_among(in_order(failed)):
            decoded: DecodedBatch = entry.note
            errors = {row: failed[row] for row in rows.tolist()}
            route = self._sinks.letter_route(decoded.first >> SOURCE_BITS)
            log = self._answered if route is not None and route.answers else self._sent
            log.add(errors, self._failures.place)
            letters = {row: self._letter(decoded, row, error) for row, error in errors.items()}
            self._send_until_accepted(decoded, letters)

    def _letter(self, decoded: DecodedBatch, row: int, error: Exception) -> Letter:
        """The dead letter of a row, shortened once for each time that the sink has refused it."""
        try:
            letter = Letter.of(error, gathered_json(decoded.gathered, row))
        except WireError as unwritable:
            letter = Letter.of(error, b"")
            letter = self._shortened_by(letter, row, f"its window cannot be written: {unwritable}")
        for refusal in self._confirming.refusals(decoded, row):
            letter = self._shortened_by(letter, row, refusal)
        return letter

    def _send_until_accepted(self, decoded: DecodedBatch, letters: Mapping[int, Letter]) -> None:
        """Send these letters, by row number; one that the sink refuses is sent again, shorter, until it is accepted."""
        route = self._sinks.letter_route(decoded.first >> SOURCE_BITS)
        if route is None:
            raise ServiceStopped("records failed and there is no dead_letter")
        self.waiting = True
        if not decoded.kept:
            letters = {
                row: letter if letter.refusals else letter.shorter(LET_GO) or letter for row, letter in letters.items()
            }
        while letters:
            decoded.letters.update(letters)
            messages = dead_letters(decoded.records, decoded.first, letters, self._service)
            refused = self._sender.send(route, messages)
            letters = self._shorter(decoded, {int(messages.rows[at]): error for at, error in refused.items()})

    def _shorter(self, decoded: DecodedBatch, refused: Mapping[int, ConnectorError]) -> dict[int, Letter]:
        """The letters to send instead of those that were refused. Raises `ServiceStopped` if one cannot be shorter."""
        letters: dict[int, Letter] = {}
        for row, refusal in refused.items():
            letters[row] = self._shortened_by(decoded.letters[row], row, str(refusal))
        self._shortened.add(refused, self._failures.place)
        return letters

    def _shortened_by(self, letter: Letter, row: int, refusal: str) -> Letter:
        shorter = letter.shorter(refusal)
        if shorter is None:
            raise ServiceStopped(
                f"the dead letter sink refused the record at {self._failures.place(row)}, even without its payload, "
                f"key and headers: {refusal}"
            )
        return shorter


def in_order(rows: Mapping[int, object]) -> Ints:
    """These row numbers, rising, `int64 (n,)`."""
    return np.array(sorted(rows), np.int64)
