"""The work as a FastStream application on confluent-kafka: a batch subscriber and `publish_batch`."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker, KafkaMessage, KafkaPublishMessage

from benchmarks.programs.job import PARTITIONER, FirstRecord, Job
from benchmarks.programs.work import Work


def main() -> None:
    """Run until SIGTERM."""
    job = Job.from_arguments()
    work = Work(job)
    first = FirstRecord()
    broker = KafkaBroker(
        job.bootstrap,
        config={"fetch.queue.backoff.ms": 5},
        enable_idempotence=True,
        acks="all",
        partitioner=PARTITIONER,
        linger_ms=round(job.linger * 1000),
        logger=None,
        log_level=logging.WARNING,
    )

    async def raw(message: Any) -> Any:
        return message.body

    @broker.subscriber(  # type: ignore[untyped-decorator]
        job.source,
        group_id=job.group,
        auto_offset_reset="earliest",
        batch=True,
        max_records=job.batch,
        polling_interval=job.max_wait,
        ack_policy=AckPolicy.ACK,
        decoder=raw,
    )
    async def infer(payloads: list[bytes], message: KafkaMessage) -> None:
        first.tell()
        results = work.run(payloads)
        await broker.publish_batch(
            *(
                KafkaPublishMessage(result, key=record.key())
                for record, result in zip(message.raw_message, results, strict=True)
                if result is not None
            ),
            topic=job.sink,
        )

    asyncio.run(FastStream(broker, logger=None).run())


if __name__ == "__main__":
    main()
