"""A service file whose processes are members of one consumer group, and how far the group has read."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import stamina
from confluent_kafka import Consumer, KafkaException, TopicPartition


class GroupMembers:
    """Starts members, and waits until they have read the topics."""

    def __init__(self, bootstrap: str, group: str, topics: Iterable[str], file: Path, running: Any) -> None:
        """`topics` are those of the source. `running` starts a member."""
        self.bootstrap = bootstrap
        self.file = file
        self._group = group
        self._topics = list(topics)
        self._running = running

    def start(self, *options: str, program: str = "") -> Any:
        """A member, by this program instead of `streamer`."""
        return self._running(self.file, *options, program=program)

    def refused(self, why: str, *options: str) -> str:
        """What a service says that is not started for this reason."""
        member = self.start(*options)
        try:
            code = member.process.wait(90)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it runs, instead of saying {why!r}: {member.text()}")
        assert code == 2, member.text()
        assert why in member.text()
        return str(member.text())

    def committed(self) -> int:
        """The sum of the group's positions."""
        return sum(max(place.offset, 0) for place in self._asked(lambda consumer, places: consumer.committed(places)))

    def ends(self, *topics: str) -> int:
        """The sum of the ends of the partitions of these topics, or of the source's."""
        return sum(
            self._asked(lambda consumer, places: [consumer.get_watermark_offsets(place)[1] for place in places], topics)
        )

    def wait_for_group(self, *members: Any, until: float = 1.0) -> None:
        """Until the group has read this part of all records."""
        deadline = time.monotonic() + 120
        while self.committed() < until * self.ends():
            for member in members:
                assert member.process.poll() is None, member.text()
            texts = [member.text() for member in members]
            assert time.monotonic() < deadline, f"{self.committed()} of {self.ends()}: {texts}"
            time.sleep(0.1)

    def finish(self, member: Any) -> None:
        """Until the group has read all records, and this member has stopped."""
        self.wait_for_group(member)
        assert member.stop() == 0, member.text()

    def come_and_go(self, write: Callable[[int, int], None], named: Callable[[str], None] = lambda name: None) -> None:
        """Members join, leave and are killed while records are written, until the last one has read all and stopped.

        `write` gets a number of records and a seed, `named` the name of a member that joins the first one.
        """
        write(3000, 1)
        first = self.start()
        self.wait_for_group(first, until=0.3)
        named("two")
        second = self.start()
        write(3000, 2)
        self.wait_for_group(first, second)
        first.kill()
        write(2000, 3)
        named("three")
        third = self.start()
        self.wait_for_group(second, third)
        assert second.stop() == 0, second.text()
        write(1000, 4)
        self.finish(third)

    def _asked(
        self, ask: Callable[[Consumer, list[TopicPartition]], list[Any]], topics: Sequence[str] = ()
    ) -> list[Any]:
        # Brokers that are killed under the client make its calls fail in many ways.
        for attempt in stamina.retry_context(KafkaException, attempts=None, timeout=60, wait_max=2):
            with attempt:
                consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self._group})
                try:
                    known = consumer.list_topics(timeout=60).topics
                    answer = ask(
                        consumer,
                        [
                            TopicPartition(topic, number)
                            for topic in topics or self._topics
                            for number in sorted(known[topic].partitions)
                        ],
                    )
                finally:
                    consumer.close()
        return answer
