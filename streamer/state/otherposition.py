"""`OtherPosition`: whether the position at which a source goes on is one that the saved state leads to."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.records import Lane
from connectors.source import CheckpointNote
from pipelines.errors import DefinitionError
from streamer.state.store import Loaded, StateStore


@dataclass(frozen=True, slots=True)
class OtherPosition:
    """The position of a lane's first record, beside what is saved of its partition.

    The bus may have the checkpoint with it that it is of, `noted`. The service must not go on with state in which
    records are missing, or that has seen records that are to be run again: then `check` raises.
    """

    store: StateStore
    lane: Lane
    position: int
    saved: Loaded
    noted: CheckpointNote | None

    @property
    def is_taken_over(self) -> bool:
        """Whether the position is of another store, and this one, which was emptied on purpose, begins there."""
        return self._is_of_another and self.saved.position is None and self.store.begins_anew

    def check(self) -> None:
        """Raise `DefinitionError`, with both ways out, if the state is not that of the records before the position."""
        if self._is_of_another:
            if not (self._is_known or self.is_taken_over):
                raise self._error(self._of_another())
        elif self.noted is not None and self.noted.checkpoint > self.store.checkpoint:
            raise self._error(
                f"position {self.position} is of save {self.noted.checkpoint} on host {self.noted.host}, and "
                f"{self.store.place} on host {self.store.host} is older: it has save {self.store.checkpoint}"
            )
        seen, least = self.saved.position, self.saved.acknowledged
        # With a note the position is of this state: beyond the last record there may be what is never delivered.
        if seen is not None and self.position > seen and self.noted is None:
            raise self._error(
                f"the source goes on at position {self.position}, and the saved state has seen records only up to "
                f"{seen}: those between are missing in it"
            )
        if seen is not None and least is not None and self.position < least:
            raise DefinitionError(
                f"{self._where}: the source goes on at position {self.position}, though {least} was acknowledged, and "
                f"the saved state has seen records up to {seen}: it was put back, or what it reads was replaced. Put "
                f"it to {seen}, or let the state begin anew: streamer state forget {self.store.place}"
            )

    def check_same(self) -> None:
        """Raise `DefinitionError` if it is not the very position of the state, where one transaction commits both."""
        seen = self.saved.position
        if seen == self.position or (seen is None and self.noted is None):
            return
        if self._is_of_another:
            what = self._of_another()
        elif seen is None:
            what = (
                f"the group goes on at position {self.position}, and {self.store.place} has nothing of this partition"
            )
        else:
            at = "at the beginning" if self.position < 0 else f"at position {self.position}"
            what = f"the group goes on {at}, and the state in {self.store.place} is of position {seen}"
        raise DefinitionError(
            f"{self._where}: {what}: one of them was put back, deleted or replaced. Put the group back to the position "
            f"of the state, or let it begin anew: delete the topic, and start the service once with --from (earliest, "
            "latest or a time)"
        )

    @property
    def _is_of_another(self) -> bool:
        return self.noted is not None and self.noted.store != self.store.id

    @property
    def _is_known(self) -> bool:
        """Whether the saved state has begun there, or is just as far."""
        return self.position in (self.saved.position, self.saved.acknowledged)

    @property
    def _where(self) -> str:
        return f"state: {self.lane.source} {self.lane.partition}"

    def _of_another(self) -> str:
        assert self.noted is not None
        here = f"{self.store.place} on host {self.store.host}"
        if self.saved.position is None:
            here += " is new, or has nothing of this partition"
        else:
            here += f" is another, which has seen records up to {self.saved.position}"
        return (
            f"position {self.position} is of a state that was saved on host {self.noted.host} "
            f"(save {self.noted.checkpoint}), and {here}"
        )

    def _error(self, what: str) -> DefinitionError:
        return DefinitionError(
            f"{self._where}: {what}. Put the newest state file in its place, or let the state begin anew: "
            f"streamer state forget {self.store.place}"
        )
