"""A store of state in memory, whose faults a test can bring about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from connectors.records import Lane
from pipelines.errors import ConnectorError
from pipelines.runners.state.item import Change, Item
from streamer.state.store import NOTHING, Loaded, SavedStep, Scope


class MemoryStore:
    """Implements `StateStore`. What it holds outlives the services that use it."""

    id = "memory"
    host = "here"
    place = "memory"
    begins_anew = False
    commits_positions = False

    def __init__(self) -> None:
        self.checkpoint = 0
        self.pieces: dict[tuple[Scope, str, str, int], bytes] = {}
        self.positions: dict[Scope, int | None] = {}
        self.acknowledged: dict[Scope, int] = {}
        self.passed: dict[Lane, int] = {}
        """Positions that the source has passed, given once."""
        self.full = False
        """Whether saving fails, as on a disk without room."""
        self.dies_at: int | None = None
        """The service fails as soon as a position that is not below this was saved."""

    @property
    def bytes(self) -> int:
        return sum(map(len, self.pieces.values()))

    def open(self) -> None: ...

    def close(self) -> None: ...

    def attach(self, upstream: Any, check: Any) -> None: ...

    def ready(self) -> Mapping[Lane, int] | None:
        passed, self.passed = self.passed, {}
        return passed

    def steps(self) -> Mapping[str, SavedStep]:
        return {}

    def define(self, steps: Mapping[str, SavedStep]) -> None: ...

    def load(self, scope: Scope) -> Loaded:
        items: dict[str, list[Item]] = {}
        for (place, step, key, part), value in sorted(self.pieces.items()):
            if place == scope:
                items.setdefault(step, []).append(Item(key, part, value))
        return Loaded(self.positions.get(scope), items, self.acknowledged.get(scope))

    def save(
        self,
        changes: Iterable[tuple[Scope, str, Change]],
        positions: Mapping[Scope, int],
        acknowledged: Mapping[Scope, int] = NOTHING,
    ) -> int:
        if self.full:
            raise ConnectorError("no room on the disk", retriable=True)
        for scope, step, change in changes:
            self.positions.setdefault(scope, None)
            place = (scope, step, change.key, change.part)
            if change.value is None:
                self.pieces.pop(place, None)
            else:
                self.pieces[place] = change.value
        self.positions |= positions
        self.acknowledged |= acknowledged
        self.checkpoint += 1
        if self.dies_at is not None and max(positions.values(), default=0) >= self.dies_at:
            raise ConnectorError("killed behind the save")
        return self.checkpoint
