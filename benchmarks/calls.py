"""What a call of `streamer.Client` costs beside clients that are written by hand, in one run and in turns.

Over Kafka: confluent-kafka with a dictionary of ids, against the same relay in another process; a real Kafka is
started. Over HTTP: the unmodified `tritonclient`, against the service of the digits example, in another process too.
Usage:

    python -m benchmarks.calls [--kafka | --http]
"""

from __future__ import annotations

import multiprocessing
import secrets
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import streamer
from streamer.devbroker import create_topics, open_broker

DIGITS = Path(__file__).parents[1] / "examples" / "digits"
ROUNDS = 8
CALLS = 200
"""Calls of a client in a round."""
Call = Callable[[], object]


def main(arguments: list[str]) -> None:
    """Print the median time and the CPU time of a call, of each client."""
    if "--http" not in arguments:
        kafka()
    if "--kafka" not in arguments:
        http()


def kafka() -> None:
    """A call over Kafka, with a payload of a few bytes: ProtoData, by hand JSON."""
    with open_broker("the benchmark of calls") as broker:
        topic = f"calls-{secrets.token_hex(4)}"
        create_topics(broker.bootstrap, {topic: 1, f"{topic}.replies": 1, f"{topic}.hand": 1})
        relay = multiprocessing.get_context("spawn").Process(target=_relay, args=(broker.bootstrap, topic), daemon=True)
        relay.start()
        with (
            streamer.Client(f"kafka://{broker.bootstrap}/{topic}") as client,
            HandWritten(broker.bootstrap, topic) as by_hand,
        ):
            _report("Kafka", {"by hand": lambda: by_hand({"x": 1}), "streamer.Client": lambda: client(x=1)})
        relay.kill()


def http() -> None:
    """A call over HTTP, with a picture of 64 numbers."""
    import tritonclient.http as triton  # type: ignore[import-untyped]

    image = np.zeros((1, 8, 8), np.uint8)
    with _digits() as address:
        theirs = triton.InferenceServerClient(address)

        def ask() -> Any:
            tensor = triton.InferInput("image", [1, 8, 8], "UINT8")
            tensor.set_data_from_numpy(image)
            return theirs.infer("digits", [tensor]).as_numpy("probabilities")

        with streamer.Client(f"http://{address}", "digits") as client:
            client.wait_ready(60)
            _report("HTTP", {"tritonclient": ask, "streamer.Client": lambda: client(image=image)})


class HandWritten:
    """A client of Kafka as somebody would write it: a thread that polls, one call at a time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "by-hand"})
        place = TopicPartition(f"{topic}.hand", 0)
        place.offset = self._consumer.get_watermark_offsets(place, timeout=10)[1]
        self._consumer.assign([place])

    def __enter__(self) -> HandWritten:
        return self

    def __exit__(self, *exception: object) -> None:
        self._consumer.close()

    def __call__(self, values: dict[str, Any]) -> Any:
        import json

        number = secrets.token_bytes(16)
        headers: list[Any] = [("reply-to", f"{self._topic}.hand".encode()), ("correlation-id", number)]
        self._producer.produce(self._topic, json.dumps(values).encode(), headers=headers)
        self._producer.poll(0)
        while True:
            message = self._consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            answered: Any = message.headers()
            if dict(answered)["correlation-id"] == number:
                return json.loads(message.value() or b"")


def _relay(bootstrap: str, topic: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "relay"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            headers: Any = message.headers()
            producer.produce(dict(headers)["reply-to"].decode(), message.value(), headers=headers)
            producer.poll(0)


@contextmanager
def _digits() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    service = multiprocessing.get_context("spawn").Process(target=_serve, args=(address,), daemon=True)
    service.start()
    try:
        yield address
    finally:
        service.terminate()
        service.join()


def _serve(address: str) -> None:
    text = f"""
    name: digits
    source: {{type: http, listen: "{address}"}}
    pipeline: [{{"@type": ONNX, modelUri: digits.onnx}}]
    sink: {{type: http}}
    """
    streamer.loads(text, base=DIGITS).run()


def _report(what: str, clients: dict[str, Call]) -> None:
    walls: dict[str, list[float]] = {name: [] for name in clients}
    cpu = dict.fromkeys(clients, 0.0)
    for call in clients.values():
        for _ in range(CALLS):
            call()
    for _ in range(ROUNDS):
        for name, call in clients.items():
            before = time.process_time()
            for _ in range(CALLS):
                started = time.perf_counter()
                call()
                walls[name].append(time.perf_counter() - started)
            cpu[name] += time.process_time() - before
    first = next(iter(clients))
    for name, times in walls.items():
        p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        print(
            f"{what}  {name:16} p50 {p50 * 1000:6.2f} ms ({p50 / statistics.median(walls[first]):.2f})  "
            f"p99 {p99 * 1000:6.2f} ms  CPU {cpu[name] / ROUNDS / CALLS * 1e6:5.0f} us"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
