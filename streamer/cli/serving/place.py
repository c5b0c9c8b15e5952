"""Where a service of a file answers requests, for `streamer send FILE`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from connectors.http.endpoint.config import HttpSourceConfig
from pipelines.errors import DefinitionError
from streamer.cli.serving.example import url_of
from streamer.cli.trusted import service_of


@dataclass(frozen=True, slots=True)
class RequestsPlace:
    """The URL of a service, and what its requests need."""

    url: str
    token: str | None = None
    codec: str | dict[str, object] | None = None


def place_of_requests(file: Path, name: str | None) -> RequestsPlace | None:
    """The place of the source `name`, or of the first of type `http` of a service that reads no topics.

    `None` where the source is another one. Raises `DefinitionError` for an invalid file, and for a port that only the
    running service knows.
    """
    service = service_of(file)
    if name is None and any(config.browser({}) is not None for config in service.sources):
        return None
    for config in service.sources:
        if not isinstance(config, HttpSourceConfig) or name not in (None, config.label):
            continue
        if config.listen.endswith(":0"):
            raise DefinitionError(
                f"{file}: the source {config.label} listens at any free port; --http URL says which, as the log does"
            )
        token = None if config.token is None else config.token.get_secret_value() or None
        return RequestsPlace(url_of(config, service.name), token, config.codec)
    return None
