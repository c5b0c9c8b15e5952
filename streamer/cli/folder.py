"""The working directory as a place to import from."""

from __future__ import annotations

import importlib
import os
import sys


def import_from_here() -> None:
    """Let a service's own functions be imported from the working directory, after everything that is installed.

    Our packages are imported first: a folder `connectors` of the user's must not hide ours, also where ours are found
    by an import hook that comes after the path (editable installations).
    """
    for package in ("protos", "pipelines", "connectors", "streamer"):
        importlib.import_module(package)
    here = os.getcwd()  # noqa: PTH109 - sys.path holds text
    if here not in sys.path:
        sys.path.append(here)
