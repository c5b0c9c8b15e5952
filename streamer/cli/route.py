"""Whether a command's argument names a service file or a topic, and the route of a file's dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipelines.errors import DefinitionError
from streamer.cli.trusted import service_of
from streamer.letters.route import Route, route_of_service

_ENDINGS: Final = (".yaml", ".yml", ".json")


def is_service_file(name: str) -> bool:
    """Whether this names a service file rather than a topic: topics have no slash, and rarely such an ending."""
    return resembles_file(name) and ("/" in name or Path(name).is_file())


def resembles_file(name: str) -> bool:
    """Whether the name ends like a service file."""
    return name.endswith(_ENDINGS)


def route_of_file(file: Path, to: Sequence[str], client: Mapping[str, Any]) -> Route:
    """The route of the dead letters of this file's service, as `route_of_service` gives it.

    Raises `DefinitionError` for an invalid file too.
    """
    service = service_of(file)
    try:
        return route_of_service(service, to, client)
    except DefinitionError as error:
        raise DefinitionError(f"{file}: {error}") from error
