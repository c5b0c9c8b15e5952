"""`Sharing`: how records are shared among the variants of a service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streamer.models.choice import Choice
from streamer.models.settings import CURRENT
from streamer.models.tally import Tally


@dataclass(frozen=True, slots=True)
class Sharing:
    """What all lineups of a service have in common."""

    choice: Choice
    tally: Tally
    keep: int = 0
    """How many older versions stay open."""
    asks: bool = False
    """Whether requests may name a version."""


ALONE: Final = Sharing(Choice({CURRENT: 1.0}), Tally(()))
"""One version at a time."""
