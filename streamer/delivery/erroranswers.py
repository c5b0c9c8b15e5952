"""`ErrorAnswers`: what sinks with `errors: true` get of records that failed, besides their dead letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from connectors.codec import RecordsOrigin
from connectors.records import Messages
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.errors import ConnectorError
from streamer.agent.decodedbatch import DecodedBatch
from streamer.delivery.deadletter import MAX_TEXT, described
from streamer.delivery.ledger import Ledger
from streamer.delivery.letterlog import LetterLog
from streamer.delivery.sending import Sender
from streamer.routing.sinkroute import Failed, SinkRoute

ERROR = "streamer-error"
"""The header by which an error is told from a result; its value is the class of the error."""


class ErrorAnswers:
    """Answers for records that failed: `{"error": TEXT, "step": NAME}` in the codec of each sink that wants them.

    They are outputs of their records, as results and dead letters are: the ledger expects them, and a record counts as
    done when all are confirmed. A record whose topic cannot be made has no answer. Owned by the run thread.
    """

    def __init__(
        self, routes: Sequence[SinkRoute], ledger: Ledger, sender: Sender, place: Callable[[int], str], log: Any
    ) -> None:
        """`place` gives topic, partition and offset of a row's record, as text."""
        self._routes = [route for route in routes if route.errors]
        self._ledger = ledger
        self._sender = sender
        self._place = place
        self._refused = LetterLog(log, "refused error answer")
        self._pending: list[tuple[SinkRoute, Messages]] = []

    def expect(self, failed: Failed) -> None:
        """Make the answers for these rows, and note in the ledger that their records wait for them."""
        if not (failed and self._routes):
            return
        for entry, rows in self._ledger.open_among(np.array(sorted(failed), np.int64)):
            decoded: DecodedBatch = entry.note
            facts = [described(failed[row]) for row in rows.tolist()]
            batch = Batch(
                {
                    "error": Column.of([text[:MAX_TEXT] for _, _, text in facts]),
                    "step": Column.of([step for step, _, _ in facts]),
                },
                len(rows),
                rows=rows,
                origin=RecordsOrigin(decoded.records, decoded.first),
            )
            kinds = {row: (ERROR, kind.encode()) for row, (_, kind, _) in zip(rows.tolist(), facts, strict=True)}
            for route in self._routes:
                messages = route.errors_of(batch, kinds)
                if len(messages):
                    self._ledger.expect(messages.rows)
                    self._pending.append((route, messages))

    def send(self) -> None:
        """Send what was made since the last call. An answer that is refused for good is given up."""
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        for route, messages in pending:
            refused = self._sender.send(route, messages)
            if refused:
                self._give_up(messages, refused)

    def _give_up(self, messages: Messages, refused: Mapping[int, ConnectorError]) -> None:
        rows = {int(messages.rows[at]): error for at, error in refused.items()}
        self._refused.add(rows, self._place)
        self._ledger.confirm(np.array(sorted(rows), np.int64))
