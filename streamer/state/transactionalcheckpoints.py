"""`TransactionalCheckpoints`: the state of steps is saved in the transactions that have their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from connectors.records import Lane
from pipelines.executors.executor import Executor
from streamer.delivery.ledger import Ledger
from streamer.state.checkpoints import Checkpoints
from streamer.state.store import Scope
from streamer.state.topicstore import TopicSaving, TopicStore


class TransactionalCheckpoints(Checkpoints):
    """Checkpoints that are part of transactions: a `streamer.delivery.statesaving.TransactionState`.

    `save` is not used: the transactions ask for what has changed, and commit it with results and positions.
    """

    def __init__(
        self,
        store: TopicStore,
        identities: Mapping[str, str],
        executor: Callable[[], Executor],
        ledger: Ledger,
        counting: Collection[str],
        acknowledged: Callable[[], Mapping[Lane, int]],
        log: Any,
    ) -> None:
        super().__init__(store, identities, executor, ledger, counting, acknowledged, log)
        self._topic = store

    def has_changed(self) -> bool:
        """See `TransactionState.has_changed`."""
        self._gather_changes()
        if not self._unsaved:
            self.meters.is_saved()
        return bool(self._unsaved)

    def saving(self, positions: Mapping[Lane, int], others: Collection[Lane]) -> TransactionSaving:
        """See `TransactionState.saving`."""
        self._gather_changes()
        lanes = {scope: lane for lane, scope in self._scopes.items() if not self._ledger.has_ended(lane)}
        changes = [(place[0], place[1], change) for place, change in self._unsaved.items() if place[0] in lanes]
        # Whatever becomes of the transaction: if it is aborted, these lanes end, and are loaded again.
        self._unsaved = {}
        reached = {scope: positions.get(lane, self._saved.get(scope, -1)) for scope, lane in lanes.items()}
        has_results = {scope for scope, lane in lanes.items() if lane in positions or lane in others}
        saving = self._topic.saving(
            changes, {scope: position for scope, position in reached.items() if scope in has_results and position >= 0}
        )
        return TransactionSaving(self, self._topic, saving, lanes)

    def was_saved(self, saving: TopicSaving, seconds: float) -> None:
        """What was saved is committed, `seconds` after it was asked for."""
        self._topic.committed(saving)
        self._saved |= saving.positions
        self.meters.saved(seconds, sum(len(record.value or b"") for record in saving.records), self._topic.bytes)
        self.meters.is_saved()


class TransactionSaving:
    """What one transaction saves: a `streamer.delivery.statesaving.Saving`."""

    def __init__(
        self,
        checkpoints: TransactionalCheckpoints,
        store: TopicStore,
        saving: TopicSaving,
        lanes: Mapping[Scope, Lane],
    ) -> None:
        """`lanes` are those of the scopes."""
        self.positions = {lanes[scope]: position for scope, position in saving.positions.items()}
        self.lanes = frozenset(lanes[scope] for scope in saving.scopes)
        self._checkpoints = checkpoints
        self._saving = saving
        self._send = store.sending(saving)
        self._began = time.monotonic()

    def send(self, deadline: float) -> None:
        """See `Saving.send`."""
        self._send(deadline)

    def committed(self) -> None:
        """See `Saving.committed`."""
        self._checkpoints.was_saved(self._saving, time.monotonic() - self._began)
