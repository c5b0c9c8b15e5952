"""Windows with Bytewax's `collect` and a recovery store, an epoch a second: `... .windows.bytewax JOB SIZE`."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import numpy as np
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

from benchmarks.programs.bytewax import sink_of, source_of
from benchmarks.programs.job import FirstRecord, Job

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
    keyed = op.flat_map_batch("samples", op.input("in", flow, source_of(job)), samples)
    windows = op.collect("collect", keyed, timeout=PATIENCE, max_size=size)
    op.output("out", op.map("written", windows, written), sink_of(job))
    store = Path(job.folder) / "recovery"
    store.mkdir()
    init_db_dir(store, 1)
    cli_main(flow, epoch_interval=timedelta(seconds=1), recovery_config=RecoveryConfig(str(store)))


if __name__ == "__main__":
    main()
