"""The service with a model that is elsewhere, on a GPU or behind a network: a step that waits instead of computing.

So eight members do what they would do on eight machines, where there are two cores. `python -m
benchmarks.programs.waiting JOB`.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pipelines
from benchmarks.programs.job import Job
from pipelines import Batch

A: Final = 0.02
"""Seconds of a batch."""
B: Final = 0.0002
"""Seconds of each record in it."""


@pipelines.batched
def wait(batch: Batch) -> Batch:
    """Take as long as the model would."""
    time.sleep(A + B * len(batch))
    return batch


def main() -> None:
    """Run until SIGTERM; exit code 1 if the service failed."""
    from benchmarks.programs.ours import serve

    job = Job.from_arguments()
    serve(job, service_file(job))


def service_file(job: Job) -> dict[str, Any]:
    """The service file."""
    kafka = {"type": "kafka", "bootstrap": job.bootstrap}
    producer = {**kafka, "linger": f"{job.linger * 1000:g}ms"}
    return {
        "name": "bench",
        "source": {**kafka, "topics": [job.source], "group": job.group, "codec": "json"},
        "pipeline": {"steps": [{"@type": "FUNCTION", "function": "benchmarks.programs.waiting:wait"}]},
        "batch": {"max_records": job.batch, "max_wait": f"{job.max_wait * 1000:g}ms"},
        "sink": {"topic": job.sink, **producer, "codec": "json"},
        "dead_letter": {"topic": job.dead, **producer},
        "control": {"listen": "127.0.0.1:0"},
    }


if __name__ == "__main__":
    main()
