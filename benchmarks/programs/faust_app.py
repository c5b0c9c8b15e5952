"""The work as a Faust agent: batches by `noack_take`, acknowledged in order once their results are confirmed.

The only way of taking batches in Faust that loses nothing when the agent fails.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import faust
from mode.supervisors import CrashingSupervisor

from benchmarks.programs.job import FirstRecord, Job
from benchmarks.programs.work import Work


def main() -> None:
    """Run until SIGTERM."""
    job = Job.from_arguments()
    work = Work(job)
    first = FirstRecord()
    app = faust.App(
        job.group,
        broker=f"kafka://{job.bootstrap}",
        store="memory://",
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        producer_linger=job.linger,
        broker_commit_interval=1.0,
        datadir=f"{job.folder}/{job.group}",
    )
    bare: dict[str, Any] = {
        "key_type": bytes,
        "value_type": bytes,
        "key_serializer": "raw",
        "value_serializer": "raw",
    }
    source, sink = app.topic(job.source, **bare), app.topic(job.sink, **bare)

    @app.agent(source, concurrency=1, supervisor_strategy=CrashingSupervisor)  # type: ignore[untyped-decorator]
    async def infer(stream: Any) -> None:
        async for events in stream.noack_take(job.batch, within=0.05):
            first.tell()
            results = work.run([event.value for event in events])
            sent = [
                await sink.send(key=event.message.key, value=result)
                for event, result in zip(events, results, strict=True)
                if result is not None
            ]
            await asyncio.gather(*sent)
            for event in events:
                event.ack()

    sys.argv = ["faust", "worker", "--loglevel", "warn", "--without-web"]
    app.main()


if __name__ == "__main__":
    main()
