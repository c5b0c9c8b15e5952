"""`Browser`: reads and writes a bus's topics without joining a group, for `streamer tap`, `send`, `replay` and `check`.

A connector that can be browsed says so in its configuration: `SourceConfig.browser_at` for an address,
`ConnectorConfig.browser` for the bus of a service.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from connectors.records import Records
from connectors.sink import Sink
from connectors.units import Position

AT_ONCE = 1000
"""Records of one poll at most, by default."""


class Mark(NamedTuple):
    """The position that a group has committed in a partition."""

    position: int
    """The offset of the next record; below 0: the group has committed none."""
    text: str
    """The metadata that was committed with it; may be empty."""


class TopicReader(ABC):
    """Reads one topic without being a member of a group. A context manager, used by one thread.

    A group's name is given for `committed` and `commit` alone: a reader that uses neither leaves no trace on the bus.
    Entering connects, and raises `ConnectorError` if the bus does not answer or the topic does not exist.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.partitions: list[int] = []
        """Numbers of the topic's partitions, known once it is entered."""
        self.ended: set[int] = set()
        """Partitions that have been read to their end at some time."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def at_end(self) -> bool:
        """Whether all partitions are among `ended`."""
        return len(self.ended) == len(self.partitions)

    def partitions_now(self) -> list[int]:
        """Numbers of the partitions that the topic has by now, which may be others than `partitions`.

        Raises:
            ConnectorError: The bus does not answer, or has the topic no more.
        """
        return self.partitions

    def topic_id(self) -> str:
        """The id by which the bus tells the topic from others of the same name that were deleted, as it is now.

        Empty if the bus has no ids, or does not answer soon.
        """
        return ""

    @abstractmethod
    def committed(self) -> dict[int, Mark]:
        """The group's committed position in each partition."""

    @abstractmethod
    def commit(self, marks: Mapping[int, Mark]) -> None:
        """Commit these positions for the group, by partition.

        Raises:
            ConnectorError: The bus refuses it, or does not answer.
        """

    @abstractmethod
    def starts(self, position: Position) -> dict[int, int]:
        """The offset of earliest, latest or a time (milliseconds since 1970) in each partition."""

    def range(self) -> tuple[dict[int, int], dict[int, int]]:
        """The first offset and the offset after the last record, in each partition, now."""
        return self.starts("earliest"), self.starts("latest")

    @abstractmethod
    def begin(self, starts: Mapping[int, int]) -> None:
        """Read on from these offsets, by partition."""

    @abstractmethod
    def poll(self, timeout: float, at_most: int = AT_ONCE) -> Records:
        """The next records.

        Args:
            timeout: Seconds to wait for a first record.
            at_most: How many records to return at most.

        Raises:
            ConnectorError: The topic cannot be read further.
        """


class Browser(ABC):
    """Looks into the topics of one bus."""

    lists_topics: bool = True
    """Whether the bus knows which topics there are; if not, `topics` is empty, and only says whether it answers."""
    topics_end: bool = True
    """Whether a topic has a last record; if not, a reader of it is never `at_end`."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where the bus is: two browsers of one address see the same topics."""

    @abstractmethod
    def topics(self) -> dict[str, int]:
        """The topics, and how many partitions each has.

        Raises:
            ConnectorError: Retriable if the bus does not answer.
            MissingPackageError: The client library is not installed.
        """

    def checked(self, wanted: Sequence[str]) -> str | None:
        """The text of `streamer check --connect` for a connector with these topics.

        Returns:
            `None`: the text is derived from `topics`.

        Raises:
            ConnectorError: The bus would refuse settings.
        """
        return None

    def matching(self, pattern: str, topics: Iterable[str]) -> list[str]:
        """The topics, of these, that a source with this regular expression reads."""
        return [topic for topic in topics if re.search(pattern, topic)]

    def covering(self, template: str) -> str | None:
        """What a reader reads to get the messages of all topics that are made from values by `template`.

        Args:
            template: A topic with fields, such as `alerts/{device}`.

        Returns:
            `None` where a reader reads one topic only.
        """
        return None

    @abstractmethod
    def reader(self, topic: str, group: str) -> TopicReader:
        """A reader of the topic, not connected yet.

        Raises:
            MissingPackageError: The client library is not installed.
        """

    @abstractmethod
    def sink(self, topic: str, name: str) -> Sink:
        """A sink called `name`, not yet open; a message that names no topic goes to `topic`."""
