"""Windows of samples with Bytewax's `collect`: `python -m benchmarks.programs.windows.collect KEYS RECORDS SIZE`.

Runs in Bytewax's environment. Prints the CPU microseconds of a record, all of the flow counted, and how many samples
came out: records come from a list in memory, in batches of 512.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

import bytewax.operators as op
import numpy as np
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, TestingSource, run_main


def flow_of(records: list[dict[str, Any]], size: int, made: list[Any]) -> Dataflow:
    """The flow: by device, so many together, as one array."""
    flow = Dataflow("windows")
    stream = op.input("in", flow, TestingSource(records, batch_size=512))
    keyed = op.key_on("key", stream, lambda record: record["device"])
    windows = op.collect("collect", keyed, timeout=timedelta(hours=1), max_size=size)
    arrays = op.map_value("array", windows, lambda some: np.array([(r["ax"], r["ay"], r["az"]) for r in some], "f4"))
    op.output("out", arrays, TestingSink(made))
    return flow


def main() -> None:
    """Run the flow, once to warm up."""
    keys, count, size = map(int, sys.argv[1:])
    chosen = np.random.default_rng(1).integers(0, keys, count).tolist()
    records = [{"device": f"device-{key}", "ax": 0.1, "ay": 0.2, "az": 0.3} for key in chosen]
    run_main(flow_of(records[:512], size, []))
    made: list[Any] = []
    flow = flow_of(records, size, made)
    began = time.process_time()
    run_main(flow)
    spent = time.process_time() - began
    # The end of the input gives what is not full, too.
    print(spent / count * 1e6, sum(len(samples) for _, samples in made))


if __name__ == "__main__":
    main()
