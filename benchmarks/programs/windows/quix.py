"""Windows with Quix Streams, state in RocksDB with a changelog topic: `... .windows.quix JOB SIZE`."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.programs.job import FirstRecord, Job
from benchmarks.programs.quix import application_of


def main() -> None:
    """Run until SIGTERM."""
    job, size = Job.from_arguments(), int(sys.argv[2])
    first = FirstRecord()
    application = application_of(job)
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
