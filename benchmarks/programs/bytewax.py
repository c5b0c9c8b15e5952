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
    source = KafkaSource(
        [job.bootstrap],
        [job.source],
        starting_offset=OFFSET_BEGINNING,
        add_config={"fetch.queue.backoff.ms": "5"},
        batch_size=job.batch,
    )
    results = op.flat_map_batch("infer", op.input("in", flow, source), infer)
    config = {"enable.idempotence": "true", "partitioner": PARTITIONER}
    op.output("out", results, KafkaSink([job.bootstrap], job.sink, add_config=config))
    cli_main(flow)


if __name__ == "__main__":
    main()
