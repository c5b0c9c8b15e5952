"""What shaping records by SQL costs beside a function: `python -m benchmarks.map`, a minute or two.

CPU microseconds a record of decode, step and encode, all threads counted: JSON objects of six fields, in batches of 512
and of 64. The forms of a case take turns, and the least of five rounds counts: other work of the machine can only add.
Each case is measured with the compiled hot path and with the plain one, in a process each.

- map: MAP of two expressions and `where`, beside a FUNCTION on a `dict` that does the same
- types: the same where one record in ten has a text for a number, and fails
- rename: MAP that gives two values other keys, beside the codec alone
- value: a source's `where` on a value, which one record in ten fits, beside a FUNCTION that returns `None`
- metadata: the same on the topic
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import structlog

import pipelines
from connectors.codecs.json import Json
from connectors.coded import Coded
from connectors.memory.config import MemorySourceConfig
from connectors.records import Lane, Records, Span
from pipelines.hotpath import choose
from pipelines.steps import Function, Map, Step
from streamer.agent.blockdecoder import BlockDecoder, Decoding
from streamer.agent.where import Where
from streamer.batching.batcher import Closed
from streamer.routing.into import Into

SIZES: Final = (512, 64)
ROUNDS: Final = 5
SECONDS: Final = 0.3
"""How long each form of a case is measured in a round."""
ROOMS: Final = ("Hall", "Attic", "Kitchen")
WHERE: Final = "battery > 5 or battery is null"
SELECT: Final = {"fahrenheit": "temp * 1.8 + 32", "place": "lower(room)"}


@dataclass(frozen=True)
class Target:
    """The ratio that a case is to reach at most, at 512 and at 64 records a batch."""

    compiled: tuple[float, float]
    plain: tuple[float, float]


TARGETS: Final[Mapping[str, Target]] = {
    "map": Target((0.18, 0.55), (0.28, 0.70)),
    "types": Target((0.25, 0.60), (0.35, 0.80)),
    "rename": Target((1.1, 1.1), (1.1, 1.1)),
    "value": Target((0.05, 0.20), (0.15, 0.30)),
    "metadata": Target((0.02, 0.05), (0.02, 0.05)),
}


def shaped(data: dict[str, Any]) -> dict[str, Any] | None:
    """What MAP does with `WHERE` and `SELECT`."""
    if not (data.get("battery") is None or data["battery"] > 5):
        return None
    data["fahrenheit"] = data["temp"] * 1.8 + 32
    data["place"] = data["room"].lower()
    return data


def one_in_ten(data: dict[str, Any]) -> dict[str, Any] | None:
    """What `where` of a source does for records of one device in ten."""
    return data if data["device"] == "device-0" else None


def records(size: int, *, wrong: bool = False) -> Records:
    """Records of ten devices, a topic each; with `wrong` one in ten has a text for the temperature."""
    values = [
        json.dumps(
            {
                "id": row,
                "device": f"device-{row % 10}",
                "room": ROOMS[row % 3],
                "temp": "warm" if wrong and row % 10 == 3 else 20.5 + row % 7,
                "battery": 10 + row % 90,
                "on": row % 2 == 0,
            }
        ).encode()
        for row in range(size)
    ]
    topics = Coded([f"house/device-{number}" for number in range(10)], np.arange(size, dtype=np.int32) % 10)
    spans = [Span(Lane("house", "0", 0), 0, size)]
    return Records("house", values, None, np.arange(size, dtype=np.int64), spans, topics, [0], sum(map(len, values)))


class Form:
    """One way to treat records: a source's `where`, and a step or none."""

    def __init__(self, step: Step | None, where: Any = None) -> None:
        self._codec = Json()
        self._executor = None if step is None else pipelines.Sequence([step]).open()
        config = MemorySourceConfig(topic="house", where=where, into={"topic": "topic"} if where == TOPIC else {})
        reads = frozenset[str]() if self._executor is None else self._executor.reads
        log = structlog.get_logger()
        self._decoder = BlockDecoder(
            "house",
            self._codec,
            0,
            Into.of(config),
            None,
            Where.of(config, log),
            Decoding(reads, pixels=None, samples=None, opens_images=False),
            log,
        )

    def run(self, block: Records) -> None:
        """Decode, run and encode a block."""
        for part in self._decoder.decoded(Closed(block, "records", 0.0), lambda seconds, why: True) or ():
            if not part.batch.size:
                continue
            batch = part.batch if self._executor is None else self._executor.run_batch(part.batch).batch
            self._codec.encode(batch)

    def close(self) -> None:
        """Close the step."""
        if self._executor is not None:
            self._executor.close()


TOPIC: Final = "topic like '%/device-0'"


def forms() -> dict[str, tuple[Callable[[], Form], Callable[[], Form], bool]]:
    """By case: what is measured, what it is measured beside, and whether records in ten have a wrong type."""
    shape = Map(where=WHERE, select=SELECT)
    rename = Map(select={"t": "temp", "r": "room"}, keep=["id", "device", "battery", "on"])
    return {
        "map": (lambda: Form(shape), lambda: Form(Function(shaped)), False),
        "types": (lambda: Form(shape), lambda: Form(Function(shaped)), True),
        "rename": (lambda: Form(rename), lambda: Form(None), False),
        "value": (lambda: Form(None, "device = 'device-0'"), lambda: Form(Function(one_in_ten)), False),
        "metadata": (lambda: Form(None, TOPIC), lambda: Form(Function(one_in_ten)), False),
    }


def measured(ours: Form, beside: Form, block: Records) -> tuple[float, float]:
    """CPU microseconds a record of both, which take turns."""
    least = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for place, form in enumerate((ours, beside)):
            form.run(block)
            times, began, until = 0, time.process_time(), time.monotonic() + SECONDS
            while time.monotonic() < until:
                form.run(block)
                times += 1
            least[place] = min(least[place], (time.process_time() - began) / times / len(block) * 1e6)
    return least[0], least[1]


def measure() -> None:
    """Print a line for each case and size, in this process."""
    path = choose().report.path
    for name, (ours, beside, wrong) in forms().items():
        for place, size in enumerate(SIZES):
            made = ours(), beside()
            mine, other = measured(*made, records(size, wrong=wrong))
            for form in made:
                form.close()
            target = getattr(TARGETS[name], "compiled" if path == "native" else "plain")[place]
            print(f"{path:8} {name:9} {size:5} {mine:8.2f} {other:8.2f} {mine / other:7.3f} {target:7.2f}", flush=True)


def main() -> None:
    """Both hot paths, each in a process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.map", description=__doc__)
    parser.add_argument("--here", action="store_true", help="only the hot path of this process")
    if parser.parse_args().here:
        measure()
        return
    print("hot path case       batch     ours   beside   ratio at most")
    for native in ("native", "python"):
        command = [sys.executable, "-m", "benchmarks.map", "--here"]
        subprocess.run(command, env={**os.environ, "STREAMER_NATIVE": native}, check=True)


if __name__ == "__main__":
    main()
