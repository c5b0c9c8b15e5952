"""TRACK and ZONES in a service: what they know is of the lane, and a record that fails changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from connectors.memory import MemorySource, MemoryTopic
from connectors.message import Message
from pipelines import BoundingBox, Data, Track, Zones
from pipelines.definitions.sequence import Sequence
from streamer.definition.service import Service


def message(at: int, partition: int = 0, **others: Any) -> Message:
    """A frame of a camera, with a box that goes to the right; a partition is a camera here."""
    x = 0.2 + 0.02 * at
    values = {"boxes": [BoundingBox.corners(x, x + 0.1, 0.4, 0.6, "cat", 0.9)], "at": at, "camera": partition, **others}
    return Message(Data(values).to_bytes(), partition=partition, timestamp=1_700_000_000_000 + at * 33)


def results(serving: Any) -> list[Data]:
    return [Data.from_bytes(one.value) for one in serving.sink.messages]


def test_each_partition_has_its_own_tracks_and_a_bad_record_is_skipped(
    define: Callable[..., Service], serve: Any, eventually: Any
) -> None:
    steps = [Track(bbox_name="boxes"), Zones(lines={"middle": {"start": [0.4, 0], "end": [0.4, 1]}}, bbox_name="boxes")]
    source = MemorySource(topic=MemoryTopic("in", 2), name="memory")
    service = define().model_copy(update={"pipeline": Sequence(steps)})
    serving = serve(service, sources={"memory": source})
    for at in range(12):
        bad = {"boxes": "none"} if at == 5 else {}
        source.feed(message(at, 0, **bad), message(at, 1))
    eventually(lambda: len(results(serving)) == 23)
    for camera, frames in ((0, 11), (1, 12)):
        found = [one for one in results(serving) if one["camera"] == camera]
        assert [one["at"] for one in found] == sorted(one["at"] for one in found)
        assert [one["ids"][0] > 0 for one in found] == [False] + [True] * (frames - 1)
        assert len({one["ids"][0] for one in found} - {0}) == 1
        crossings = [event for one in found for event in one["events"]]
        assert [(one["event"], one["direction"]) for one in crossings] == [("cross", "out")]
        assert found[-1]["counts"]["middle"] == Data({"in": 0, "out": 1})
