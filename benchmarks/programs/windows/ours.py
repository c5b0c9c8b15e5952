"""The service with WINDOW, as `streamer run` runs it: `python -m benchmarks.programs.windows.ours JOB STATE SIZE`.

`STATE` is `path`, for a state file, `topic`, `once`, which is `topic` with `delivery: exactly_once`, or `memory`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.programs.job import Job
from benchmarks.programs.ours import serve


def main() -> None:
    """Run until SIGTERM; exit code 1 if the service failed."""
    job = Job.from_arguments()
    serve(job, service_file(job, sys.argv[2], int(sys.argv[3])))


def service_file(job: Job, state: str, size: int) -> dict[str, Any]:
    """The service file."""
    kafka = {"type": "kafka", "bootstrap": job.bootstrap}
    producer = {**kafka, "linger": f"{job.linger * 1000:g}ms", "compression": "none"}
    topic = {"topic": f"{job.group}-state"}
    path = {"path": str(Path(job.folder) / f"{job.group}.state")}
    places: dict[str, Any] = {"memory": "memory", "path": path, "topic": topic, "once": topic}
    window = {"@type": "WINDOW", "by": "device", "size": size, "values": ["ax", "ay", "az"], "outputName": "samples"}
    return {
        "name": "bench",
        "source": {**kafka, "topics": [job.source], "group": job.group, "codec": "json"},
        "pipeline": {"steps": [window]},
        "batch": {"max_records": job.batch, "max_wait": f"{job.max_wait * 1000:g}ms"},
        "sink": {"topic": job.sink, **producer, "codec": "json"},
        "dead_letter": {"topic": job.dead, **producer},
        "state": places[state],
        "delivery": "exactly_once" if state == "once" else "at_least_once",
        "control": {"listen": "127.0.0.1:0"},
    }


if __name__ == "__main__":
    main()
