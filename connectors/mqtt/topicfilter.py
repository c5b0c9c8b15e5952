"""`TopicFilter`: which received topics are to be delivered."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from connectors.mqtt.protocol.topics import TopicPatterns
from connectors.mqtt.protocol.topictable import TopicTable

Mask = npt.NDArray[np.bool_]


def shard_of(level: str, count: int) -> int:
    """The number of the process, 0 to `count - 1`, that has the topics with this level: the same everywhere, always."""
    return zlib.crc32(level.encode()) % count


class TopicFilter:
    """Tells for each topic, by its code in the table of topics, whether it is wanted. Computed once for each.

    A session may still deliver topics of subscriptions from an earlier configuration. `shard` is (index, count, level):
    topics whose level belongs to another process are not wanted. The topic `apart` is never wanted.
    """

    def __init__(
        self, patterns: TopicPatterns, shard: tuple[int, int, str] | None = None, apart: str | None = None
    ) -> None:
        self._patterns = patterns
        self._shard = shard
        self._apart = apart
        self.apart_code: int | None = None
        """The code of the topic `apart` in the table of the last call; `None`: it has not come."""
        self._table: TopicTable | None = None
        self._wanted = np.zeros(0, np.bool_)
        self._known = 0
        self._all = True
        self.stranger: str | None = None
        """A topic that came and that no filter matches; `None`: there was none."""

    def wanted(self, table: TopicTable, codes: npt.NDArray[np.int32]) -> Mask | None:
        """The wanted rows, by the codes of their topics; `None`: all. A row without a topic (-1) is wanted."""
        if table is not self._table or self._known < len(table):
            self._learn(table)
        if self._all:
            return None
        wanted: Mask = self._wanted[codes]
        wanted |= codes < 0
        return None if wanted.all() else wanted

    def _learn(self, table: TopicTable) -> None:
        if table is not self._table:
            self._table, self._known, self._all = table, 0, True
            self.apart_code = None
            self._wanted = np.zeros(1024, np.bool_)
        while len(self._wanted) < len(table):
            self._wanted = np.concatenate([self._wanted, np.zeros_like(self._wanted)])
        for code in range(self._known, len(table)):
            topic = table.names[code]
            if topic == self._apart:
                self.apart_code = code
            self._wanted[code] = wanted = topic != self._apart and self._is_wanted(topic)
            self._all = self._all and wanted
        self._known = len(table)

    def _is_wanted(self, topic: str) -> bool:
        levels = self._patterns.match(topic)
        if levels is None:
            self.stranger = topic
            return False
        if self._shard is None:
            return True
        index, count, level = self._shard
        return level not in levels or shard_of(levels[level], count) == index
