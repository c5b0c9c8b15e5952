"""`StateStore`: where the state of steps and the positions of their records are saved, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from connectors.records import Lane
from pipelines.runners.state.item import Change, Item
from streamer.delivery.confirming import Upstream

NOTHING: Final[Mapping[Scope, int]] = MappingProxyType({})
"""No positions."""


class Scope(NamedTuple):
    """A partition of a source, over all of its assignments: a lane without its epoch."""

    source: str
    """The name of the source."""
    partition: str
    """The partition, as the source names it."""


class Loaded(NamedTuple):
    """What is saved of a scope."""

    position: int | None
    """The position after the last record that the state has seen; `None` if none was saved."""
    items: dict[str, list[Item]]
    """The pieces of state, by the identity of their step; each step's by key and part."""
    acknowledged: int | None = None
    """A position that the source had acknowledged by then; `None` if none was."""


class SavedStep(NamedTuple):
    """A step as it was when its state was saved."""

    type: str
    """Its `@type`."""
    fields: Mapping[str, Any]
    """The fields that shape its state (`Step.shapes`), with their values as JSON has them."""


class StateStore(Protocol):
    """Saves and loads the state of one service. Used by one thread at a time.

    Its errors are `ConnectorError`s; a retriable one has written nothing, and the same call may be made again.
    """

    @property
    def id(self) -> str:
        """A random name that it got when it was made: another store of the same place has another."""

    @property
    def host(self) -> str:
        """The machine where it is."""

    @property
    def checkpoint(self) -> int:
        """The number of the last save; 0 if there was none."""

    @property
    def begins_anew(self) -> bool:
        """Whether all that it had was deleted on purpose before it was opened: it begins where another store ends."""

    @property
    def commits_positions(self) -> bool:
        """Whether `save` commits positions for their source, with the state: then the source itself commits none."""

    @property
    def place(self) -> str:
        """Where it is, as errors call it."""

    @property
    def bytes(self) -> int | None:
        """How large what is saved is, with what the store itself needs; `None` if it does not know."""

    def open(self) -> None:
        """Make it ready. Nothing else may be called before."""

    def close(self) -> None:
        """Release it. Idempotent."""

    def attach(self, upstream: Upstream, check: Callable[[Mapping[str, SavedStep]], None]) -> None:
        """Called before the first `load`, for a store that commits positions.

        `upstream` are the sources; `check` raises `DefinitionError` for saved steps that do not fit the service's.
        """

    def ready(self) -> Mapping[Lane, int] | None:
        """Called before the changes for `save` are taken; `None`: it cannot save yet.

        Returns positions that sources have passed beyond the last record of lanes, which are to be saved too.
        """

    def steps(self) -> Mapping[str, SavedStep]:
        """The steps that it knows, by identity."""

    def define(self, steps: Mapping[str, SavedStep]) -> None:
        """Remember these steps as those of the service, by identity, besides those that have state."""

    def load(self, scope: Scope) -> Loaded:
        """What is saved of this scope; nothing for an unknown one."""

    def save(
        self,
        changes: Iterable[tuple[Scope, str, Change]],
        positions: Mapping[Scope, int],
        acknowledged: Mapping[Scope, int] = NOTHING,
    ) -> int:
        """Save changes of scopes and steps (by identity), and the positions that they lead to: all or nothing.

        `acknowledged`: positions that sources have acknowledged, of scopes for which that is known.
        Of several changes of one piece the last counts. Returns the number of the checkpoint, one more than the last.
        When it returns, all is on the disk.
        """
