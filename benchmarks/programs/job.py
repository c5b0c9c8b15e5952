"""`Job`: the settings of a program under measurement, as JSON in its one argument, and the results that it prints.

Only the standard library, because programs of other frameworks run in environments of their own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

PARTITIONER: Final = "murmur2_random"
"""The partitioner of all programs: Java's and the service's. A program with another one than that which filled the
topic would do more work: messages that leave in the order of the input, a partition at a time, cost less to send."""


@dataclass(frozen=True, slots=True)
class Job:
    """Take records from `source`, run the model on batches of them, send results to `sink`."""

    bootstrap: str
    source: str
    sink: str
    dead: str
    """Topic for records that cannot be read."""
    group: str
    model: str
    """Path of an ONNX model with one input `x`, `float32 (N, floats)`, and one output `y`."""
    floats: int
    batch: int
    """Most records in a batch."""
    max_wait: float
    """Seconds that the oldest record of a batch waits for company."""
    linger: float
    """Seconds that a result waits for others to travel with it, in programs that know such a thing."""
    keep: bool
    """Whether `device_id` and `ts` of a record are put into its result."""
    headers: bool
    """Whether records carry headers, which are to go with the results."""
    folder: str
    """A folder for files of the program."""
    json: bool = False
    """Whether records and results are plain JSON."""
    avro: bool = False
    """Whether records and results are Avro, by the schemas of `benchmarks.programs.avrowork`."""
    exactly_once: bool = False
    """Whether results and positions are committed by transactions."""
    features: Sequence[str] = ()
    """Keys of the numbers that make the model's input; none: it is the array of `x`."""

    def to_json(self) -> str:
        """The argument of the program."""
        return json.dumps(asdict(self))

    @classmethod
    def from_arguments(cls) -> Job:
        """The job of this process."""
        return cls(**json.loads(sys.argv[1]))


class FirstRecord:
    """Says once, on standard output, how much CPU time this process had used when its first record came."""

    def __init__(self) -> None:
        self.seen = False

    def tell(self) -> None:
        """The first record is here."""
        if not self.seen:
            self.seen = True
            # Not sys.stdout, which a framework may have turned into a log.
            print(json.dumps({"first": time.time(), "cpu": time.process_time()}), file=sys.__stdout__, flush=True)
