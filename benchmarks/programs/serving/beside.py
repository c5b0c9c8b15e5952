"""A service from topic to topic, with a listener beside it or without. Arguments: broker, topic, port (0: no HTTP)."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pipelines
import streamer


def main(bootstrap: str, topic: str, http: str) -> None:
    """Run until SIGTERM: the records of the topic go to `TOPIC.results`."""
    # Blocked before threads begin, so that the signal waits for `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    kafka = {"type": "kafka", "bootstrap": bootstrap}
    sources: list[dict[str, Any]] = [{**kafka, "topics": [topic], "group": topic}]
    sinks: list[dict[str, Any]] = [{**kafka, "topic": f"{topic}.results"}]
    if http != "0":
        sources.append({"type": "http", "listen": f"127.0.0.1:{http}"})
        sinks = [{**sinks[0], "sources": ["kafka"]}, {"type": "http"}]
    with streamer.Service(name="model", source=sources, sink=sinks, pipeline=pipelines.Sequence([])):
        signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    main(*sys.argv[1:])
