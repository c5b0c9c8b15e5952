"""`Checkpoints`: the state of steps and the positions of their records, saved together.

A checkpoint is taken between two batches, when all results are confirmed: what the steps remember then is what they
know after the last record that was run. Positions are acknowledged only once a checkpoint has them, so no source gets
ahead of the state. A crash between the two leaves the state ahead: its records are passed over when they come again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from connectors.records import Ints, Lane, Records
from connectors.source import CheckpointNote
from pipelines.errors import ConnectorError
from pipelines.executors.executor import Executor
from pipelines.runners.state.item import Change, Item
from streamer.delivery.ledger import Ledger
from streamer.observe.statemeters import StateMeters
from streamer.state.loading import Loading
from streamer.state.otherposition import OtherPosition
from streamer.state.store import Scope, StateStore

StoreT_co = TypeVar("StoreT_co", bound=StateStore, covariant=True)


class Checkpoints(Generic[StoreT_co]):
    """The checkpoints of one service. Owned by the run thread."""

    def __init__(
        self,
        store: StoreT_co,
        identities: Mapping[str, str],
        executor: Callable[[], Executor],
        ledger: Ledger,
        counting: Collection[str],
        acknowledged: Callable[[], Mapping[Lane, int]],
        log: Any,
    ) -> None:
        """`identities`: by which the steps' state is saved, by the steps' names in the executor.

        `executor` gives the open pipeline. `counting` names the sources whose positions mean something to another
        process; `acknowledged` gives the positions that sources have acknowledged last.
        """
        self._store = store
        self._identities = dict(identities)
        self._executor = executor
        self._ledger = ledger
        self._counting = frozenset(counting)
        self._acknowledged = acknowledged
        self._acknowledged_before: Mapping[Lane, int] = {}
        """Acknowledged by the last checkpoint: a bus needs a moment to have it."""
        self._acknowledged_saved: dict[Scope, int] = {}
        self._began: set[Scope] = set()
        """Those of which a lane has begun in this process."""
        self._log = log
        self._scopes: dict[Lane, Scope] = {}
        """The lanes whose state the steps have."""
        self._unsaved: dict[tuple[Scope, str, str, int], Change] = {}
        """Changes that could not be saved yet."""
        self._marks: dict[Lane, int] = {}
        """The positions of the last checkpoint."""
        self._reported: dict[Lane, int] = {}
        self._saved: dict[Scope, int] = {}
        self._ahead: dict[Lane, int] = {}
        """Of lanes whose state has seen records that come again, the position after the last of them."""
        self.loading = Loading(log)
        self.meters = StateMeters()
        self.meters.bytes = store.bytes

    def has(self, lane: Lane) -> bool:
        """Whether the steps have the state of this lane."""
        return lane in self._scopes

    def before(self, lane: Lane) -> Lane | None:
        """The lane of the same partition whose state the steps have, if there is one."""
        scope = _scope(lane)
        return next((other for other, known in self._scopes.items() if known == scope), None)

    @property
    def moves(self) -> bool:
        """Whether partitions take their state along to other processes."""
        return self._store.commits_positions

    @property
    def note(self) -> CheckpointNote:
        """The last checkpoint, to be kept with the positions that are acknowledged after it."""
        return CheckpointNote(self._store.id, self._store.host, self._store.checkpoint)

    def begin(self, lane: Lane, position: int | None, noted: CheckpointNote | None = None) -> None:
        """Give the steps the saved state of a lane, whose first record will be at `position` (-1: not known).

        `noted`: the checkpoint that its bus has with this position. `None` as position: its positions are others than
        those of the lane before it, none of whose records comes again.

        Raises `DefinitionError` if records are missing between the state and the first record, or the position is of
        another store; `StreamerError` if the state is damaged.
        """
        scope = _scope(lane)
        began = time.monotonic()
        with self.loading.of(f"{lane.source} {lane.partition}"):
            loaded = self._store.load(scope)
            counts = lane.source in self._counting and position is not None
            seen = loaded.position if counts else None
            if counts and position is not None and self._store.commits_positions:
                OtherPosition(self._store, lane, position, loaded, noted).check_same()
            elif counts and position is not None and position >= 0:
                others = OtherPosition(self._store, lane, position, loaded, noted)
                others.check()
                if others.is_taken_over:
                    self._store.save([], {scope: position}, {scope: position})
                elif noted is not None and scope not in self._began:
                    # What the bus had before this process is not in doubt, unlike what was sent to it since.
                    self._acknowledged_before = {**self._acknowledged_before, lane: position}
                self._began.add(scope)
            names = {identity: name for name, identity in self._identities.items()}
            items: dict[str, list[Item]] = {
                names[identity]: pieces for identity, pieces in loaded.items.items() if identity in names
            }
            self._executor().load(lane, self.loading.counted(items))
        self.meters.load.add_one(time.monotonic() - began)
        self._scopes[lane] = scope
        self._saved.pop(scope, None)
        if seen is not None and position is not None:
            self._saved[scope] = seen
            if position < seen:
                self._ahead[lane] = seen
                if position >= 0:
                    self._log.warning(
                        "the state has seen records that come again, which are passed over; to run them again, stop "
                        "the service and let it begin anew with streamer state forget",
                        partition=f"{lane.source} {lane.partition}",
                        position=position,
                        seen=seen,
                    )

    def end(self, lanes: Iterable[Lane]) -> None:
        """The steps have no state of these lanes any more. What was not saved is lost."""
        for lane in lanes:
            scope = self._scopes.pop(lane, None)
            self._marks.pop(lane, None)
            self._reported.pop(lane, None)
            self._ahead.pop(lane, None)
            if scope is not None and self._unsaved:
                self._unsaved = {place: change for place, change in self._unsaved.items() if place[0] != scope}

    def save(self) -> bool:
        """Save what the steps know, and how far each lane has been run; all that was run has to be confirmed.

        Returns whether it is saved: not while the disk is full or the brokers refuse it, which is logged. Raises
        `ConnectorError` otherwise.
        """
        began = time.monotonic()
        passed = self._store.ready()
        if passed is None:
            return False
        self._gather_changes()
        marks = {
            lane: max(mark, self._ahead.get(lane, mark)) for lane, mark in self._ledger.all_marks(self._scopes).items()
        }
        # A position that was passed once stays: the ledger knows only those of records.
        for lane, position in [*passed.items(), *self._marks.items()]:
            if lane in self._scopes and not self._ledger.has_ended(lane) and position > marks.get(lane, -1):
                marks[lane] = position
        positions = {self._scopes[lane]: mark for lane, mark in marks.items() if lane.source in self._counting}
        moved = {scope: position for scope, position in positions.items() if self._saved.get(scope) != position}
        acknowledged = {
            self._scopes[lane]: position
            for lane, position in self._acknowledged_before.items()
            if lane in self._scopes and lane.source in self._counting
        }
        if self._unsaved or moved or acknowledged != self._acknowledged_saved:
            try:
                self._store.save(
                    [(scope, step, change) for (scope, step, _, _), change in self._unsaved.items()],
                    moved,
                    acknowledged,
                )
            except ConnectorError as error:
                if not error.retriable:
                    raise
                self._log.error("the state cannot be saved, nothing is acknowledged meanwhile", error=str(error))
                return False
            written = sum(len(change.value or b"") for change in self._unsaved.values())
            self._unsaved = {}
            self.meters.saved(time.monotonic() - began, written, self._store.bytes)
            self._saved |= moved
            self._acknowledged_saved = acknowledged
        self.meters.is_saved()
        self._acknowledged_before = self._acknowledged()
        # Lanes may end while the store waits.
        self._marks = {lane: mark for lane, mark in marks.items() if lane in self._scopes}
        return True

    def _gather_changes(self) -> None:
        """Take what has changed in the steps since the last call into `_unsaved`."""
        for step, change in self._executor().changes():
            lane = change.lane
            # A lane that has ended is loaded again, or another consumer has it.
            if not isinstance(lane, Lane) or lane not in self._scopes or self._ledger.has_ended(lane):
                continue
            # Steps that say of no change that it is to outlive the process (`saves`) have no identity.
            if (identity := self._identities.get(step)) is not None:
                self._unsaved[self._scopes[lane], identity, change.key, change.part] = change

    def marks(self, sources: Collection[str] | None = None) -> dict[Lane, int]:
        """The positions of the last checkpoint that moved since the last call; of these sources, `None`: of all."""
        moved = {
            lane: mark
            for lane, mark in self._marks.items()
            if mark > self._reported.get(lane, -1) and (sources is None or lane.source in sources)
        }
        self._reported |= moved
        return moved

    def all_marks(self, lanes: Iterable[Lane]) -> dict[Lane, int]:
        """The positions of these lanes that the last checkpoint has."""
        return {lane: self._marks[lane] for lane in lanes if lane in self._marks}

    def seen(self, records: Records) -> Ints | None:
        """The places of the records that the state has seen already, `int64`, rising; `None`: there are none."""
        if not self._ahead:
            return None
        places: list[Ints] = []
        for lane, start, stop in records.spans:
            edge = self._ahead.get(lane)
            if edge is None:
                continue
            positions = records.positions[start:stop]
            places.append(start + np.flatnonzero(positions < edge))
            if int(positions[-1]) >= edge - 1:
                del self._ahead[lane]
        seen = np.concatenate([np.zeros(0, np.int64), *places])
        self.meters.passed_over.add(len(seen))
        return seen if len(seen) else None


def _scope(lane: Lane) -> Scope:
    return Scope(lane.source, lane.partition)
