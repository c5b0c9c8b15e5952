"""`Loader`: makes services and agents of the places of a repository."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from connectors.config import SourceConfig
from connectors.http.endpoint.config import HttpSourceConfig
from pipelines.errors import DefinitionError
from pipelines.plugins.versionfolders import model_in, versions_in
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.nocode import NoCode
from streamer.definition.service import Service
from streamer.definition.serving import Place, Serving, services_at
from streamer.definition.settings import Control
from streamer.models.files import ModelFiles
from streamer.models.marks import Caution
from streamer.models.repository.parameters import Parameters, adapted
from streamer.observe.endpoint import Endpoint, Observed

SHARED: Final = ("listen", "grpc", "token", "tls", "hosts", "origins", "connections")
"""Fields of an `http` source that a service of the repository has from the repository's address, if it has none."""


class Current:
    """The agent that runs a model at present, as the control port sees it: one service, whichever agent it is."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def __getattr__(self, name: str) -> Any:
        return getattr(self.agent, name)


class Loader:
    """Knows how models of a folder are served."""

    def __init__(
        self,
        folder: Path,
        serving: Serving,
        *,
        no_code: NoCode | None = None,
        runners: Mapping[str, str] | None = None,
    ) -> None:
        """Raises pydantic's error for wrong fields of the address."""
        self.folder = folder
        self.address = HttpSourceConfig.model_validate({"type": "http", **serving.source})
        """The `http` source of the models' shared address."""
        self.address.check_packages()
        self._serving = serving
        self._no_code = no_code
        self._runners = runners or {}
        self._controls: dict[str, Control | None] = {}
        self._observed: dict[str, tuple[Endpoint, Current]] = {}

    def check(self, place: Place) -> None:
        """Raise `DefinitionError` for a place that links lead out of the folder."""
        files = [place.file]
        if place.step and place.file.is_dir():
            files += [model for number in versions_in(place.file) if (model := model_in(place.file / str(number)))]
        inside = self.folder.resolve()
        for file in files:
            if not file.resolve().is_relative_to(inside):
                raise DefinitionError(
                    f"{file} leads out of the repository, to {file.resolve()}; copy the model into it"
                )

    def service(self, place: Place, name: str, parameters: Parameters, more: int) -> Service:
        """The service of a place under a name, with parameters, and `more` batches at the same time.

        Raises `DefinitionError` for files or parameters that are wrong.
        """
        serving = self._serving if place.step or place.file.stem != "service" else Serving()
        services = services_at(place, serving, self._no_code)
        if len(services) != 1:
            raise DefinitionError(f"{place.file}: it defines {len(services)} services; a model is one")
        service = services[0].with_runners(self._runners)
        if service.name != place.name:
            raise DefinitionError(
                f'{place.file}: its name is "{service.name}", and requests name its folder, "{place.name}"; leave out '
                "the name, or rename the folder"
            )
        if more and not all(isinstance(source, HttpSourceConfig) for source in service.sources):
            raise DefinitionError(
                f"{place.file}: only models that answer requests get more workers; start more processes for the others"
            )
        folder = place.file if place.file.is_dir() else place.file.parent
        service = adapted(service, name, parameters, folder, more)
        sources = [self._at_address(source) for source in service.sources]
        source = sources if isinstance(service.source, list) else sources[0]
        return service.model_copy(update={"source": source})

    def seen(self, service: Service) -> tuple[Service, object]:
        """Equal as long as neither the definition nor the files of the models change."""
        return service, ModelFiles(service.sequence()).look()

    def stays(self, service: Service) -> bool:
        """Whether new files of its models are for the agent that runs it, and not for another in its place.

        It may have what another has not: weights of variants that were changed, older versions that are kept, newer
        ones that it took over itself, and sources of which there cannot be two.
        """
        models = service.models
        several = service.variants or models.keep or models.follow is not None
        return bool(several) or not all(map(self._is_here, service.sources))

    def _is_here(self, source: SourceConfig) -> bool:
        return isinstance(source, HttpSourceConfig) and source.listen == self.address.listen

    def check_replaceable(self, service: Service) -> None:
        """Raise `DefinitionError` where a service cannot take the place of one that runs."""
        for source in service.sources:
            if not self._is_here(source):
                raise DefinitionError(
                    f'the source "{source.label}" is not at the repository\'s address: two of it would read the same; '
                    "unload the model, and load it again"
                )

    def agent(self, service: Service, caution: Caution, before: Agent | None) -> Agent:
        """What runs a service. Its control port is that of `observe`. `caution`: as in `Openings`.

        `before`: whose place it takes; models are warmed up on what that ran.
        """
        self._controls[service.name] = service.control
        service = service.model_copy(update={"control": None})
        assembly = build(service)
        assembly.caution = caution
        if before is not None:
            assembly.ran = {variant: shapes.hints() for variant, shapes in before.ran.items()}
        return Agent(service, assembly=assembly)

    def observe(self, name: str, agent: Agent) -> None:
        """Show it at the control port, if it has one, in place of another one of its name."""
        if name in self._observed:
            self._observed[name][1].agent = agent
            return
        control = self._controls.get(name)
        if control is None:
            return
        current = Current(agent)
        endpoint = Endpoint.join(control.listen, name, cast("Observed", current), control.token, control.hosts)
        self._observed[name] = endpoint, current

    def leave(self, name: str) -> None:
        """It has ended: show it no more."""
        if name in self._observed:
            self._observed.pop(name)[0].leave(name)

    def _at_address(self, source: SourceConfig) -> SourceConfig:
        if not isinstance(source, HttpSourceConfig):
            return source
        if "listen" in source.model_fields_set and source.listen != self.address.listen:
            return source
        shared = {name: getattr(self.address, name) for name in SHARED if name not in source.model_fields_set}
        return source.model_copy(update=shared)
