"""The baseline: `consume`, protobuf, JSON or Avro, numpy, `session.run`, the same again, `produce`, written by hand."""

from __future__ import annotations

from confluent_kafka import Message, Producer

from benchmarks.programs.avrowork import AvroWork
from benchmarks.programs.job import Job
from benchmarks.programs.jsonwork import JsonWork
from benchmarks.programs.loop import Failures, loop, send
from benchmarks.programs.work import Work


def main() -> None:
    """Run until SIGTERM."""
    job = Job.from_arguments()
    work = JsonWork(job) if job.json else AvroWork(job) if job.avro else Work(job)

    def step(messages: list[Message], producer: Producer, failures: Failures) -> None:
        results = work.run([message.value() for message in messages])
        for message, result in zip(messages, results, strict=True):
            headers = message.headers() if job.headers else None
            if result is None:
                why = [*(headers or ()), ("error", b"cannot be read")]
                send(producer, failures, job.dead, message.value(), message.key(), why)
            elif headers:
                send(producer, failures, job.sink, result, message.key(), headers)
            else:
                # Written out, because a call of our own for every message would be a handicap.
                try:
                    producer.produce(job.sink, result, message.key(), on_delivery=failures.report)
                except BufferError:
                    send(producer, failures, job.sink, result, message.key(), None)

    loop(job, step)


if __name__ == "__main__":
    main()
