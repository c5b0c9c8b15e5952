"""Servers measured in turn, a second at a time: what an answer of each costs, beside those of the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from benchmarks.serving.load import Order, seen
from benchmarks.serving.servers import Server
from connectors.codecs.inference import wire

SECONDS = 1.0
"""How long each server is measured in a round."""


class Cost(NamedTuple):
    """Of a server, medians of all rounds."""

    cpu: float
    """Microseconds of CPU an answer."""
    rate: float
    """Answers a second."""
    median: float
    """Milliseconds until an answer."""


class Bodies(NamedTuple):
    """Files with a request of 64 numbers."""

    json: Path
    grpc: Path

    @classmethod
    def into(cls, folder: Path) -> Bodies:
        """Write them."""
        numbers = np.random.default_rng(3).random((1, 64), np.float32)
        data = [round(float(number), 6) for number in numbers.ravel()]
        text = {"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": data}]}
        bodies = cls(folder / "body.json", folder / "body.grpc")
        bodies.json.write_text(json.dumps(text), encoding="utf-8")
        bodies.grpc.write_bytes(wire.write_message("model", {"x": numbers}))
        return bodies


def costs(servers: Sequence[tuple[Server, Order]], rounds: int, seconds: float = SECONDS) -> dict[str, Cost]:
    """What an answer of each server costs, by name. Raises `RuntimeError` if one answers with an error."""
    measured: dict[str, list[Cost]] = {server.name: [] for server, _ in servers}
    for _, order in servers:
        seen(replace(order, seconds=seconds / 2))
    for _ in range(rounds):
        for server, order in servers:
            before = server.cpu()
            saw = seen(replace(order, seconds=seconds))
            if saw.failures or not saw.answers:
                raise RuntimeError(f"{server.name}: {saw.failures} of {saw.answers} answers are errors")
            cpu = (server.cpu() - before) / saw.answers * 1e6
            measured[server.name].append(Cost(cpu, saw.answers / saw.seconds, saw.median * 1e3))
    return {name: Cost(*map(median, zip(*each, strict=True))) for name, each in measured.items()}
