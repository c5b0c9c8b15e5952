"""Plug-ins: steps, runners and the like that installed packages add to a registry through entry points."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pipelines.errors import DISTRIBUTION, RAISED, StreamerError

OURS = "streamer"
"""The origin of built-in steps, runners and the like, in listings and messages."""


class RegistryError(StreamerError):
    """A step, runner or the like that is not registered, cannot run here, or exists twice."""


def load_plugins(group: str, add: Callable[[Any, str], None], problems: list[str]) -> None:
    """Load all entry points of `group` and give each to `add`, with the name of the distribution it is from.

    One that cannot be imported, or that `add` refuses, is skipped with a `RuntimeWarning` and a line in `problems`.
    """
    for point in plugin_points(group):
        origin = origin_of(point)
        origin = OURS if origin == DISTRIBUTION else origin
        try:
            add(point.load(), origin)
        except RAISED as error:  # a plug-in's own code may raise anything, and must not take the rest down
            problem = f"plug-in {point.name} of {origin} ({point.value}): {type(error).__name__}: {error}"
            problems.append(problem)
            warnings.warn(f"{problem}; it is skipped", RuntimeWarning, stacklevel=2)


def plugin_points(group: str) -> list[EntryPoint]:
    """The entry points of a group that installed distributions have, none of them imported; always in one order."""
    # The same one may be found twice where a folder is twice on sys.path.
    found = {(origin_of(point), point.name, point.value): point for point in entry_points(group=group)}
    return [found[key] for key in sorted(found)]


def origin_of(point: EntryPoint) -> str:
    """The distribution that an entry point is from; its target where that is not known."""
    return point.dist.name if point.dist is not None else point.value
