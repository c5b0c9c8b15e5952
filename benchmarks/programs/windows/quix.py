"""Windows with Quix Streams, state in RocksDB with a changelog topic: `... .windows.quix JOB SIZE`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from quixstreams import Application

from benchmarks.programs.job import FirstRecord, Job


def main() -> None:
    """Run until SIGTERM."""
    job, size = Job.from_arguments(), int(sys.argv[2])
    first = FirstRecord()
    application = Application(
        job.bootstrap,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        commit_interval=1.0,
        consumer_extra_config={"fetch.queue.backoff.ms": 5},
        producer_extra_config={"enable.idempotence": True, "linger.ms": job.linger * 1000},
        state_dir=Path(job.folder) / job.group,
        loglevel="WARNING",
    )
    source = application.topic(job.source, key_deserializer="str", value_deserializer="json")
    sink = application.topic(job.sink, key_serializer="str", value_serializer="json")

    def sample(record: dict[str, Any]) -> list[float]:
        first.tell()
        return [record["ax"], record["ay"], record["az"]]

    windows = application.dataframe(source).apply(sample).tumbling_count_window(size).collect().final()
    windows.apply(lambda window: {"samples": window["value"]}).to_topic(sink)
    application.run()


if __name__ == "__main__":
    main()
