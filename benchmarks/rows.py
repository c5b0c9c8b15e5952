"""The rows of the table: which messages, in batches of how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Content(NamedTuple):
    """The content of a topic's messages. Rows of the same content read the same topic."""

    floats: int = 32
    keep: bool = True
    """Whether there are `device_id` and `ts`, which are to be in the result too."""
    headers: int = 0
    poison: bool = False
    """Whether of each hundred one is broken: the first of two hundred no message, the other of another shape."""
    orders: int = 1
    """In how many orders the values stand on the wire: each producing process has its own."""
    json: bool = False
    """Plain JSON instead of protobuf, and a model with one number for each message."""
    features: tuple[str, ...] = ()
    """Keys of single numbers that make the model's input together; else it is the array of `x`."""
    others: int = 0
    """Number of keys that no step reads, numbers and texts."""
    avro: bool = False
    """Bare Avro records instead of protobuf, of `features`, `device_id` and `ts`, and a model as for JSON."""

    @property
    def scores(self) -> bool:
        """Whether the model gives one number for each message."""
        return self.json or self.avro


@dataclass(frozen=True, slots=True)
class Row:
    """One row: messages of some content, taken in batches of at most `batch`."""

    name: str
    title: str
    content: Content
    batch: int
    count: int
    """Messages that are drained by a program that needs a few microseconds for one: some seconds, its start aside."""
    rounds: int = 2
    peers: bool = False
    """Whether other frameworks run it too."""
    exactly_once: bool = False
    """Whether programs that send in transactions run it too."""
    extra: bool = False
    """Whether it is measured only when it is asked for."""

    def counted(self, share: float) -> int:
        """Messages for a program that takes longer or a run that is to be quicker."""
        return max(int(self.count * share) // 200, 10) * 200


_SMALL, _LARGE = Content(), Content(floats=784)
_SENSORS = ("temp", "vib", "rpm", "amps", "volts", "flow")
_JSON = Content(json=True)
_AVRO = Content(floats=6, features=_SENSORS, avro=True)

ROWS = (
    Row(
        "realistic",
        "32 floats, device_id, ts; batch 512",
        _SMALL,
        512,
        600_000,
        rounds=3,
        peers=True,
        exactly_once=True,
    ),
    Row("realistic-64", "the same, batch 64", _SMALL, 64, 400_000, rounds=3, exactly_once=True),
    Row("headers", "the same, batch 512, two headers", _SMALL._replace(headers=2), 512, 300_000, exactly_once=True),
    Row("poison", "the same, batch 512, 1 % poison", _SMALL._replace(poison=True), 512, 300_000, exactly_once=True),
    Row("orders", "the same, batch 512, producers with three key orders", _SMALL._replace(orders=3), 512, 300_000),
    Row("784", "784 floats, device_id, ts; batch 512", _LARGE, 512, 120_000),
    Row("json-8", "JSON, 8 plain fields; batch 512", _JSON._replace(floats=6, features=_SENSORS), 512, 200_000),
    Row("json-32", "JSON, 32 floats, device_id, ts; batch 512", _JSON, 512, 200_000),
    Row(
        "json-40",
        "JSON, 40 fields of which 4 are used; batch 512",
        _JSON._replace(floats=2, features=_SENSORS[:2], others=36),
        512,
        200_000,
    ),
    Row("avro-8", "Avro, 8 fields; batch 512", _AVRO, 512, 200_000),
    Row("bare", "32 floats alone, batch 512", _SMALL._replace(keep=False), 512, 200_000, extra=True),
    Row("784-headers", "784 floats, two headers", _LARGE._replace(headers=2), 512, 80_000, extra=True),
)
"""All rows that are drained, in the order of the table."""

PACED = ROWS[:1]
"""The rows that also run at half load."""

QUICK = tuple(row for row in ROWS if row.name in ("realistic", "784"))
"""The rows of `--quick`."""

MAX_WAIT = 0.005
"""Seconds that the oldest record of a batch waits for company, for programs that know such a thing."""
LINGER = 0.005
"""Seconds that results wait for others to travel with them, likewise."""
