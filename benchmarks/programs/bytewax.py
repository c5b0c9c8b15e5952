"""The work as a Bytewax dataflow: the source's own batches, one model call for each, the Kafka sink.

Without a recovery store, which would add to it; the sink flushes after each batch.
"""

from __future__ import annotations

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.run import cli_main
from confluent_kafka import OFFSET_BEGINNING

from benchmarks.programs.job import PARTITIONER, FirstRecord, Job
from benchmarks.programs.work import Work


def main() -> None:
    """Run until the process is ended."""
    job = Job.from_arguments()
    work = Work(job)
    first = FirstRecord()

    def infer(batch: list[KafkaSourceMessage]) -> list[KafkaSinkMessage]:
        first.tell()
        results = work.run([message.value for message in batch])
        return [
            KafkaSinkMessage(message.key, result)
            for message, result in zip(batch, results, strict=True)
            if result is not None
        ]

    flow = Dataflow("bench")
    results = op.flat_map_batch("infer", op.input("in", flow, source_of(job)), infer)
    op.output("out", results, sink_of(job))
    cli_main(flow)


def source_of(job: Job) -> KafkaSource:
    """The topic from its beginning, in batches of the job's size."""
    return KafkaSource(
        [job.bootstrap],
        [job.source],
        starting_offset=OFFSET_BEGINNING,
        add_config={"fetch.queue.backoff.ms": "5"},
        batch_size=job.batch,
    )


def sink_of(job: Job) -> KafkaSink:
    """The topic of the results."""
    config = {"enable.idempotence": "true", "partitioner": PARTITIONER}
    return KafkaSink([job.bootstrap], job.sink, add_config=config)


if __name__ == "__main__":
    main()
