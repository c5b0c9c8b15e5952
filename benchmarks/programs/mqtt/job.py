"""`MqttJob`: the settings of a program. Only the standard library, as in `benchmarks.programs.job`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Literal

from benchmarks.programs.job import Job

FILTER = "bench/+/+"
"""The filter that programs subscribe to."""
RESULTS = "results"
"""The topic that programs publish to."""
TOPICS = 100
"""To how many topics the messages belong: `bench/line/NUMBER`."""
WINDOW = 2000
"""Most unacknowledged messages, for all programs and both directions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttJob(Job):
    """`bootstrap` is `host:port`, `source` the topic filter, `sink` the topic of results, `group` the client id."""

    version: Literal["5", "3.1.1"]
    task: Literal["receive", "publish", "service"]
    payload: int
    """Bytes of a message that is published."""
    marks: tuple[int, ...] = ()
    """Counts of received messages at which the program prints a line, where the broker cannot count them."""

    @property
    def host(self) -> str:
        """Where the broker is."""
        return self.bootstrap.rpartition(":")[0]

    @property
    def port(self) -> int:
        """On which port."""
        return int(self.bootstrap.rpartition(":")[2])


class Told:
    """Says on standard output when one of the job's marks is reached."""

    def __init__(self, job: MqttJob) -> None:
        self._marks = list(job.marks)
        self._count = 0

    def add(self, count: int) -> None:
        """So many more were received and acknowledged."""
        if self._marks:
            self._count += count
            while self._marks and self._count >= self._marks[0]:
                print(json.dumps({"mark": self._marks.pop(0), "time": time.time()}), flush=True)
