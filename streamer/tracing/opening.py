"""Opens the tracing of a service; only then, and only if it has `tracing`, are OpenTelemetry's packages imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from connectors.source import Source
from pipelines.plugins.requirements import Package, Requirement, all_of
from streamer.definition.service import Service

if TYPE_CHECKING:
    from streamer.tracing.tracing import Tracing

REQUIRES: Final[Requirement] = all_of(Package("opentelemetry.sdk", "otel"), Package("requests", "otel"))
"""The packages that traces need."""


def check_packages() -> None:
    """Raise `MissingPackageError` unless the packages are installed."""
    REQUIRES.check("tracing")


def opened_tracing(service: Service, sources: Mapping[str, Source], log: Any) -> Tracing | None:
    """The tracing of a service, to be closed; `None` if it has none."""
    if service.tracing is None:
        return None
    check_packages()
    from streamer.tracing.exporting import Export
    from streamer.tracing.tracing import Tracing

    return Tracing(service, sources, Export(service.name, service.tracing.endpoint, log))
