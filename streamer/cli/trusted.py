"""Service files of commands that connect to their buses or read their files without running them."""

from __future__ import annotations

from pathlib import Path

from streamer.definition.loading import load, load_all
from streamer.definition.refusals import check_code
from streamer.definition.service import Service


def service_of(file: Path) -> Service:
    """The service of this file.

    Raises `DefinitionError` for an invalid file, and, where STREAMER_NO_CODE forbids code, for a file that names code,
    or files that are not listed.
    """
    service = load(file)
    check_code(service)
    return service


def services_of(file: Path) -> list[Service]:
    """All services of this file. Raises the errors of `service_of`."""
    services = load_all(file)
    for service in services:
        check_code(service)
    return services
