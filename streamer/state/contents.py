"""What is saved of the steps of a service, as people look at it, partition by partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from pipelines.errors import ConnectorError, nearest

_COMPARED: Final = 1000
"""Keys among which the one that was probably meant is looked for."""


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of one key of a step."""

    step: str
    """The name by which the step's state is saved."""
    source: str
    partition: str
    key: str
    """The JSON text of the key."""
    bytes: int
    """How large its state is."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What is saved of one partition of a source."""

    source: str
    partition: str
    position: int | None
    """The position after the last record that the state has seen; `None` if none was saved."""
    steps: Mapping[str, str]
    """The types of the steps that are known there, by the names by which their state is saved."""
    keys: Sequence[KeyState]
    """All keys, by step and key."""


class SavedState(Protocol):
    """A place where state is saved. Its errors are `ConnectorError`s. A context manager: entering connects."""

    @property
    def place(self) -> str:
        """Where it is, as errors and listings call it."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *reason: object) -> None: ...

    def about(self) -> Mapping[str, Any]:
        """The `service`, the `host` where it is, and the number of its last save, `checkpoint`; `None` if not known."""

    def steps(self) -> Mapping[str, str]:
        """The types of steps that are known whatever partitions there are, by the names by which they are saved."""

    def partitions(self) -> Iterator[PartitionState]:
        """What is saved, also while a service uses it. One partition is in memory at a time."""

    def forget(self, step: str | None, key: str | None) -> int:
        """Delete the state of a step, of a key or of both; without them that of all.

        Returns how many keys had state. Raises `ConnectorError` for an unknown step or key, and while a service uses
        it.
        """


class Chosen:
    """Chooses the state of a step, of a key or of both, and knows whether there is such a step and key."""

    def __init__(self, saved: SavedState, step: str | None, key: str | None) -> None:
        """`None`: all. A key that is a text may be given without its quotation marks."""
        self._place = saved.place
        self._step = step
        self._key = key
        self._steps = set(saved.steps())
        self._keys: set[str] = set()
        self._has_key = False

    def of(self, partition: PartitionState) -> list[KeyState]:
        """The chosen keys of this partition."""
        self._steps.update(partition.steps)
        of_step = [state for state in partition.keys if self._step is None or state.step == self._step]
        if self._key is None:
            return of_step
        chosen = [state for state in of_step if state.key in (self._key, f'"{self._key}"')]
        self._has_key = self._has_key or bool(chosen)
        if not self._has_key and len(self._keys) < _COMPARED:
            self._keys.update(state.key.strip('"') for state in of_step[:_COMPARED])
        return chosen

    def has(self, step: str) -> bool:
        """Whether this step is chosen."""
        return self._step is None or step == self._step

    def check(self) -> None:
        """Raise `ConnectorError` if no partition had the step or the key."""
        if self._step is not None and self._step not in self._steps:
            names = sorted(self._steps)
            others = nearest(self._step, names) or f"; it has {', '.join(names) or 'none'}"
            raise ConnectorError(f'state {self._place}: there is no step "{self._step}"{others}')
        if self._key is not None and not self._has_key:
            raise ConnectorError(f'state {self._place}: there is no key "{self._key}"{nearest(self._key, self._keys)}')


class Totals:
    """How much there is of each partition and step."""

    def __init__(self, saved: SavedState) -> None:
        self.positions: list[dict[str, Any]] = []
        """Of each partition its source, name and position, and how many keys and bytes it has."""
        self.steps: dict[str, dict[str, Any]] = {}
        """Type, number of keys and bytes, by the name of the step."""
        self._know(saved.steps())

    def add(self, partition: PartitionState) -> None:
        """Count this one too."""
        about = {"source": partition.source, "partition": partition.partition, "position": partition.position}
        size = sum(state.bytes for state in partition.keys)
        self.positions.append({**about, "keys": len(partition.keys), "bytes": size})
        # A service that starts while a file is read may make more of them.
        self._know({**{state.step: "" for state in partition.keys}, **partition.steps})
        for state in partition.keys:
            step = self.steps[state.step]
            step["keys"] += 1
            step["bytes"] += state.bytes

    def _know(self, steps: Mapping[str, str]) -> None:
        for step, kind in steps.items():
            self.steps.setdefault(step, {"type": kind, "keys": 0, "bytes": 0})
