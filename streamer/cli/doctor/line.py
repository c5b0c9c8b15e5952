"""`Line` and `Section`: the page of `streamer doctor`, before it is printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at."""

    part: str
    """Its name: `Python`, `open files`, `source kafka`."""
    state: State
    text: str
    """What it is, or what is wrong with it."""
    advice: str = ""
    """What to do next; empty where nothing has to be done, or where the text says it."""
    of_file: bool = False
    """Whether a service file is wrong, rather than this machine, or a server that does not answer."""


@dataclass(frozen=True, slots=True)
class Section:
    """Lines about one thing, with its heading."""

    title: str
    lines: list[Line]
