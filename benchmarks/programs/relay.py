"""The floor: takes records and sends them on as they are. No decoding, no model, no encoding."""

from __future__ import annotations

from confluent_kafka import Message, Producer

from benchmarks.programs.job import Job
from benchmarks.programs.loop import Failures, loop, send


def main() -> None:
    """Run until SIGTERM."""
    job = Job.from_arguments()

    def step(messages: list[Message], producer: Producer, failures: Failures) -> None:
        for message in messages:
            try:
                producer.produce(job.sink, message.value(), message.key(), on_delivery=failures.report)
            except BufferError:
                send(producer, failures, job.sink, message.value(), message.key(), None)

    loop(job, step)


if __name__ == "__main__":
    main()
