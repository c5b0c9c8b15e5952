"""The rows of the MQTT tables: the task, the version of MQTT and the size of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `count` is for a program that needs half a microsecond for a message; others get a share of it."""

    name: str
    title: str
    task: Literal["receive", "publish", "service"]
    batch: int
    count: int
    version: Literal["5", "3.1.1"] = "5"
    broker: Literal["played", "mosquitto"] = "played"
    rounds: int = 3
    peers: bool = False
    """Whether clients other than paho run it too."""

    def counted(self, share: float) -> int:
        """Whole batches of 512 and 64."""
        return max(int(self.count * share) // 512, 8) * 512


SIZE = 1024
"""Bytes of the messages that are received and published, apart from those of the service."""

ROWS = (
    Row("receive", "receive and acknowledge, batch 512", "receive", 512, 1_500_000, peers=True),
    Row("receive-64", "the same, batch 64", "receive", 64, 1_000_000),
    Row("receive-3", "MQTT 3.1.1, batch 512", "receive", 512, 1_500_000, version="3.1.1", peers=True),
    Row("receive-3-64", "the same, batch 64", "receive", 64, 1_000_000, version="3.1.1"),
    Row("service", "the whole service with a model, batch 512", "service", 512, 300_000),
    Row("service-64", "the same, batch 64", "service", 64, 200_000),
    Row("publish", "publish, batch 512", "publish", 512, 750_000),
    Row("publish-3", "the same, MQTT 3.1.1", "publish", 512, 750_000, version="3.1.1"),
    Row("live", "receive from mosquitto, batch 512", "receive", 512, 120_000, broker="mosquitto"),
)
"""All rows, in the order of the table."""
QUICK = tuple(row for row in ROWS if row.name in ("receive", "publish"))
"""The rows of `--quick`."""
MAX_WAIT = 0.005
"""Seconds that the oldest record of a batch waits for company, in the service."""
