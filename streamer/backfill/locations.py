"""`place_of`: which place a location is in."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from connectors.stores.filesystems import PACKAGES
from pipelines.errors import DefinitionError, nearest
from pipelines.plugins.modelfiles import shortened
from streamer.backfill.localfiles import LocalFiles
from streamer.backfill.objectstores import ObjectStore
from streamer.backfill.places import Place

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://")


def place_of(location: str) -> Place:
    """The place of a path or a URL.

    Raises `DefinitionError` if its scheme is of no place, and `MissingPackageError` if its package is not installed.
    """
    scheme = _SCHEME.match(location)
    if scheme is None:
        return LocalFiles()
    if scheme[1] not in PACKAGES:
        known = ", ".join(f"{each}://" for each in PACKAGES)
        raise DefinitionError(
            f"{shortened(location)}: no files are read or written behind {scheme[1]}://"
            f"{nearest(scheme[1], PACKAGES)}; there are {known} and paths of this machine"
        )
    return store_of(scheme[1])


@cache
def store_of(scheme: str) -> ObjectStore:
    """The store behind a scheme of `PACKAGES`, which is opened once in a process: it keeps logins and connections."""
    return ObjectStore(scheme)
