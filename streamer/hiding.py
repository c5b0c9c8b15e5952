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
        spec = find_spec(name)
        # Without a file it is a folder that merely has the name.
        folders = [] if spec is None else list(spec.submodule_search_locations or ())
        for folder in (Path(path).resolve() for path in folders):
            if folder.parent != here:
                return f"{folder} hides the package {name} of streamer: rename it, or start elsewhere"
    return None
