"""Whether several worker processes can run a service, and the service as each of them runs it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

from pipelines.definitions.document import KeyPath
from streamer.definition.connectors.listed import connectors_of
from streamer.definition.service import Service
from streamer.definition.settings import StateSettings
from streamer.workers.layout import WORKER_VARIABLE

LOCAL: Final = "127.0.0.1:0"
"""The control port of a worker: any free one, which its parent asks."""
_PLACEHOLDER: Final = f"${{{WORKER_VARIABLE}}}"


def refusals(service: Service, other: Service) -> list[str]:
    """Why several workers cannot run a service, a sentence each, with file and line as far as known; empty if they can.

    `service` and `other` are the same one, as the first and as another worker read it.
    """
    return [f"{_where(service, path)}service {service.name}: {why}" for path, why in _refusals(service, other)]


def for_worker(service: Service, worker: int) -> Service:
    """The service as the worker of this number runs it: its sources with names of their own, and a control port for its
    parent."""
    name = f"{socket.gethostname()}-{worker}"
    control = None if service.control is None else service.control.model_copy(update={"listen": LOCAL})
    sources = [source.of_worker(name) for source in service.sources]
    return service.model_copy(update={"source": sources, "control": control})


def _refusals(service: Service, other: Service) -> Iterator[tuple[KeyPath, str]]:
    for index, source in enumerate(service.sources):
        if source.undivided is not None:
            yield ("source", index), f'source "{source.label}": {source.undivided}'
    for each, same in zip(connectors_of(service), connectors_of(other), strict=True):
        theirs = same.config.exclusive
        for key, value in each.config.exclusive.items():
            if theirs.get(key) == value:
                why = f"all workers would have {value}, and only one can; make it differ by {_PLACEHOLDER}"
                yield (*each.path, *key.split(".")), f'{each.kind} "{each.config.label}": {key}: {why}'
    if isinstance(service.state, StateSettings):
        if service.groups:
            why = (
                "partitions move between workers, and a file has the state of one process; write {topic: NAME}, or run "
                "it without --workers"
            )
            yield ("state",), f"state: {why}"
        elif isinstance(other.state, StateSettings) and service.state.path == other.state.path:
            why = f"all workers would write {service.state.path}; make it differ by {_PLACEHOLDER}"
            yield ("state", "path"), f"state.path: {why}"
    if service.profile is not None and other.profile is not None and service.profile.file == other.profile.file:
        why = f"all workers would write {service.profile.file}; make it differ by {_PLACEHOLDER}"
        yield ("profile", "file"), f"profile.file: {why}"


def _where(service: Service, path: KeyPath) -> str:
    written = service.written
    if written is None:
        return ""
    # A single source or sink may be written without a list.
    if len(path) > 1 and isinstance(written.data, dict) and not isinstance(written.data.get(path[0]), list):
        path = (path[0], *(part for part in path[1:] if isinstance(part, str)))
    line = written.line(path)
    file = written.file or ""
    return f"{file}:{line}: " if file and line else f"{file}: " if file else ""
