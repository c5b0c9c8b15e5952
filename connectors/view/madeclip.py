"""`MadeClip`: a finished file of a clip, for sinks that show which clips there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class MadeClip:
    """A file with a part of a camera's video, or all of a clip."""

    camera: str
    event: int
    """The time of the event that the clip was begun for, in milliseconds since 1970."""
    begin: int
    """The time of its first picture, in milliseconds since 1970."""
    end: int
    """The time of its last picture."""
    path: Path
    """The file. It is deleted when there are too many clips."""


@runtime_checkable
class TellsClips(Protocol):
    """A sink that writes clips, and tells others of them."""

    def on_clip(self, call: Callable[[MadeClip], None]) -> None:
        """Have this called with each finished file, in a thread of the sink; it must be quick."""
