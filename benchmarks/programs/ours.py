"""The service itself, as `streamer run` runs it: a service file, the agent, dead letter, metrics, ledger, `keep`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.programs.avrowork import RESULT, record_schema
from benchmarks.programs.job import FirstRecord, Job
from streamer.agent.agent import Agent
from streamer.agent.signals import stopped_by_signals
from streamer.cli.process import collect_less_often
from streamer.definition.loading import load


def main() -> None:
    """Run until SIGTERM; exit code 1 if the service failed."""
    job = Job.from_arguments()
    serve(job, service_file(job))


def serve(job: Job, service: dict[str, Any]) -> None:
    """Run a service file until SIGTERM, and say when its first record came; exit code 1 if it failed."""
    collect_less_often()
    path = Path(job.folder) / f"{job.group}.yaml"
    path.write_text(yaml.safe_dump(service), encoding="utf-8")
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


def service_file(job: Job) -> dict[str, Any]:
    """The service file."""
    codec: dict[str, Any] = {"codec": "json"} if job.json else {}
    written = codec
    if job.avro:
        codec = {"codec": {"type": "avro", "schema": record_schema(job.features)}}
        written = {"codec": {"type": "avro", "schema": RESULT}}
    inputs = {"inputs": {"x": list(job.features)}} if job.features else {}
    # Compression as all the others. In transactions both are of one producer.
    linger = f"{job.linger * 1000:g}ms"
    producer = {"type": "kafka", "bootstrap": job.bootstrap, "linger": linger, "compression": "none"}
    return {
        "name": "bench",
        "source": {"type": "kafka", "bootstrap": job.bootstrap, "topics": [job.source], "group": job.group, **codec},
        "pipeline": {"steps": [{"@type": "ONNX", "modelUri": job.model, **inputs}]},
        **({"keep": ["device_id", "ts"]} if job.keep else {}),
        "batch": {"max_records": job.batch, "max_wait": f"{job.max_wait * 1000:g}ms"},
        "sink": {"topic": job.sink, **producer, **written},
        "dead_letter": {"topic": job.dead, **producer},
        **({"delivery": "exactly_once"} if job.exactly_once else {}),
        "control": {"listen": "127.0.0.1:0"},
    }


if __name__ == "__main__":
    main()
