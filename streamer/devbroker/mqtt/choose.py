"""Find an MQTT broker: the one the user names, else mosquitto as installed, amqtt, or mosquitto in a container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from pipelines.errors import MissingPackageError
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.jars import Progress
from streamer.devbroker.mqtt.container import IMAGE, answers, mosquitto_container
from streamer.devbroker.mqtt.development import DevelopmentBroker
from streamer.devbroker.mqtt.mosquitto import LocalMosquitto

VARIABLE = "MQTT_BROKER"
"""The environment variable that names a broker which runs already, as `host:port` or `host`."""

DEFAULT_PORT = 1883

_ANSWER_TIMEOUT = 10.0


@dataclass(frozen=True)
class MqttBroker:
    """An MQTT broker that answers: its address, its kind and a description."""

    host: str
    port: int
    kind: Literal["environment", "mosquitto", "development", "docker"]
    description: str

    @property
    def address(self) -> str:
        """`host:port`, as `MQTT_BROKER` names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """`mqtt://host:port`."""
        return f"mqtt://{self.address}"


@contextmanager
def open_mqtt_broker(
    purpose: str, progress: Progress | None = None, *, allow_development: bool = False
) -> Iterator[MqttBroker]:
    """An MQTT broker for `purpose` (a noun phrase for the error text), stopped at the block's end.

    Tried in this order: `MQTT_BROKER` (when it is set nothing else is tried, and it is never stopped), mosquitto if it
    is installed, with `allow_development` amqtt in this process, a container if the Docker engine answers
    within 2 s. `progress` is called before work that takes long.

    Raises `BrokerError` with a line for each way tried and why it failed.
    """
    named = os.environ.get(VARIABLE)
    if named:
        yield _named(named, purpose)
        return
    failures: list[str] = []
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(LocalMosquitto())
        except BrokerError as error:
            failures.append(f"  mosquitto: {error}")
        else:
            yield MqttBroker(broker.host, broker.port, "mosquitto", broker.describe())
            return
        if allow_development:
            try:
                development = stack.enter_context(DevelopmentBroker())
            except MissingPackageError as error:
                failures.append(f"  amqtt: {error}")
            else:
                yield MqttBroker(development.host, development.port, "development", development.describe())
                return
        try:
            host, port = stack.enter_context(mosquitto_container(progress))
        except (BrokerError, MissingPackageError) as error:
            failures.append(f"  docker: {error}")
        else:
            yield MqttBroker(host, port, "docker", f"{IMAGE} in a container on {host}:{port}")
            return
    tried = "\n".join(failures)
    raise BrokerError(f"{purpose} needs an MQTT broker and none could be had:\n  {VARIABLE}: not set\n{tried}")


def _named(text: str, purpose: str) -> MqttBroker:
    host, separator, digits = text.rpartition(":")
    if not separator:
        host, digits = text, str(DEFAULT_PORT)
    if not host or not digits.isdecimal() or not 0 < int(digits) < 65536:
        raise BrokerError(f"{VARIABLE}={text} names no broker: write host:port, such as localhost:1883")
    host = host.removeprefix("[").removesuffix("]")
    if not answers(host, int(digits), _ANSWER_TIMEOUT):
        raise BrokerError(
            f"{purpose} needs an MQTT broker, and {VARIABLE}={text} does not answer: "
            "start it, correct the variable, or unset it to have one started here"
        )
    return MqttBroker(host, int(digits), "environment", f"the broker named by {VARIABLE}, {text}")
