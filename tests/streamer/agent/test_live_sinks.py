"""Services on live streams whose sinks are full, away, or lose messages: the pipeline goes on, and nothing piles up."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filmserver import FilmServer
from numberedpictures import video

from connectors.memory import MemoryLiveSource, MemorySink, MemoryTopic
from pipelines import Data
from streamer.definition.service import Service


class Frame(Data):
    """A record that is large, and can be watched being freed."""

    nbytes = 40 << 20
    __slots__ = ("__weakref__",)

    def payload(self) -> bytes:
        return self.to_bytes()


def full_sink(name: str = "memory") -> MemorySink:
    """A sink that is away and has no room for more than one message."""
    sink = MemorySink(MemoryTopic(name), name=name, max_in_flight=1)
    sink.topic.faults.cut()
    return sink


@pytest.fixture
def seen() -> list[int]:
    return []


@pytest.fixture
def live(define: Callable[..., Service], seen: list[int]) -> Callable[..., Service]:
    """`live(step, **settings)` is a service of records as objects."""

    def note(data: Data) -> Data:
        seen.append(data.get_int64("x"))
        return Data({"y": data.get_int64("x")})

    def defined(step: Any = note, **settings: Any) -> Service:
        return define(step, source={"type": "memory", "topic": "in", "codec": "objects"}, **settings)

    return defined


def test_a_sink_that_is_away_stops_no_inference_and_what_it_misses_is_counted(
    live: Callable[..., Service], serve: Any, eventually: Any, seen: list[int]
) -> None:
    source, sink = MemoryLiveSource(), full_sink()
    serving = serve(live(), sources={"memory": source}, sinks={"memory": sink})
    for number in range(30):
        source.show("stream", Frame({"x": number}))
        eventually(lambda number=number: number in seen)
    assert serving.agent.meters.run.dropped == {"memory": 29}
    assert serving.agent.meters.in_flight() == 0
    sink.topic.faults.mend()
    source.show("stream", Frame({"x": 100}))
    eventually(lambda: serving.results() == [0, 100])
    assert not serving.stop().error


def test_payloads_are_freed_once_their_results_are_sent_though_nobody_confirms_them(
    live: Callable[..., Service], serve: Any, eventually: Any, seen: list[int]
) -> None:
    source = MemoryLiveSource()
    sink = MemorySink(name="memory")
    sink.topic.faults.cut()
    serving = serve(live(), sources={"memory": source}, sinks={"memory": sink})
    frames = []
    for number in range(6):
        frame = Frame({"x": number})
        frames.append(weakref.ref(frame))
        source.show("stream", frame)
        del frame
        eventually(lambda number=number: number in seen)
    eventually(lambda: serving.agent.meters.in_flight() == 0)
    eventually(lambda: gc.collect() >= 0 and [one() for one in frames] == [None] * 6)
    assert serving.results() == []
    sink.topic.faults.mend()
    eventually(lambda: serving.results() == list(range(6)))
    eventually(lambda: serving.agent.meters.run.outcomes["memory", "ok"] == 6)
    assert not serving.stop().error


def test_a_sink_that_is_told_to_wait_holds_up_live_sources_too(
    live: Callable[..., Service], serve: Any, eventually: Any, seen: list[int]
) -> None:
    source, sink = MemoryLiveSource(), full_sink()
    sinks = {"type": "memory", "topic": "out", "when_full": "wait"}
    serving = serve(live(sink=sinks), sources={"memory": source}, sinks={"memory": sink})
    for number in range(2):
        source.show("stream", Frame({"x": number}))
        eventually(lambda number=number: number in seen)
    source.show("stream", Frame({"x": 2}))
    source.show("stream", Frame({"x": 3}))
    sink.topic.faults.mend()
    eventually(lambda: serving.results() == [0, 1, 3])
    assert not serving.agent.meters.run.dropped
    assert not serving.stop().error


def test_a_sink_may_drop_what_it_has_no_room_for_whatever_the_source(
    define: Callable[..., Service], serve: Any, eventually: Any
) -> None:
    sink = full_sink()
    serving = serve(
        define(sink={"type": "memory", "topic": "out", "when_full": "drop"}, batch={"max_records": 1}),
        sinks={"memory": sink},
    )
    serving.feed(*range(10))
    eventually(lambda: serving.agent.meters.run.dropped["memory"] == 9)
    assert serving.source.acknowledged == [0]
    sink.topic.faults.mend()
    eventually(lambda: serving.source.acknowledged == [10])
    assert serving.results() == [0]


def test_a_recording_by_url_loses_no_result_while_its_sink_is_full(
    define: Callable[..., Service], serve: Any, eventually: Any, tmp_path: Path, seen: list[int]
) -> None:
    video(str(tmp_path / "film.mkv"), frames=20)

    def note(data: Data) -> Data:
        seen.append(len(seen))
        return Data({"y": seen[-1]})

    with FilmServer(tmp_path) as films:
        film = {"type": "camera", "cameras": {"film": f"{films.url}/film.mkv"}}
        service, sink = define(note, source=film, batch={"max_records": 1}), full_sink()
        serving = serve(service, sources={"camera": service.sources[0].build()}, sinks={"memory": sink})
        eventually(lambda: len(seen) > 1)
        sink.topic.faults.mend()
        eventually(lambda: serving.results() == list(range(20)))
        assert not any(serving.agent.meters.run.dropped.values())
        assert not serving.stop().error


def test_one_sink_that_drops_takes_nothing_from_the_others(
    define: Callable[..., Service], serve: Any, eventually: Any
) -> None:
    sinks = {"full": full_sink("full"), "well": MemorySink(name="well")}
    serving = serve(
        define(
            sink=[
                {"type": "memory", "topic": "a", "name": "full", "when_full": "drop"},
                {"type": "memory", "topic": "b", "name": "well"},
            ],
        ),
        sinks=sinks,
    )
    serving.feed(*range(10))
    eventually(lambda: serving.results("well") == [2 * x for x in range(10)])
    assert serving.agent.meters.run.dropped["well"] == 0
    sinks["full"].topic.faults.mend()


def test_a_result_that_is_lost_later_becomes_a_dead_letter_without_its_payload(
    live: Callable[..., Service], serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.delivery.letters.HOLD", 0.1)
    source, sink = MemoryLiveSource(["gate"]), MemorySink(name="memory")
    sink.topic.faults.cut()
    sink.topic.faults.lose = lambda message: True
    serving = serve(live(), sources={"memory": source}, sinks={"memory": sink})
    source.show("gate", Frame({"x": 1}), key=b"gate")
    eventually(lambda: serving.agent.meters.run.outcomes["memory", "ok"] == 1)
    sink.topic.faults.mend()
    eventually(lambda: len(serving.dead.messages) == 1)
    (letter,) = serving.dead.messages
    headers = dict(letter.headers)
    assert (letter.key, headers["streamer-topic"], headers["streamer-left-out"]) == (b"gate", b"gate", b"payload")
    assert headers["streamer-refusal"].startswith(b"the record was not kept until its results were confirmed")
    assert not serving.stop().error


def test_a_stop_while_the_sink_is_away_ends_in_time_and_says_what_was_not_confirmed(
    live: Callable[..., Service], serve: Any, eventually: Any, seen: list[int]
) -> None:
    source, sink = MemoryLiveSource(), full_sink()
    serving = serve(live(limits={"drain": "1s"}), sources={"memory": source}, sinks={"memory": sink})
    for number in range(3):
        source.show("stream", Frame({"x": number}))
        eventually(lambda number=number: number in seen)
    summary = serving.stop(30)
    assert "not all results could be confirmed" in (summary.error or "")
