"""`attach` and `app`: a service as an agent of a Faust app."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from os import PathLike
from typing import Any

import faust
from faust.types.agents import AgentT
from mode.supervisors import CrashingSupervisor

from connectors.kafka.config import KafkaSourceConfig
from pipelines.errors import DefinitionError
from streamer.definition.connectors.written import Written
from streamer.definition.loading import load
from streamer.definition.service import Service
from streamer.faust.engine import Engine, OnEnd
from streamer.faust.events import Undecoded
from streamer.faust.fitting import brokers_of, check_app, check_service
from streamer.faust.login import credentials


def attach(
    app: faust.App,
    service: str | PathLike[str] | Service,
    *,
    concurrency: int = 1,
    sink: Iterable[Any] = (),
) -> AgentT[Any]:
    """Add an agent to `app` that is the service, a file's path or a `Service`, and return the agent.

    Faust's consumer reads the topics of the service's source and Faust's producer writes its results and dead letters;
    everything between is the service's own: codec, batches, pipeline, `keep`, `when`, failures, metrics. A record is
    acknowledged when all its messages are confirmed. When the service fails the app ends, without acknowledging
    records of unconfirmed messages, and the next run gets these records again.

    `sink` are sinks as Faust's agents have them: agents, topics, channels, functions. Each gets every result, as a
    `Data`, and the record is acknowledged when they have taken it. `concurrency` can only be 1: Faust commits past
    records that another of its actors still holds.

    Raises `DefinitionError`, naming file and line, for settings of the service that Faust cannot honour.
    """
    if concurrency != 1:
        raise DefinitionError(
            f"concurrency is {concurrency}, and Faust commits past records that another actor still holds, so that a "
            "crash loses them; leave it at 1 and start more workers, or give the service more threads: limits.threads"
        )
    written = Written.of(service)
    loaded = service if isinstance(service, Service) else load(service)
    check_service(loaded, written)
    check_app(loaded, written, app)
    return _attached(app, loaded, sink)


def app(
    service: str | PathLike[str] | Service,
    *,
    broker: str | list[str] | None = None,
    sink: Iterable[Any] = (),
    **settings: Any,
) -> faust.App:
    """A Faust app with the service in it, for `faust -A module worker`; its id is the service's consumer group.

    `broker` is that of the app (`kafka://host:9092`), by default the source's. TLS and login are as the
    source's `client` says, which here may hold `security.protocol`, `sasl.*` and `ssl.*`. `settings` are any of Faust's
    and override those chosen here: tables in memory, no web server, no leader, commits once a second. Otherwise as
    `attach`.
    """
    loaded = service if isinstance(service, Service) else load(service)
    return app_of(loaded, Written.of(service), broker=broker, sink=sink, **settings)


def app_of(
    service: Service,
    written: Written,
    *,
    broker: str | list[str] | None = None,
    sink: Iterable[Any] = (),
    on_end: OnEnd | None = None,
    **settings: Any,
) -> faust.App:
    """As `app`, of a service that was `written` so. `on_end` gets the summary of its run when that has ended."""
    logs_in = not settings.keys() & {"broker_credentials", "ssl_context"}
    check_service(service, written, logs_in=logs_in)
    source = service.sources[0]
    assert isinstance(source, KafkaSourceConfig)
    chosen: dict[str, Any] = {
        "broker": broker or [f"kafka://{address}" for address in brokers_of(source)],
        "broker_credentials": credentials(service, written) if logs_in else None,
        "store": "memory://",
        "web_enabled": False,
        "topic_disable_leader": True,
        "broker_commit_interval": 1.0,
        "consumer_auto_offset_reset": source.start,
        "producer_linger": 0.005,
        "producer_max_batch_size": 256 * 1024,
        "producer_max_request_size": 1 << 20,
        **settings,
    }
    made = faust.App(source.group or service.name, **chosen)
    check_app(service, written, made, own_broker=broker is not None)
    _attached(made, service, sink, on_end)
    return made


def _attached(app: faust.App, service: Service, sink: Iterable[Any], on_end: OnEnd | None = None) -> AgentT[Any]:
    (source,) = service.sources

    async def infer(stream: Any) -> AsyncIterator[Any]:
        async for result in Engine(app, service, on_end).run(stream):
            yield result

    infer.__doc__ = f"The service {service.name}, by streamer."
    return app.agent(
        app.topic(*source.topic_names, schema=Undecoded()),
        name=service.name,
        concurrency=1,
        supervisor_strategy=CrashingSupervisor,
        sink=list(sink) or None,
    )(infer)
