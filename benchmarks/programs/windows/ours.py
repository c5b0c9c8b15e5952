"""The service with WINDOW, as `streamer run` runs it: `python -m benchmarks.programs.windows.ours JOB STATE SIZE`.

`STATE` is `path`, for a state file, or `memory`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.programs.job import FirstRecord, Job
from streamer.agent.agent import Agent
from streamer.agent.signals import stopped_by_signals
from streamer.cli.process import collect_less_often
from streamer.definition.loading import load


def main() -> None:
    """Run until SIGTERM; exit code 1 if the service failed."""
    job = Job.from_arguments()
    state, size = sys.argv[2], int(sys.argv[3])
    collect_less_often()
    path = Path(job.folder) / f"{job.group}.yaml"
    path.write_text(yaml.safe_dump(service_file(job, state, size)), encoding="utf-8")
    agent = Agent(load(path))
    with stopped_by_signals(agent.stop):
        agent.start()
        meters = list(agent.meters.sources.values())
        while not any(meter.polled_rows for meter in meters) and agent.live() is None:
            time.sleep(0.001)
        FirstRecord().tell()
        summary = agent.join()
    if summary.error is not None:
        sys.exit(summary.error)


def service_file(job: Job, state: str, size: int) -> dict[str, Any]:
    """The service file."""
    kafka = {"type": "kafka", "bootstrap": job.bootstrap}
    producer = {**kafka, "linger": f"{job.linger * 1000:g}ms", "compression": "none"}
    window = {"@type": "WINDOW", "by": "device", "size": size, "values": ["ax", "ay", "az"], "outputName": "samples"}
    return {
        "name": "bench",
        "source": {**kafka, "topics": [job.source], "group": job.group, "codec": "json"},
        "pipeline": {"steps": [window]},
        "batch": {"max_records": job.batch, "max_wait": f"{job.max_wait * 1000:g}ms"},
        "sink": {"topic": job.sink, **producer, "codec": "json"},
        "dead_letter": {"topic": job.dead, **producer},
        "state": "memory" if state == "memory" else {"path": str(Path(job.folder) / f"{job.group}.state")},
        "control": {"listen": "127.0.0.1:0"},
    }


if __name__ == "__main__":
    main()
