"""The service inside a Faust app: Faust's consumer and producer, the service's own codec, batches, pipeline, ledger."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import yaml

import streamer.faust
from benchmarks.programs.job import FirstRecord, Job
from benchmarks.programs.ours import service_file
from streamer.cli.process import collect_less_often


def main() -> None:
    """Run until SIGTERM."""
    job = Job.from_arguments()
    collect_less_often()
    app = streamer.faust.app(
        written(job), broker=f"kafka://{job.bootstrap}", producer_linger=job.linger, datadir=f"{job.folder}/{job.group}"
    )

    @app.task  # type: ignore[untyped-decorator]
    async def tell_first() -> None:
        while not app.monitor.tp_end_offsets:
            await asyncio.sleep(0.002)
        FirstRecord().tell()

    sys.argv = ["faust", "worker", "--loglevel", "warn", "--without-web"]
    app.main()


def written(job: Job) -> Path:
    """The service file, without fields that Faust's own client replaces."""
    service = service_file(job)
    for sink in ("sink", "dead_letter"):
        for field in ("linger", "compression"):
            del service[sink][field]
    # As the agent of `faust_app`.
    service["batch"]["max_wait"] = "50ms"
    path = Path(job.folder) / f"{job.group}.yaml"
    path.write_text(yaml.safe_dump(service), encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
