"""Packages of the user's that have the names of ours and would be imported in their place."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_OURS = ("pipelines", "connectors", "protos")


def hiding() -> str | None:
    """The error about a package, or a folder, that hides one of ours of the same name; `None` if there is none.

    It would be imported instead, and fail with errors that are hard to understand.
    """
    here = Path(__file__).resolve().parents[1]
    for name in _OURS:
        found = find_spec(name)
        # Without a file it is a folder that merely has the name.
        places = [] if found is None else list(found.submodule_search_locations or ())
        for place in (Path(one).resolve() for one in places):
            if place.parent != here:
                return f"{place} hides the package {name} of streamer: rename it, or start elsewhere"
    return None
