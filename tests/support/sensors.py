"""Samples of devices in a topic, and a service that makes windows of them: each sample has to be in one window."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import killpoints
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from groupmembers import GroupMembers
from kafkatopics import read

from pipelines import Data, hotpath

SIZE = 7
PARTITIONS = 4


class Sensors(GroupMembers):
    """Writes numbered samples of devices, and checks the windows that the members of a group make of them."""

    def __init__(self, kafka: Any, topics: Any, folder: Path, running: Any, state: str, source: str = "") -> None:
        """`running` starts a member; `state` is that of the service, and `source` more lines of its source."""
        self.source, self.sink = topics(PARTITIONS, "samples"), topics(2, "windows")
        self.folder = folder
        self.written: dict[str, int] = defaultdict(int)
        file = folder / "service.yaml"
        super().__init__(kafka.bootstrap, self.source, [self.source], file, running)
        self.file.write_text(
            f"""
name: windows
source:
  type: kafka
  bootstrap: {self.bootstrap}
  topics: [{self.source}]
  group: {self.source}
  client: {{session.timeout.ms: 6000, heartbeat.interval.ms: 500, topic.metadata.refresh.interval.ms: 2000}}
  {source}
pipeline:
  - {{"@type": WINDOW, by: device, size: {SIZE}, values: x, outputName: samples}}
batch: {{max_records: 50}}
sink: {{type: kafka, topic: {self.sink}}}
state: {state}
"""
        )

    def transactional(self) -> Producer:
        """A producer for `write`, whose transactions leave markers behind the records."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.source})
        producer.init_transactions(60)
        return producer

    def widen(self, partitions: int) -> None:
        """Give the source so many partitions."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(self.source, partitions)])[self.source].result(60)

    def write(self, count: int, seed: int, transactional: Producer | None = None, devices: str = "d") -> None:
        """Write so many samples, of forty devices whose names begin like this."""
        producer = transactional or Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        if transactional is not None:
            transactional.begin_transaction()
        chance = random.Random(seed)
        for _ in range(count):
            device = f"{devices}{chance.randrange(40)}"
            producer.produce(self.source, Data({"device": device, "x": self.written[device]}).to_bytes(), device)
            self.written[device] += 1
        assert producer.flush(60) == 0
        if transactional is not None:
            transactional.commit_transaction(60)

    def killed_at_each_point(self, chance: random.Random, rounds: int, patch: pytest.MonkeyPatch) -> Iterator[str]:
        """Have a member killed at each point of a checkpoint, so many rounds, while samples are written.

        Gives the point once the next member has read all.
        """
        producer = self.transactional()
        member = self.start(program=killpoints.__file__)
        # Windows of all devices are open, so that some end soon.
        self.write(500, 1, producer)
        self.wait_for_group(member)
        for number, point in enumerate(killpoints.POINTS * rounds):
            killpoints.order(self.folder, point, chance.randint(1, 3))
            deadline = time.monotonic() + 60
            while member.process.poll() is None:
                assert time.monotonic() < deadline, f"{point}: {member.text()}"
                self.write(200, chance.getrandbits(32), producer)
                time.sleep(0.05)
            assert member.process.returncode == -signal.SIGKILL, f"{point}: {member.text()}"
            killpoints.withdraw(self.folder)
            # What a process with this hot path has saved, a process with the other goes on from.
            patch.setenv(hotpath.VARIABLE, ("python", "auto")[number % 2])
            member = self.start(program=killpoints.__file__)
            self.wait_for_group(member)
            yield point
        assert member.stop() == 0, member.text()

    def check(self) -> int:
        """Every full window is there, of the samples that follow each other, and repeated ones are the same.

        Returns how many windows are repeats.
        """
        windows: dict[str, set[tuple[float, ...]]] = defaultdict(set)
        messages = read(self.bootstrap, self.sink)
        for message in messages:
            assert message.value is not None
            data = Data.from_bytes(message.value)
            assert message.key == str(data["device"]).encode()
            windows[str(data["device"])].add(tuple(data["samples"].ravel().tolist()))
        for device, count in self.written.items():
            expected = {tuple(map(float, range(at, at + SIZE))) for at in range(0, count - SIZE + 1, SIZE)}
            assert windows[device] == expected, device
        return len(messages) - sum(map(len, windows.values()))
