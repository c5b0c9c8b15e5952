"""Events on the page of the sink `view`: what is kept of them, their pictures and clips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from waiting import until

import pipelines
from connectors.sink import Sink
from connectors.view import eventlog
from connectors.view.config import ViewSinkConfig
from connectors.view.eventlog import MOST_WAITING, EventLog
from connectors.view.filepart import PIECE
from connectors.view.madeclip import MadeClip
from connectors.view.places import MOST_POINTS, places_of
from connectors.view.result import Shown
from connectors.view.shownevent import MOST_EVENTS, ShownEvent, events_of
from connectors.view.sink import ViewSink
from pipelines import Blur, Data, Image, Sequence, Zones
from tests.connectors.view.conftest import deliver, result
from tests.connectors.view.test_view import piece

ENTERED = Data({"event": "enter", "place": "hall", "id": 3, "label": "person", "time": 1_700_000_000_000})


def events(client: Any) -> dict[str, Any]:
    """The next piece of the stream with events."""
    while True:
        facts, _ = piece(client)
        if "events" in facts:
            return facts


def shown(at: int, *texts: str, camera: str = "gate") -> Shown:
    image: Any = None
    return Shown(camera, image, (), {}, at, {}, [ShownEvent(text) for text in texts])


def kept(log: EventLog) -> list[dict[str, Any]]:
    news = log.since(0)
    assert news is not None
    listed: list[dict[str, Any]] = news["events"]
    return listed


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ENTERED, "person 3 entered hall"),
        (
            Data({"event": "leave", "place": "hall", "id": 3, "seconds": 12.4}),
            "object 3 left hall after 12\N{NO-BREAK SPACE}s",
        ),
        (Data({"event": "leave", "place": "hall", "id": 3, "lost": True}), "object 3 was lost in hall"),
        (
            Data({"event": "dwell", "place": "hall", "id": 1, "seconds": 30.0}),
            "object 1 has been in hall for 30\N{NO-BREAK SPACE}s",
        ),
        (
            Data({"event": "cross", "place": "kerb", "id": 1, "label": "car", "direction": "in"}),
            "car 1 crossed kerb, in",
        ),
        (Data({"event": "dwell", "place": "hall", "seconds": float("nan")}), "has been in hall"),
        (Data({"event": "fire", "place": "hall"}), "fire hall"),
        ("the door is open", "the door is open"),
    ],
)
def test_an_event_is_said_in_words(event: Any, words: str) -> None:
    assert [one.text for one in events_of([event])] == [words]


def test_events_of_another_form_are_left_out_and_floods_of_them_are_cut() -> None:
    assert events_of([1, "", Data({"place": "hall"}), Data({"event": 3})]) == []
    assert events_of(None) == []
    assert len(events_of(["x"] * 1000)) == MOST_EVENTS
    assert len(events_of([Data({"event": "e" * 5000})])[0].text) == 80
    assert events_of([ENTERED])[0].time == 1_700_000_000_000


def test_an_event_is_listed_with_its_picture_though_no_page_was_open(viewing: Any, ask: Any) -> None:
    sink = viewing()
    deliver(sink, result("gate", 70, wide=640, events=[ENTERED], counts=Data({"hall": Data({"inside": 1})})))
    until(lambda: sink.board.encoded == 1)
    deliver(sink, result("gate", 10, wide=640))
    client = ask(sink, "/stream")
    facts = events(client)
    (event,) = facts["events"]
    assert {key: event[key] for key in ("camera", "time", "text", "clip")} == {
        "camera": "gate", "time": 1_700_000_000_000, "text": "person 3 entered hall", "clip": None,
    }  # fmt: skip
    pixels = Image(ask(sink, f"/events/{event['picture']}.jpg").rest()).get_as("numpy")
    assert pixels.shape == (480, 640, 3)
    assert abs(int(pixels[-1, -1, 0]) - 70) < 5
    assert ask(sink, "/events/999.jpg").status == 404
    # A page that connects again, to the same process, gets only what is new.
    again = ask(sink, f"/stream?after={facts['run']}-{facts['revision']}")
    deliver(sink, result("gate", 20, events=["rain"]))
    assert [one["text"] for one in events(again)["events"]] == ["rain"]
    assert len(events(ask(sink, f"/stream?after=other-{facts['revision']}"))["events"]) == 2


def test_counts_are_told_with_the_picture(viewing: Any, ask: Any) -> None:
    sink = viewing()
    numbers = Data({"hall": Data({"inside": 2, "entered": 5, "name": "x"}), "kerb": 3})
    deliver(sink, result("gate", 10, counts=numbers))
    client = ask(sink, "/stream")
    while True:
        facts, jpeg = piece(client)
        if jpeg:
            break
    assert facts["counts"] == {"hall": {"inside": 2, "entered": 5}}


def test_only_the_last_events_are_kept() -> None:
    log = EventLog(3)
    for number in range(10):
        log.add(shown(number * 10_000, f"event {number}"))
    news = log.since(0)
    assert news is not None
    assert [event["text"] for event in news["events"]] == ["event 7", "event 8", "event 9"]
    assert (news["oldest"], log.total) == (8, 10)
    assert log.since(news["revision"]) is None
    # The frames of events that are not kept any more are freed.
    numbers = []
    while (waiting := log.next_picture()) is not None:
        numbers.append(waiting[0])
    assert numbers == []
    none = EventLog(0)
    assert not none.add(shown(0, "event"))
    assert none.since(0) is None


def test_frames_that_wait_and_bytes_of_pictures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(100)
    assert [log.add(shown(0, "event", camera=str(number))) for number in range(MOST_WAITING + 2)] == (
        [True] * MOST_WAITING + [False] * 2
    )
    monkeypatch.setattr(eventlog, "MOST_BYTES", 25)
    while (waiting := log.next_picture()) is not None:
        log.put_picture(waiting[0], b"0123456789")
    assert [event["picture"] is not None for event in kept(log)] == [True, True, False, False]
    assert log.jpeg(1) is None


def test_events_of_one_second_share_a_picture() -> None:
    log = EventLog(100)
    assert log.add(shown(5000, "first", "second"))
    assert not log.add(shown(5900, "third"))
    assert log.add(shown(6000, "fourth"))
    for _ in range(2):
        (number, _) = log.next_picture() or (0, None)
        log.put_picture(number, b"jpeg")
    assert [event["picture"] for event in kept(log)] == [1, 1, 1, 4]


def test_a_clip_belongs_to_the_events_in_it_and_is_else_an_event_itself() -> None:
    log = EventLog(4)
    for at in (10_000, 20_000, 30_000):
        log.add(shown(at, f"at {at}"))
    log.clip(MadeClip("gate", 20_000, 18_000, 25_000, Path("a.mp4")))
    log.clip(MadeClip("gate", 20_000, 25_001, 26_000, Path("a-2.mp4")))
    log.clip(MadeClip("dock", 20_000, 15_000, 25_000, Path("b.mp4")))
    assert [(event["camera"], event["text"], event["clip"]) for event in kept(log)] == [
        ("gate", "at 10000", None),
        ("gate", "at 20000", 1),
        ("gate", "at 30000", None),
        ("dock", "a clip was recorded", 2),
    ]
    assert log.clip_file(1) == Path("a.mp4")
    for at in (40_000, 50_000):
        log.add(shown(at, f"at {at}"))
    assert log.clip_file(1) is None
    assert log.clip_file(2) == Path("b.mp4")


@pytest.mark.parametrize(
    ("wanted", "status", "part"),
    [
        ("", 200, slice(0, None)),
        ("bytes=0-", 206, slice(0, None)),
        ("bytes=10-19", 206, slice(10, 20)),
        ("bytes=-5", 206, slice(-5, None)),
        ("bytes=400000-9999999", 206, slice(400_000, None)),
        ("bytes=0-1,5-6", 200, slice(0, None)),
        ("bytes=9999999-", 416, slice(0, 0)),
    ],
)
def test_a_player_gets_the_part_of_a_clip_that_it_asks_for(
    viewing: Any, ask: Any, tmp_path: Path, wanted: str, status: int, part: slice
) -> None:
    video = bytes(range(256)) * (2 * PIECE // 256)
    file = tmp_path / 'gäte "1".mp4'
    file.write_bytes(video)
    sink = viewing()
    sink.events.clip(MadeClip("gate", 0, 0, 1, file))
    client = ask(sink, "/clips/1", *([f"Range: {wanted}"] if wanted else []))
    assert client.status == status
    assert f"content-length: {len(video[part])}" in client.head
    assert client.rest() == video[part]


def test_a_clip_that_was_deleted_and_files_that_are_no_clips_are_not_there(
    viewing: Any, ask: Any, tmp_path: Path
) -> None:
    sink = viewing(token="a-long-token")
    sink.events.clip(MadeClip("gate", 0, 0, 1, tmp_path / "gone.mp4"))
    assert [ask(sink, f"/clips/{name}?token=a-long-token").status for name in ("1", "2", "..%2fconfig.py")] == [404] * 3
    assert ask(sink, "/clips/1").status == ask(sink, "/events/1.jpg").status == 401


class Clips(Sink):
    """A sink that says that it wrote a clip."""

    name = "clips"
    call: Any = None

    def on_clip(self, call: Any) -> None:
        self.call = call

    def open(self) -> None: ...
    def send(self, messages: Any, deadline: float) -> Any: ...
    def barrier(self, deadline: float) -> Any: ...
    def confirmed(self) -> Any: ...
    def close(self) -> None: ...


BLURRED = Sequence([Blur()])


@pytest.mark.parametrize(
    ("pipeline", "fields", "shows"),
    [
        (None, {}, True),
        (Sequence([]), {"clips": False}, False),
        (BLURRED, {}, False),
        (Sequence([pipelines.PipelineStep(pipeline=BLURRED)]), {}, False),
        (Sequence([pipelines.PipelineStep(pipeline="nowhere.yaml")]), {}, False),
        (BLURRED, {"clips": True}, True),
    ],
)
def test_clips_can_be_played_unless_the_pipeline_hides_what_they_show(pipeline: Any, fields: Any, shows: bool) -> None:
    sink, clips = ViewSink(ViewSinkConfig(**fields)), Clips()
    sink.pipeline, sink.others = pipeline, [clips]
    sink.attach([])
    assert (clips.call is not None) is shows


def test_zones_and_lines_of_the_pipeline_are_told_those_of_pipelines_in_it_too(viewing: Any, ask: Any) -> None:
    zones = Zones(
        zones={"hall": {"points": [[0, 0], [1, 0], [1, 1]], "cameras": ["gate"]}},
        lines={"kerb": {"start": [0, 0.5], "end": [1, 0.5]}},
    )
    places = [
        {"name": "hall", "kind": "zone", "points": [[0, 0], [1, 0], [1, 1]], "cameras": ["gate"]},
        {"name": "kerb", "kind": "line", "points": [[0, 0.5], [1, 0.5]], "cameras": None},
    ]
    pipeline = Sequence([pipelines.PipelineStep(pipeline=Sequence([zones]))])
    assert places_of(pipeline) == places
    many = [[index, index * index] for index in range(100)]
    large = Zones(zones={f"zone {index}": {"points": many} for index in range(MOST_POINTS // 100 + 5)})
    assert sum(len(place["points"]) for place in places_of(Sequence([large]))) == MOST_POINTS
