"""`TransactionalCheckpoints`: the state of steps is saved in the transactions that have their results."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from connectors.records import Lane
from streamer.state.checkpoints import Checkpoints
from streamer.state.store import Scope
from streamer.state.topicstore import TopicSaving, TopicStore


class TransactionalCheckpoints(Checkpoints[TopicStore]):
    """Checkpoints that are part of transactions: a `streamer.delivery.statesaving.TransactionState`.

    `save` is not used: the transactions ask for what has changed, and commit it with results and positions.
    """

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
        reached = {
            scope: position
            for scope, lane in lanes.items()
            if (lane in positions or lane in others)
            and (position := positions.get(lane, self._saved.get(scope))) is not None
        }
        saving = self._store.saving(changes, reached)
        return TransactionSaving(self, self._store, saving, lanes)

    def was_saved(self, saving: TopicSaving, seconds: float) -> None:
        """What was saved is committed, `seconds` after it was asked for."""
        self._store.committed(saving)
        self._saved |= saving.positions
        self.meters.saved(seconds, sum(len(record.value or b"") for record in saving.records), self._store.bytes)
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
