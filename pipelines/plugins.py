"""Plug-ins: what installed packages add to a registry through entry points, without a change of ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pipelines.errors import StreamerError

OURS = "streamer"
"""Where built-in things come from, in listings and messages."""


class RegistryError(StreamerError):
    """Something registered by name that is missing, cannot run here, or exists twice."""


def load_plugins(group: str, add: Callable[[Any, str], None], problems: list[str]) -> None:
    """Load all entry points of `group` and give each to `add`, with the name of the distribution it is from.

    One that cannot be imported, or that `add` refuses, is skipped with a `RuntimeWarning` and a line in `problems`.
    """
    for point in _entry_points(group):
        origin = point.dist.name if point.dist is not None else point.value
        try:
            add(point.load(), origin)
        except Exception as error:  # noqa: BLE001 - a plug-in's own code may raise anything, and must not take the rest down
            problem = f"plug-in {point.name} of {origin} ({point.value}): {type(error).__name__}: {error}"
            problems.append(problem)
            warnings.warn(f"{problem}; it is skipped", RuntimeWarning, stacklevel=2)


def _entry_points(group: str) -> list[EntryPoint]:
    # Sorted, so that which of two comes first does not depend on the order of sys.path; the same one may be found
    # twice where a folder is on it twice.
    found = {
        (point.dist.name if point.dist else "", point.name, point.value): point for point in entry_points(group=group)
    }
    return [found[key] for key in sorted(found)]
