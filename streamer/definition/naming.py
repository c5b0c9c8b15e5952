"""The name of a service whose file does not set one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_OF_ANY: Final = frozenset({"app", "config", "main", "pipeline", "service", "services", "streamer"})
"""Names of files that say nothing about a service: then the folder's name is used."""


def default_name(file: Path) -> str:
    """The file's name without its ending: `digits` for `digits.yaml`.

    For a file with a general name, such as `service.yaml`, it is the name of its folder, because the name is also the
    default consumer group, and services that share a group take each other's records. Links are not followed.
    """
    if file.stem.lower() not in _OF_ANY:
        return file.stem
    return Path(os.path.abspath(file)).parent.name or file.stem  # noqa: PTH100 - it alone leaves links alone
