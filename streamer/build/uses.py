"""Finds what a service's definition uses: extras of streamer, other distributions, functions and files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from connectors.codecs.config import CodecConfig
from connectors.codecs.registry import CODECS, codec_config
from connectors.config import ConnectorConfig, SinkConfig, SourceConfig
from connectors.registry import SINKS, SOURCES
from pipelines.definitions.functions import well_formed
from pipelines.executors.errorclasses import module_of
from pipelines.plugins.modelfiles import fetchers, is_remote
from pipelines.plugins.catalog import OURS, Catalog
from pipelines.plugins.registry import Registry, default_registry, requirement_of
from pipelines.plugins.requirements import NOTHING, Package, Requires, required
from pipelines.steps import PipelineStep, Python, Step
from pipelines.steps.code.function import HasFunction
from pipelines.definitions.walk import Part, walk
from streamer.definition.connectors.listed import connectors_of
from streamer.definition.service import Service


@dataclass(frozen=True, slots=True)
class FileUsed:
    """A file or folder that a part names."""

    part: str
    name: str
    """The path as the definition has it."""
    base: Path
    """The folder that a relative path starts from."""


@dataclass(slots=True)
class Uses:
    """The packages, modules and files that one or several services use."""

    packages: dict[Package, str] = field(default_factory=dict)
    """Packages, each with a part that needs it."""
    distributions: dict[str, str] = field(default_factory=dict)
    """Distributions of plug-ins, each with a part that comes from it."""
    modules: dict[str, str] = field(default_factory=dict)
    """Modules that definitions name, each with the part that names it."""
    code: list[tuple[str, str]] = field(default_factory=list)
    """Python code in definitions, each with the part that holds it."""
    files: list[FileUsed] = field(default_factory=list)
    """Files that parts read, definitions among them."""

    def need(self, part: str, declared: Requires) -> None:
        """Add the packages that meet a requirement. Raises `MissingPackageError` if it is not met."""
        requirement = required(declared, None)
        requirement.check(part)
        for package in requirement.met_by():
            self.packages.setdefault(package, part)

    def come_from(self, part: str, distribution: str) -> None:
        """Add the distribution of a plug-in's part; parts of streamer itself need none."""
        if distribution != OURS:
            self.distributions.setdefault(distribution, part)

    def call(self, part: str, function: object) -> None:
        """Add the module of a function that is given as `module:name`; other values are ignored."""
        if isinstance(function, str) and well_formed(function):
            self.modules.setdefault(function.partition(":")[0], part)


def used_by(service: Service) -> Uses:
    """The packages, modules and files that the service uses.

    Raises the errors of finding runners and codecs: `MissingPackageError`, `RegistryError`, `DefinitionError`.
    """
    uses = Uses()
    for connector in connectors_of(service):
        part = "dead_letter" if connector.role == "dead_letter" else connector.part
        _add_connector(uses, part, connector.config)
    registry = default_registry()
    for piece in walk(service.sequence()):
        _add_part(uses, piece, service, registry)
    for name, settings in service.steps.items():
        for error in settings.retry.on if settings.retry else ():
            if module := module_of(error):
                uses.modules.setdefault(module, f"steps {name}")
    return uses


def _add_connector(uses: Uses, part: str, config: ConnectorConfig) -> None:
    catalog: Catalog[Any] = SOURCES if isinstance(config, SourceConfig) else SINKS
    uses.need(part, config.needs)
    if (entry := catalog.find(config.type)) is not None:
        uses.come_from(part, entry.distribution)
    for codec in config.codecs.values():
        uses.need(f"{part}, codec {codec.type}", codec.needs)
        uses.come_from(part, CODECS.known[codec.type].distribution)
    for function in config.functions:
        uses.call(part, function)


def _add_part(uses: Uses, piece: Part, service: Service, registry: Registry) -> None:
    part = f"step {piece.name}"
    what = piece.what
    if isinstance(what, Step):
        factory = registry.runner_for(what, service.runners.get(what.type_name))
        uses.need(part, requirement_of(factory))
        uses.need(part, what.requires)
        uses.come_from(part, registry.origin(factory))
    uses.come_from(part, registry.origin(type(what)))
    if isinstance(what, HasFunction):
        uses.call(part, what.reference)
    if isinstance(what, Python) and what.python_config is not None:
        written = (what.python_config.python_code, what.python_config.import_code)
        uses.code += [(part, code) for code in written if code]
    names = [*what.files]
    if isinstance(what, PipelineStep) and isinstance(what.pipeline, str):
        names.append(what.pipeline)
    for name in filter(is_remote, names):
        fetcher = fetchers().known.get(name.partition("://")[0].lower())
        if fetcher is not None:
            uses.come_from(part, fetcher.distribution)
            uses.need(part, getattr(fetcher.part, "requires", NOTHING))
    uses.files += [FileUsed(part, name, piece.base) for name in names]
