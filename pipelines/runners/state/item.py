"""`Item` and `Change`: the pieces in which a step's state is saved and read back."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple


class Item(NamedTuple):
    """A piece of a step's state for one lane."""

    key: str
    """Whose state it is: the JSON text of the value of the step's `by` (`"pump-1"`, `["pump-1",3]`)."""
    part: int
    """Which piece of the key's state it is, from 0 on: large states are written in pieces, so that only those which
    have changed are written again."""
    value: bytes
    """Its content, in a form of the step's own; the first byte is the version of the form."""


class Change(NamedTuple):
    """A piece of a step's state that is new, has changed or is gone."""

    lane: Hashable
    """The lane (`RecordContext.lane`) whose records made it."""
    key: str
    """As in `Item`."""
    part: int
    """As in `Item`."""
    value: bytes | None
    """As in `Item`; `None`: it is gone."""
