"""`Failures`: whether the service goes on when records have failed. `FailureWatch`: tells single bad records from a
step in which most records fail.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from connectors.codecs.registry import codec_config
from pipelines.data.rowrange import RowNumbers
from pipelines.errors import StreamerError, step_of
from streamer.agent.decodedbatch import SOURCE_BITS, DecodedBatch
from streamer.definition.service import Service
from streamer.delivery.fitting import CodecHints
from streamer.delivery.ledger import Ledger
from streamer.delivery.losslog import LossLog
from streamer.routing.sinkroute import Failed, Sinks, count_of_sources


class ServiceStopped(StreamerError):
    """The service must not go on. The records that failed stay unacknowledged."""


class FailureWatch:
    """Counts failures by step: since the start, and over the last `over` rows.

    `broken` names a step in which more than `stop_ratio` of the last `over` rows failed, or all of the `first` rows (0:
    that is not looked at): then the service must stop, instead of emptying the topic into the dead letter. `suspect`
    names such a step among fewer rows, at the start: dead letters are held back until more rows have been run.
    """

    def __init__(self, stop_ratio: float, over: int, first: int = 0) -> None:
        self.stop_ratio = stop_ratio
        self.over = over
        self.first = first
        self._batches: deque[tuple[int, Counter[str] | None]] = deque()
        self._rows = 0
        self._failed: Counter[str] = Counter()
        self._rows_ever = 0
        self._failed_ever: Counter[str] = Counter()

    def add(self, rows: int, failed: Mapping[int, Exception]) -> None:
        """Count `rows` rows that are finished, and rows that failed, which may have been counted as finished before."""
        if not (rows or failed):
            return
        by_step = None
        self._rows_ever += rows
        if failed:
            by_step = Counter(step_of(error) for error in failed.values())
            self._failed.update(by_step)
            self._failed_ever.update(by_step)
        batches = self._batches
        batches.append((rows, by_step))
        self._rows += rows
        # Whole batches leave, so that at least the last `over` rows stay.
        while batches and self._rows - batches[0][0] >= self.over:
            gone, steps = batches.popleft()
            self._rows -= gone
            if steps:
                self._failed.subtract(steps)

    @property
    def suspect(self) -> str | None:
        """The step in which more than `stop_ratio` of the counted rows failed, `None` if there is none."""
        if not self._failed:
            return None
        step, count = self._failed.most_common(1)[0]
        return step if count > self.stop_ratio * self._rows or self.none_succeeded else None

    @property
    def broken(self) -> str | None:
        """The same, once there are enough rows to be sure."""
        return self.suspect if self._rows >= self.over or self._is_first_broken else None

    @property
    def none_succeeded(self) -> bool:
        """Whether all rows since the start, one at least, failed in the same step; never if `first` is 0."""
        return self.first > 0 and 0 < self._rows_ever <= max(self._failed_ever.values(), default=0)

    @property
    def _is_first_broken(self) -> bool:
        return self.none_succeeded and self._rows_ever >= self.first

    def text(self) -> str:
        """How many records failed in which step, for the error that stops the service."""
        step, count = self._failed.most_common(1)[0]
        where = step or "the pipeline"
        if self._is_first_broken:
            return f"all of the first {self._rows_ever} records failed in {where}"
        return f"{count} of the last {self._rows} records failed in {where}"

    def advice(self) -> str:
        """Which field lets the service go on in spite of these failures."""
        return "write errors: {first: 0}" if self._is_first_broken else "raise errors.stop_ratio"


class Failures:
    """Decides what the failures of records mean: whether the service stops, and the error that says why.

    A client's mistakes never stop a service: records of sources whose clients are answered are not counted.
    """

    def __init__(self, service: Service, sinks: Sinks, sources: Sequence[str], ledger: Ledger, log: Any) -> None:
        """`sources`: the names of the sources, in the order of their numbers."""
        self.drop = service.on_error == "drop"
        """Whether records that fail and that no sink takes are lost, as the service says."""
        self.lost = LossLog(log)
        self._errors = FailureWatch(service.errors.stop_ratio, service.errors.over, service.errors.first_records)
        awaited = {label for sink in service.sinks if sink.awaited for label in sink.takes_from or ()}
        # A client's malformed request says nothing about the source's codec.
        of_topics = [config for config in service.sources if config.label not in awaited]
        self._hints = CodecHints(log, {config.label: codec_config(config.codec) for config in of_topics})
        self._sinks = sinks
        self._sources = sources
        self._ledger = ledger
        of_all = range(len(sources))
        self._answered = frozenset(
            number for numbers in sinks.answered for number in (of_all if numbers is None else numbers)
        )

    @property
    def suspect(self) -> str | None:
        """As `FailureWatch.suspect`."""
        return self._errors.suspect

    @property
    def none_succeeded(self) -> bool:
        """As `FailureWatch.none_succeeded`."""
        return self._errors.none_succeeded

    def look(self, decoded: DecodedBatch) -> None:
        """Find out which codec would read a record of this batch that could not be decoded."""
        self._hints.look(decoded, self.place)

    def check(self, failed: Failed, finished: RowNumbers = range(0), passed: RowNumbers = range(0)) -> None:
        """Count these failures, among rows that are `finished` newly, but for those that `passed` by. Raises
        `ServiceStopped` if they mean that the service must not go on.

        Called before they are decided: afterwards the ledger no longer knows where a lost record came from.
        """
        rows, watched = len(finished) - len(passed), failed
        if self._answered:
            _, watched = self.apart(failed)
            rows -= count_of_sources(finished, self._answered) - count_of_sources(passed, self._answered)
        self._errors.add(rows, watched)
        if not failed:
            return
        lost = failed.keys() - self._routed(failed)
        if lost and not self.drop:
            row = min(lost)
            raise ServiceStopped(
                f"{self.place(row)}: {failed[row]}{self._hint(row, failed[row])}; {self._advice(row)} to "
                f"go on without such records, or write down on_error: drop"
            )
        if watched and self._errors.broken is not None:
            row = min(watched)
            raise ServiceStopped(
                f"{self._errors.text()}, so it is not the records: {failed[row]} (at {self.place(row)})"
                f"{self._hint(row, failed[row])}; nothing of this batch was acknowledged. Mend it and start again, or "
                f"{self._errors.advice()}"
            )
        if lost:
            self.lost.add({row: failed[row] for row in sorted(lost)}, self.place)

    def apart(self, failed: Failed) -> tuple[Failed, Failed]:
        """The failures of records whose clients are answered, which are the clients' own, and all others."""
        if not (failed and self._answered):
            return {}, failed
        answered = {row: error for row, error in failed.items() if row >> SOURCE_BITS in self._answered}
        return answered, {row: error for row, error in failed.items() if row not in answered}

    def place(self, row: int) -> str:
        """Topic, partition and offset of a row's record, as text."""
        decoded: DecodedBatch | None = self._ledger.note_of(row)
        return "a record that another consumer has now" if decoded is None else decoded.place(row)

    def with_letters(self, failed: Failed) -> Failed:
        """Those of these failures for which a sink takes a dead letter."""
        routed = self._routed(failed)
        return failed if len(routed) == len(failed) else {row: failed[row] for row in routed}

    def has_letters(self, source: int) -> bool:
        """Whether a sink takes dead letters of the source of this number."""
        return self._sinks.letter_route(source) is not None

    def _routed(self, failed: Failed) -> list[int]:
        sources = {row >> SOURCE_BITS for row in failed}
        taken_from = {source for source in sources if self.has_letters(source)}
        return list(failed) if taken_from == sources else [row for row in failed if row >> SOURCE_BITS in taken_from]

    def _advice(self, row: int) -> str:
        if not self._sinks.letters:
            return "give the service a dead_letter"
        source = self._sources[row >> SOURCE_BITS]
        return f'the service\'s dead_letter takes no records of the source "{source}": give it one that does'

    def _hint(self, row: int, error: Exception) -> str:
        """Which codec would read the record, where it could not be decoded."""
        decoded = self._ledger.note_of(row) if step_of(error) == "decode" else None
        return "" if decoded is None else self._hints.of(decoded.source)


def let_go(errors: Iterable[Exception]) -> None:
    """Remove the tracebacks of these errors: their frames refer to the batch, which would stay in memory until Python's
    garbage collector runs."""
    for error in errors:
        chain: list[BaseException] = [error]
        for reached in chain:
            reached.__traceback__ = None
            chain += [up for up in (reached.__cause__, reached.__context__) if up is not None and up not in chain]
