"""Sends messages at a steady rate. `ts` is the moment of sending, in microseconds since 1970."""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Producer

from benchmarks.messages import Messages
from benchmarks.programs.job import PARTITIONER
from benchmarks.rows import Content

_TICK = 0.001


def main() -> None:
    """Send for so many seconds: arguments are `{"bootstrap", "topic", "rate", "seconds", "content"}` as JSON."""
    order = json.loads(sys.argv[1])
    messages = Messages(Content(*order["content"]))
    # A request for every record or two would keep the broker busier than everything else together.
    producer = Producer({"bootstrap.servers": order["bootstrap"], "linger.ms": 5, "partitioner": PARTITIONER})
    sent = 0
    began = time.monotonic()
    while (now := time.monotonic() - began) < order["seconds"]:
        while sent < now * order["rate"]:
            key, value, headers = messages.message(sent, time.time_ns() // 1000)
            try:
                producer.produce(order["topic"], value, key, headers=list(headers or ()))
            except BufferError:
                # The broker is slower than that: late messages will show it.
                producer.poll(0.05)
            else:
                sent += 1
        producer.poll(0)
        time.sleep(_TICK)
    producer.flush(10.0)


if __name__ == "__main__":
    main()
