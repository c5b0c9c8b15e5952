"""Checks a service for a backfill: settings by which results would be others than those of files are errors."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.definitions.document import KeyPath
from pipelines.errors import DefinitionError
from pipelines.executors.executor import Executor
from streamer.definition.connectors.written import Written
from streamer.definition.refusals import place_of
from streamer.definition.service import Service


def check_service(service: Service) -> None:
    """Raise `DefinitionError`, with file and line, for settings of this service that a backfill cannot have."""
    written = Written(service.written)
    for path, message in _refused(service):
        raise written.error(path, message)


def check_steps(service: Service, executor: Executor) -> None:
    """Raise `DefinitionError` for a step of the open pipeline that remembers earlier records."""
    steps = [*executor.sequential_steps, *executor.saving_steps, *executor.unsaved_steps]
    if steps:
        raise DefinitionError(
            f"{place_of(service.written, 'pipeline', steps[0])}step {steps[0]} remembers earlier records or holds "
            "them, and a backfill runs parts of files in any order; leave it out, or run a service with a file source, "
            "which reads files in their order: streamer run"
        )


def _refused(service: Service) -> Iterator[tuple[KeyPath, str]]:
    if service.variants:
        yield (
            ("variants",),
            "not possible in a backfill, which has one version of the pipeline; leave them out, or give the version by "
            "set",
        )
    if service.debug is True:
        yield ("debug",), "not possible in a backfill, whose results have no traces; leave it out"
