"""`streamer broker`: a real Apache Kafka, or an MQTT broker, on this machine, for development."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli.options import AsJson

if TYPE_CHECKING:
    from streamer.devbroker import LocalKafka
    from streamer.devbroker.mqtt import DevelopmentBroker, LocalMosquitto
    from streamer.devbroker.registry import LocalRegistry

KAFKA_PORT = 9092
MQTT_PORT = 1883
REGISTRY_PORT = 8081


def broker(
    mqtt: Annotated[
        bool, typer.Option("--mqtt", help="An MQTT broker: mosquitto if it is installed, else amqtt.")
    ] = False,
    nodes: Annotated[
        int, typer.Option("--nodes", min=1, max=9, help="The number of brokers; 3 for replicated topics.")
    ] = 1,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="A folder for its data; without it the data is deleted when the broker stops."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Port of the first broker, others get the next ones; 0: any free. Default: 9092, for MQTT 1883 or any "
            "free.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Create NAME or NAME:PARTITIONS; may be repeated.")
    ] = None,
    registry: Annotated[
        bool,
        typer.Option("--registry", help="Also a schema registry, Apicurio, on port 8081 or any free one; in memory."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start Apache Kafka on localhost, with no Docker and no Java installed, or an MQTT broker, until Ctrl-C.

    The first time it downloads Kafka's jars, 43 MB, and for `--registry` 109 MB more. If mosquitto is not
    installed, `--mqtt` starts amqtt (extra `broker`), which speaks MQTT 3.1.1 and keeps all data in memory.
    """
    if mqtt:
        if nodes != 1 or topic or registry:
            raise typer.BadParameter(
                "--nodes, --topic and --registry are Kafka's; an MQTT topic is there when it is used"
            )
        _mqtt(data, port, as_json)
    else:
        _kafka(nodes, data, KAFKA_PORT if port is None else port, topic or [], registry, as_json)


def _kafka(nodes: int, data: Path | None, port: int, topics: list[str], registry: bool, as_json: bool) -> None:
    from streamer.cli.signals import draining
    from streamer.cli.terminal import notes, remark, say_json
    from streamer.devbroker import LocalKafka, create_topics

    wanted = dict(_topic(text) for text in topics)
    try:
        with (
            draining(_interrupt),
            notes().status("starting Apache Kafka ...") as status,
            ExitStack() as started,
        ):

            def progress(text: str) -> None:
                status.update(f"{text} ...")

            kafka = started.enter_context(LocalKafka(nodes, data, port=port or None, progress=progress))
            if wanted:
                create_topics(kafka.bootstrap, wanted, replication=min(nodes, 3))
            beside = None
            if registry:
                progress("starting a schema registry")
                beside = started.enter_context(_registry(port, progress))
            status.stop()
            for text in _how_to_use(kafka, beside):
                remark(text)
            if as_json:
                url = {} if beside is None else {"registry": beside.url}
                say_json({"bootstrap": kafka.bootstrap, "nodes": nodes, "topics": wanted, **url})
            kafka.wait()
    except KeyboardInterrupt:
        remark("stopped")


def _mqtt(data: Path | None, port: int | None, as_json: bool) -> None:
    from streamer.cli.signals import draining
    from streamer.cli.terminal import remark, say_json
    from streamer.devbroker.mqtt import DevelopmentBroker

    try:
        with draining(_interrupt), mqtt_broker(data, port) as running:
            remark(running.describe())
            remark(f"  export MQTT_BROKER={running.host}:{running.port}")
            remark(f"  in a service file: url: {running.url}")
            if isinstance(running, DevelopmentBroker):
                remark("  for MQTT 5, and a broker that keeps its data, install mosquitto (apt-get install mosquitto)")
            remark("Ctrl-C stops it")
            if as_json:
                kind = "development" if isinstance(running, DevelopmentBroker) else "mosquitto"
                say_json({"url": running.url, "host": running.host, "port": running.port, "broker": kind})
            running.wait()
    except KeyboardInterrupt:
        remark("stopped")


def mqtt_broker(data: Path | None, port: int | None) -> LocalMosquitto | DevelopmentBroker:
    """The MQTT broker that `streamer broker --mqtt` starts; not yet started. `port` `None`: 1883, or any free one."""
    from streamer.cli.terminal import remark
    from streamer.devbroker.mqtt import DevelopmentBroker, LocalMosquitto, find_mosquitto
    from streamer.devbroker.ports import is_free

    if port is None and not is_free(MQTT_PORT):
        remark(f"port {MQTT_PORT} is taken, by another MQTT broker perhaps: taking another one")
        port = 0
    wanted = MQTT_PORT if port is None else port
    if find_mosquitto() is not None:
        return LocalMosquitto(data, port=wanted or None)
    if data is not None:
        raise typer.BadParameter("--data needs mosquitto, which is not installed; amqtt keeps no data on disk")
    return DevelopmentBroker(wanted)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _topic(text: str) -> tuple[str, int]:
    name, separator, partitions = text.partition(":")
    if not name or (separator and not (partitions.isdecimal() and int(partitions))):
        raise typer.BadParameter(f"--topic takes NAME or NAME:PARTITIONS, not {text!r}")
    return name, int(partitions or 1)


def _registry(port: int, progress: Callable[[str], None]) -> LocalRegistry:
    """A schema registry, not started yet, on port 8081 or any free one; with `port` 0 on any free one."""
    from streamer.cli.terminal import remark
    from streamer.devbroker.ports import is_free
    from streamer.devbroker.registry import LocalRegistry

    wanted = REGISTRY_PORT if port else None
    if wanted is not None and not is_free(wanted):
        remark(f"port {wanted} is taken, by another registry perhaps: taking another one")
        wanted = None
    return LocalRegistry(port=wanted, progress=progress)


def _how_to_use(kafka: LocalKafka, registry: LocalRegistry | None) -> list[str]:
    lines = [kafka.describe(), f"  export KAFKA_BOOTSTRAP_SERVERS={kafka.bootstrap}"]
    if registry is not None:
        lines += [registry.describe(), f"  export SCHEMA_REGISTRY_URL={registry.url}"]
    return [*lines, "Ctrl-C stops it" if registry is None else "Ctrl-C stops both"]
