"""The model alone: `session.run` on batches that lie in memory, nothing before it and nothing after."""

from __future__ import annotations

import json
import time

import numpy as np
import psutil

from benchmarks.programs.job import Job
from benchmarks.programs.work import opened

_SECONDS = 1.5


def main() -> None:
    """Run the model for a while, and print its cost."""
    job = Job.from_arguments()
    session = opened(job.model)
    batch = np.random.default_rng(7).standard_normal((job.batch, job.floats)).astype(np.float32)
    # It is compiled and its memory laid out at first.
    for _ in range(10):
        session.run(["y"], {"x": batch})
    count, cpu, began = 0, time.process_time(), time.monotonic()
    while time.monotonic() - began < _SECONDS:
        session.run(["y"], {"x": batch})
        count += job.batch
    used, seconds = time.process_time() - cpu, time.monotonic() - began
    print(json.dumps([used / count * 1e6, count / seconds, psutil.Process().memory_info().rss]))


if __name__ == "__main__":
    main()
