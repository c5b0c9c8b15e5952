"""Windows by hand, a list for each key, with orjson: `python -m benchmarks.programs.windows.handwritten JOB SIZE`.

Nothing is checked or saved: what is in a list when the program ends is lost, as its records are committed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np
from confluent_kafka import Message, Producer

from benchmarks.programs.job import Job
from benchmarks.programs.loop import Failures, loop, send


def main() -> None:
    """Run until SIGTERM."""
    job, size = Job.from_arguments(), int(sys.argv[2])
    # Only this program needs it.
    orjson: Any = import_module("orjson")
    samples: dict[str, list[tuple[float, float, float]]] = {}

    def step(messages: list[Message], producer: Producer, failures: Failures) -> None:
        for message in messages:
            record = orjson.loads(message.value())
            device = record["device"]
            some = samples.setdefault(device, [])
            some.append((record["ax"], record["ay"], record["az"]))
            if len(some) == size:
                window = np.array(some, np.float32)
                some.clear()
                result = orjson.dumps({"device": device, "samples": window}, option=orjson.OPT_SERIALIZE_NUMPY)
                send(producer, failures, job.sink, result, message.key(), None)

    loop(job, step)


if __name__ == "__main__":
    main()
