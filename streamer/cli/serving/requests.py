"""What `streamer check` says of the requests that a service answers."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.http.endpoint.config import HttpSourceConfig
from pipelines.executors.ports import Ports
from streamer.agent.assembly import ports_for
from streamer.cli.serving.example import curl, ports_in_words, url_of
from streamer.definition.openedpipeline import opened_pipeline, ports_at_ends
from streamer.definition.service import Service


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests that a source of the service takes."""

    source: str
    """The source's name."""
    url: str
    grpc: str | None
    ports: Ports
    curl: str
    """A command that sends a first one."""

    @property
    def in_words(self) -> str:
        """The URL, and what requests bring and answers have, as far as that is known."""
        at = self.url if self.grpc is None else f"{self.url}, gRPC {self.grpc}"
        return "; ".join(filter(None, (at, ports_in_words(self.ports))))


def requests_of(service: Service, *, connect: bool) -> list[Requests]:
    """Of each source of type `http`. With `connect` the whole pipeline is opened, else only models at its ends.

    Raises as opening a step does.
    """
    configs = [config for config in service.sources if isinstance(config, HttpSourceConfig)]
    if not configs:
        return []
    known = _opened_ports(service) if connect else ports_at_ends(service)
    requests = []
    for config in configs:
        ports = ports_for(service, config, known)
        url = url_of(config, service.name)
        requests.append(Requests(config.label, url, config.grpc, ports, curl(config, url, ports)))
    return requests


def _opened_ports(service: Service) -> Ports:
    with opened_pipeline(service) as executor:
        return executor.ports()
