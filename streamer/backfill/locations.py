"""`place_of`: which place a location is in."""

from __future__ import annotations

import re
from typing import Final

from pipelines.errors import DefinitionError
from streamer.backfill.localfiles import LocalFiles
from streamer.backfill.places import Place

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://")


def place_of(location: str) -> Place:
    """The place of a path or a URL. Raises `DefinitionError` if its scheme is of no place."""
    scheme = _SCHEME.match(location)
    if scheme is not None:
        raise DefinitionError(f"{location}: files are read and written on this machine, not behind {scheme[1]}://")
    return LocalFiles()
