"""What transactions ask of the state of steps: to be saved in them, beside the results and the positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from connectors.records import Lane


class Saving(Protocol):
    """What one transaction saves."""

    @property
    def positions(self) -> Mapping[Lane, int]:
        """Of all lanes whose state it has something of, the position that the state has seen: to be committed, too."""

    @property
    def lanes(self) -> Collection[Lane]:
        """All lanes whose state it has something of."""

    def send(self, deadline: float) -> None:
        """Send it in the open transaction, by another thread. Errors are those of `StateTopic.sending`."""

    def committed(self) -> None:
        """The transaction is committed."""


class TransactionState(Protocol):
    """The state of the steps of a service, which is saved in its transactions. Used by the run thread.

    It may be asked only between two batches, when all that the steps gave so far was sent in the transaction, or in
    those before it: what they know then is saved. If the transaction is aborted, its lanes end, and their state is
    loaded again.
    """

    def has(self, lane: Lane) -> bool:
        """Whether the steps have the state of this lane. Until then none of its positions may be committed, as what is
        saved would be of another one."""

    def has_changed(self) -> bool:
        """Whether there is something to save."""

    def saving(self, positions: Mapping[Lane, int], others: Collection[Lane]) -> Saving:
        """Everything that has changed since the last call, to be saved in a transaction that commits these positions.

        `others`: more lanes that it has results of, which none of their records made.
        """
