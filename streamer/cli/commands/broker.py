"""`streamer broker`: a real Apache Kafka on this machine, for development."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli.options import AsJson

if TYPE_CHECKING:
    from streamer.devbroker import LocalKafka


def broker(
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=9, help="Brokers; 3 for replicated topics.")] = 1,
    data: Annotated[
        Path | None, typer.Option("--data", help="A folder that keeps the topics; without it they go when it stops.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port of the first node, the next ones follow; 0: any free.")
    ] = 9092,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Create NAME or NAME:PARTITIONS; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start Apache Kafka on localhost, with no Docker and no Java installed, until Ctrl-C.

    The first time it downloads Kafka's jars, 43 MB.
    """
    from streamer.cli.signals import draining
    from streamer.cli.terminal import notes, remark, say_json
    from streamer.devbroker import LocalKafka, create_topics

    wanted = dict(_topic(text) for text in topic or ())
    try:
        with draining(_interrupt), notes().status("starting Apache Kafka ...") as status:
            kafka = LocalKafka(nodes, data, port=port or None, progress=lambda text: status.update(f"{text} ..."))
            with kafka:
                if wanted:
                    create_topics(kafka.bootstrap, wanted, replication=min(nodes, 3))
                status.stop()
                for text in _how_to_use(kafka):
                    remark(text)
                if as_json:
                    say_json({"bootstrap": kafka.bootstrap, "nodes": nodes, "topics": wanted})
                kafka.wait()
    except KeyboardInterrupt:
        remark("stopped")


def _interrupt() -> None:
    raise KeyboardInterrupt


def _topic(text: str) -> tuple[str, int]:
    name, separator, partitions = text.partition(":")
    if not name or (separator and not (partitions.isdecimal() and int(partitions))):
        raise typer.BadParameter(f"--topic takes NAME or NAME:PARTITIONS, not {text!r}")
    return name, int(partitions or 1)


def _how_to_use(kafka: LocalKafka) -> list[str]:
    return [kafka.describe(), f"  export KAFKA_BOOTSTRAP_SERVERS={kafka.bootstrap}", "Ctrl-C stops it"]
