"""What a listener that nobody asks costs the records of a topic in the same service."""

from __future__ import annotations

import secrets
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.messages import Messages
from benchmarks.rows import ROWS
from benchmarks.serving import servers
from benchmarks.topics import Topics
from streamer.devbroker import open_broker

RECORDS: Final = 300_000
"""In a round, for each service."""
_PATIENCE: Final = 120.0


def beside(folder: Path, rounds: int) -> tuple[float, list[float]]:
    """Records for each second of CPU, with a listener beside Kafka against without: the median of rounds, and each.

    The two services run at the same time, in a process each, and get the same records in turn.
    """
    with ExitStack() as stack:
        topics = Topics(stack.enter_context(open_broker("the benchmark of serving")).bootstrap)
        names = [f"beside-{secrets.token_hex(4)}" for _ in range(2)]
        stack.enter_context(topics.created([*names, *(f"{name}.results" for name in names)]))
        alone, listening = (
            stack.enter_context(servers.beside(topics.bootstrap, name, folder, http=at == 1))
            for at, name in enumerate(names)
        )
        for name in names:
            topics.wait_for_group(name, 1, _PATIENCE)
        listening.wait()
        pairs = list(zip((alone, listening), names, strict=True))
        messages, sent = Messages(ROWS[0].content), 0
        ratios = []
        # The first is to warm up.
        for number in range(rounds + 1):
            costs = {}
            for server, name in pairs if number % 2 else reversed(pairs):
                before = server.cpu()
                topics.fill(name, messages, RECORDS, sent)
                _wait(topics, f"{name}.results", sent + RECORDS)
                costs[name] = server.cpu() - before
            sent += RECORDS
            ratios.append(costs[names[0]] / costs[names[1]])
        return median(ratios[1:]), ratios[1:]


def _wait(topics: Topics, name: str, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while topics.ends([name])[name] < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} has not got {count} records")
        time.sleep(0.1)
