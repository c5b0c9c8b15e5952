"""Windows with Bytewax's `collect` and a recovery store, an epoch a second: `... .windows.bytewax JOB SIZE`."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import numpy as np
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main
from confluent_kafka import OFFSET_BEGINNING

from benchmarks.programs.job import PARTITIONER, FirstRecord, Job

PATIENCE = timedelta(hours=1)
"""After which a window that is not full ends; longer than a run."""


def main() -> None:
    """Run until the process is ended."""
    job, size = Job.from_arguments(), int(sys.argv[2])
    first = FirstRecord()

    def samples(batch: list[KafkaSourceMessage]) -> list[tuple[str, tuple[float, ...]]]:
        first.tell()
        records = [json.loads(message.value) for message in batch]
        return [(record["device"], (record["ax"], record["ay"], record["az"])) for record in records]

    def written(window: tuple[str, list[Any]]) -> KafkaSinkMessage:
        device, some = window
        array = np.array(some, np.float32)
        return KafkaSinkMessage(device.encode(), json.dumps({"device": device, "samples": array.tolist()}).encode())

    flow = Dataflow("bench")
    source = KafkaSource(
        [job.bootstrap],
        [job.source],
        starting_offset=OFFSET_BEGINNING,
        add_config={"fetch.queue.backoff.ms": "5"},
        batch_size=job.batch,
    )
    keyed = op.flat_map_batch("samples", op.input("in", flow, source), samples)
    windows = op.collect("collect", keyed, timeout=PATIENCE, max_size=size)
    config = {"enable.idempotence": "true", "partitioner": PARTITIONER}
    op.output("out", op.map("written", windows, written), KafkaSink([job.bootstrap], job.sink, add_config=config))
    store = Path(job.folder) / "recovery"
    store.mkdir()
    init_db_dir(store, 1)
    cli_main(flow, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(str(store)))


if __name__ == "__main__":
    main()
