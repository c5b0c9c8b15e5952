"""The work as a Quix Streams application: row by row, as it processes; at least once."""

from __future__ import annotations

from pathlib import Path

from quixstreams import Application

from benchmarks.programs.job import FirstRecord, Job
from benchmarks.programs.work import Work


def main() -> None:
    """Run until SIGTERM."""
    job = Job.from_arguments()
    work = Work(job)
    first = FirstRecord()
    application = application_of(job)
    source = application.topic(job.source, key_deserializer="bytes", value_deserializer="bytes")
    sink = application.topic(job.sink, key_serializer="bytes", value_serializer="bytes")

    def infer(payload: bytes) -> bytes | None:
        first.tell()
        return work.run_one(payload)

    frame = application.dataframe(source).apply(infer)
    frame = frame.filter(lambda result: result is not None)
    frame.to_topic(sink)
    application.run()


def application_of(job: Job) -> Application:
    """The application: commits each second, with its state in the job's folder."""
    return Application(
        job.bootstrap,
        consumer_group=job.group,
        auto_offset_reset="earliest",
        commit_interval=1.0,
        consumer_extra_config={"fetch.queue.backoff.ms": 5},
        producer_extra_config={"enable.idempotence": True, "linger.ms": job.linger * 1000},
        state_dir=Path(job.folder) / job.group,
        loglevel="WARNING",
    )


if __name__ == "__main__":
    main()
