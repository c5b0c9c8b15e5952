"""What `streamer check` says of the requests that a service answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from connectors.http.endpoint.config import HttpSourceConfig
from pipelines import Pipeline, Sequence
from pipelines.executors.ports import Ports
from pipelines.plugins.modelfiles import is_here, is_remote
from pipelines.steps import Keras, Onnx, Step, TensorFlow, TensorRt, Tvm
from streamer.agent.assembly import ports_for
from streamer.cli.serving.example import curl, ports_in_words, url_of
from streamer.definition.openedpipeline import opened_pipeline
from streamer.definition.service import Service

_MODELS = (Onnx, Keras, TensorFlow, TensorRt, Tvm)


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
    known = _opened_ports(service) if connect else _ports_at_ends(service)
    requests = []
    for config in configs:
        ports = ports_for(service, config, known)
        url = url_of(config, service.name)
        requests.append(Requests(config.label, url, config.grpc, ports, curl(config, url, ports)))
    return requests


def _opened_ports(service: Service) -> Ports:
    with opened_pipeline(service) as executor:
        return executor.ports()


def _ports_at_ends(service: Service) -> Ports:
    """The ports of the first and the last step, if they are models here; other steps may connect to something."""
    pipeline = service.sequence()
    if not isinstance(pipeline, Sequence) or not pipeline.steps:
        return Ports()
    ends = list(_ends(service, pipeline))
    return Ports(ends[0].inputs, ends[0].optional, ends[-1].outputs)


def _ends(service: Service, pipeline: Pipeline) -> Iterator[Ports]:
    for step in dict.fromkeys((0, len(pipeline.steps) - 1)):
        yield _ports_of_model(service, pipeline, pipeline.steps[step])


def _ports_of_model(service: Service, pipeline: Pipeline, step: Step) -> Ports:
    if not isinstance(step, _MODELS) or (step.model_uri and is_remote(step.model_uri) and not is_here(step.model_uri)):
        return Ports()
    alone = Sequence([step.model_copy(update={"warm_up": False})], base=pipeline.base)
    with alone.open(allow_code=service.allows_code, runners=service.runners) as executor:
        return executor.ports()
