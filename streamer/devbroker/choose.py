"""Find a broker: the one the user names, else a container, else Kafka's jars, else (if allowed) the mock cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from connectors.kafka.client.brokers import VARIABLE as VARIABLE
from pipelines.errors import DISTRIBUTION, MissingPackageError
from streamer.devbroker.container import IMAGE, kafka_container
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.jars import Progress
from streamer.devbroker.local import LocalKafka
from streamer.devbroker.mock import MockKafka
from streamer.devbroker.settings import SLOW_LOSS

Kind = Literal["environment", "docker", "jars", "mock"]

_ANSWER_TIMEOUT = 10.0


@dataclass(frozen=True)
class Substitute:
    """Why there is a mock cluster instead of a real Kafka."""

    reason: str
    """Why there is neither a container nor Kafka from its jars, in a few words each."""
    remedy: str
    """What the user can do to get a real Kafka, as a command: "call again with a network"."""


@dataclass(frozen=True)
class Broker:
    """A broker that answers: its address (`bootstrap`), its kind and a description."""

    bootstrap: str
    kind: Kind
    description: str
    substitute: Substitute | None = None
    """Of a mock: why it is no real Kafka."""


@contextmanager
def open_broker(purpose: str, allow_mock: bool = False, progress: Progress | None = None) -> Iterator[Broker]:
    """A Kafka broker for `purpose` (a noun phrase for the error text, such as "the demo"), stopped at the block's end.

    Tried in this order: `KAFKA_BOOTSTRAP_SERVERS` (when it is set nothing else is tried, and it is never stopped), a
    container if the Docker engine answers within 2 s, Apache Kafka's jars, and with `allow_mock` librdkafka's mock
    cluster, whose `description` says that it is not a real Kafka, and its `substitute` why. `progress` is called before
    work that takes long.

    Raises `MissingPackageError` (extra `broker`) when only missing packages are in the way, else `BrokerError`,
    with a line for each way tried and why it failed.
    """
    named = os.environ.get(VARIABLE)
    if named:
        yield _named(named, purpose)
        return
    ways: dict[Kind, Callable[[Progress | None], AbstractContextManager[Broker]]] = {"docker": _docker, "jars": _jars}
    failures: dict[Kind, Exception] = {}
    with ExitStack() as stack:
        for kind, way in ways.items():
            try:
                broker = stack.enter_context(way(progress))
            except (BrokerError, MissingPackageError) as error:
                failures[kind] = error
                continue
            yield broker
            return
        if allow_mock:
            try:
                broker = stack.enter_context(_mock(progress, _substitute(failures)))
            except (BrokerError, MissingPackageError) as error:
                failures["mock"] = error
            else:
                yield broker
                return
    raise _nothing(purpose, failures)


def _named(bootstrap: str, purpose: str) -> Broker:
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise MissingPackageError("confluent-kafka", "broker", purpose) from error
    try:
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=_ANSWER_TIMEOUT)
    except KafkaException as error:
        raise BrokerError(
            f"{purpose} needs a Kafka broker, and {VARIABLE}={bootstrap} does not answer ({error.args[0].str()}): "
            "start it, correct the variable, or unset it to have one started here"
        ) from error
    return Broker(bootstrap, "environment", f"the broker named by {VARIABLE}, {bootstrap}")


@contextmanager
def _docker(progress: Progress | None) -> Iterator[Broker]:
    with kafka_container(progress) as bootstrap:
        yield Broker(bootstrap, "docker", f"{IMAGE} in a container on {bootstrap}")


@contextmanager
def _jars(progress: Progress | None) -> Iterator[Broker]:
    with LocalKafka(settings=SLOW_LOSS, progress=progress) as kafka:
        yield Broker(kafka.bootstrap, "jars", kafka.describe())


@contextmanager
def _mock(progress: Progress | None, substitute: Substitute) -> Iterator[Broker]:
    with MockKafka() as kafka:
        if progress is not None:
            progress(f"no real Kafka to be had ({substitute.reason}): {kafka.describe()}")
        yield Broker(kafka.bootstrap, "mock", kafka.describe(), substitute)


def _substitute(failures: Mapping[Kind, Exception]) -> Substitute:
    docker, jars = failures["docker"], failures["jars"]
    if isinstance(jars, MissingPackageError):
        remedy = f"pip install '{DISTRIBUTION}[broker]'"
    else:
        remedy = (jars.remedy if isinstance(jars, BrokerError) else "") or "run streamer broker, which shows its log"
    return Substitute(f"no container: {_reason(docker)}; no jars of Kafka: {_reason(jars)}", remedy)


def _reason(failure: Exception) -> str:
    if isinstance(failure, MissingPackageError):
        return f"the package {failure.name} is not installed"
    return failure.reason if isinstance(failure, BrokerError) else str(failure)


def _nothing(purpose: str, failures: Mapping[Kind, Exception]) -> BrokerError | MissingPackageError:
    last = failures["jars"]
    if isinstance(last, MissingPackageError):
        return MissingPackageError(last.name or "jgo", "broker", f"{purpose} starts a Kafka broker, which")
    tried = "\n".join(f"  {kind}: {error}" for kind, error in failures.items())
    return BrokerError(f"{purpose} needs a Kafka broker and none could be had:\n  {VARIABLE}: not set\n{tried}")
