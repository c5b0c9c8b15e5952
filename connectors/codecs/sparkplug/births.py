"""The contents of births of edge nodes and devices: names and types of metrics, by name and by alias, and the sequence
number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from connectors.codecs.sparkplug.topics import SparkplugTopic
from connectors.codecs.sparkplug.values import MetricReader

SEQUENCE: Final = 256
"""The number of sequence numbers: after 255 comes 0."""
_LONG_NAME: Final = 64
"""Characters of a name that count as an entry of their own."""


class Known(NamedTuple):
    """A metric that a birth has described."""

    key: str | None
    """The key of its value; `None` if it becomes no value, or cannot be read."""
    plain: Callable[[Any], Any] | None
    """Gets the value from the message without conversion; `None` if it needs one."""
    reading: MetricReader
    """Reads the value from the metric."""
    name: str


Table = Mapping[str | int, Known]
"""The metrics of an edge node itself or of one device, by name and by alias."""


@dataclass(slots=True)
class EdgeNode:
    """The metrics and the session of one edge node."""

    tables: dict[str, Table] = field(default_factory=dict)
    """The metrics by device; those of the edge node itself under an empty name."""
    size: int = 0
    """The size of all its tables, by `_size`."""
    seq: int | None = None
    """The sequence number of its last message; `None` if any number may follow."""
    bd_seq: int | None = None
    """The number of its session, which its death repeats."""
    gaps: int = 0


class EdgeNodes:
    """All edge nodes whose births were seen. When there are too many, those that were silent longest are dropped."""

    def __init__(self, most: int) -> None:
        """`most`: the largest size of all tables together, by `_size`."""
        self.gaps = 0
        """Gaps in the sequences of all edge nodes."""
        self._most = most
        self._size = 0
        self._nodes: OrderedDict[tuple[str, str], EdgeNode] = OrderedDict()

    def __iter__(self) -> Iterator[tuple[tuple[str, str], EdgeNode]]:
        return iter(list(self._nodes.items()))

    def seen(self, address: SparkplugTopic) -> EdgeNode | None:
        """The edge node of a message that has come from it; `None` if it is not known."""
        node = self._nodes.get(address.node)
        if node is not None:
            self._nodes.move_to_end(address.node)
        return node

    def born(self, address: SparkplugTopic, table: Table, bd_seq: int | None) -> EdgeNode:
        """The edge node after a birth. That of a node ends the aliases of its devices, too."""
        node = self._nodes.setdefault(address.node, EdgeNode())
        self._nodes.move_to_end(address.node)
        if not address.device:
            self._size -= node.size
            node.tables, node.size = {}, 0
            if not address.kept:
                node.seq, node.bd_seq = None, bd_seq
        self._put(node, address.device, table)
        while self._size > self._most and len(self._nodes) > 1:
            self._size -= self._nodes.popitem(last=False)[1].size
        while self._size > self._most and len(node.tables) > 1:
            self._drop(node, next(iter(node.tables)))
        return node

    def died(self, address: SparkplugTopic, bd_seq: int | None) -> None:
        """Handle the death of an edge node. A death of an earlier session than the present one is ignored."""
        node = self._nodes.get(address.node)
        if node is not None and (bd_seq is None or node.bd_seq in (None, bd_seq)):
            node.seq = None

    def follow(self, node: EdgeNode, seq: int) -> int:
        """Take the number of a message; returns how many are missing before it. A repeated one is no gap."""
        missing = 0
        if node.seq is not None and seq != node.seq:
            missing = (seq - node.seq - 1) % SEQUENCE
        if missing:
            node.gaps += 1
            self.gaps += 1
        node.seq = seq
        return missing

    def _put(self, node: EdgeNode, device: str, table: Table) -> None:
        if device in node.tables:
            self._drop(node, device)
        node.tables[device] = table
        added = _size(table)
        node.size += added
        self._size += added

    def _drop(self, node: EdgeNode, device: str) -> None:
        gone = _size(node.tables.pop(device))
        node.size -= gone
        self._size -= gone


def _size(table: Table) -> int:
    """The size of a table: one, one for each entry, and more for long names."""
    return 1 + sum(1 + len(known.name) // _LONG_NAME for known in table.values())
