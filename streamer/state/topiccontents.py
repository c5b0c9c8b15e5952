"""`TopicContents`: what is in a topic with the state of a service, for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

from connectors.statetopic import StateTopic
from pipelines.errors import ConnectorError, StreamerError
from streamer.state.contents import Chosen, KeyState, PartitionState
from streamer.state.topicrecords import record_key

_DESCRIBING: Final = (b'["step"', b'["position"')
"""How the keys of records begin whose values are read."""


class TopicContents:
    """The topic with the state of a service. Implements `SavedState`."""

    def __init__(self, topic: StateTopic, service: str, source: str) -> None:
        """`source`: the name of the service's source."""
        self._topic = topic
        self._service = service
        self._source = source

    @property
    def place(self) -> str:
        """See `SavedState.place`."""
        return f"topic {self._topic.name}"

    def __enter__(self) -> Self:
        self._topic.look()
        return self

    def __exit__(self, *reason: object) -> None:
        self._topic.close()

    def about(self) -> Mapping[str, Any]:
        """See `SavedState.about`. Brokers do not say on which host it was saved, nor how often."""
        return {"service": self._service, "host": None, "checkpoint": None}

    def steps(self) -> Mapping[str, str]:
        """See `SavedState.steps`: none, as each partition has those of its state."""
        return {}

    def partitions(self) -> Iterator[PartitionState]:
        """See `SavedState.partitions`."""
        for number in range(len(self._topic.partitions)):
            yield self._state(number, self._read(number))

    def forget(self, step: str | None, key: str | None) -> int:
        """See `SavedState.forget`. The positions stay, and each partition is a transaction of its own."""
        self._topic.check_unused()
        chosen = Chosen(self, step, key)
        count = 0
        for number in range(len(self._topic.partitions)):
            sizes, described = self._read(number)
            state = self._state(number, (sizes, described))
            keys = {(each.step, each.key) for each in chosen.of(state)}
            gone = [record for record, (of, name, _) in self._items(sizes) if (of, name) in keys]
            # A step without state may have other fields from now on.
            left = {each.step for each in state.keys if (each.step, each.key) not in keys}
            gone += [record_key("step", each) for each in state.steps if chosen.has(each) and each not in left]
            gone = [record for record in gone if record in sizes or record in described]
            if gone:
                self._topic.clear(number, gone)
            count += len(keys)
        chosen.check()
        return count

    def _read(self, number: int) -> tuple[dict[bytes, int], dict[bytes, bytes]]:
        """The bytes of each item of a partition, and the records that describe its steps and position, by key."""
        sizes: dict[bytes, int] = {}
        described: dict[bytes, bytes] = {}
        for key, value in self._topic.each(number):
            if key.startswith(_DESCRIBING):
                described[key] = value or b""
            elif value is None:
                sizes.pop(key, None)
            else:
                sizes[key] = len(value)
        return sizes, {key: value for key, value in described.items() if value}

    def _state(self, number: int, read: tuple[Mapping[bytes, int], Mapping[bytes, bytes]]) -> PartitionState:
        sizes, described = read
        partition = self._topic.partitions[number]
        position: int | None = None
        steps: dict[str, str] = {}
        counts: Counter[tuple[str, str]] = Counter()
        try:
            for record, value in described.items():
                kind, *rest = json.loads(record)
                said = json.loads(value)
                if kind == "step":
                    steps[str(rest[0])] = str(said["type"])
                    continue
                if said["service"] != self._service:
                    raise ConnectorError(
                        f'state: {self.place} has the state of service "{said["service"]}", and this is '
                        f'"{self._service}"'
                    )
                partition, position = str(said["partition"]), int(said["position"])
            for record, (step, key, _) in self._items(sizes):
                counts[step, key] += sizes[record]
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise StreamerError(
                f"state: {self.place}, {partition}: a record was not written by this program ({error})"
            ) from error
        keys = [KeyState(step, self._source, partition, key, size) for (step, key), size in sorted(counts.items())]
        return PartitionState(self._source, partition, position, {step: "" for step, _ in counts} | steps, keys)

    def _items(self, sizes: Mapping[bytes, int]) -> Iterator[tuple[bytes, tuple[str, str, int]]]:
        for record in sizes:
            kind, step, key, part = json.loads(record)
            if kind != "item":
                raise ValueError(f"{kind} is no kind of record")
            yield record, (step, key, part)
