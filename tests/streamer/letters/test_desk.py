"""Dead letters of a service: read again, shown and sent back, as `streamer replay` does."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from kafkatopics import read, write

from connectors.codecs.letterdocument import document
from pipelines import Data
from pipelines.errors import ConnectorError, StreamerError
from streamer.definition.loading import loads
from streamer.devbroker import Broker
from streamer.letters import document as shown
from streamer.letters.desk import LetterDesk
from streamer.letters.nosuchletter import NoSuchLetter
from streamer.observe.logs import logger

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
NOWHERE = """
source: {type: kafka, topics: a, bootstrap: "localhost:1"}
pipeline: []
sink: {type: memory, topic: out}
"""
HUGE = b'{"text": "' + b"<script>alert(1)</script>" * 44_000 + b'"}'


def headers_of(topic: str, step: str = "scale", **more: str) -> list[tuple[str, bytes | None]]:
    fields = {"topic": topic, "partition": "0", "offset": "7", "timestamp": "5000", "step": step, "error": "ValueError"}
    ours = {
        f"streamer-{name}".replace("_", "-"): value for name, value in {**fields, "text": "too <b>hot", **more}.items()
    }
    return [*((name, value.encode()) for name, value in ours.items()), ("trace", b"\x00\xff")]


class Fans:
    """A service on Kafka, whose dead letters are in a topic or a file; what is in it, and what came back."""

    def __init__(self, broker: Broker, topics: Any, file: Path | None = None, codec: str = "json") -> None:
        self.bootstrap = broker.bootstrap
        self.origin = topics(prefix="fans")
        self.dead = topics(prefix="dead") if file is None else ""
        self.file = file
        place = (
            f'{{type: kafka, topic: "{self.dead}"}}' if file is None else f"{{type: file, path: {file}, format: jsonl}}"
        )
        self.text = (
            f'name: fans\nsource: {{type: kafka, bootstrap: "{self.bootstrap}", topics: "{self.origin}", '
            f"codec: {codec}}}\n"
            f"pipeline: []\nsink: {{type: memory, topic: out}}\ndead_letter: {place}\n"
        )
        self.desk = LetterDesk(loads(self.text), logger(service="fans"))

    def bury(self, value: bytes | None, headers: list[tuple[str, bytes | None]] | None = None) -> None:
        """Write a dead letter as the service does."""
        headers = headers_of(self.origin) if headers is None else headers
        if self.file is None:
            write(self.bootstrap, self.dead, [value], key=b"fan 1", headers=headers)
        else:
            with self.file.open("ab") as lines:
                lines.write(document(value, b"fan 1", headers) + b"\n")

    def listed(self, count: int = 20) -> list[dict[str, Any]]:
        """The newest letters, which can be sent as JSON."""
        answer = self.desk.newest(count, time.monotonic() + 60)
        assert (answer["reason"], answer["whole"]) == (None, True)
        letters: list[dict[str, Any]] = json.loads(json.dumps(answer, allow_nan=False))["letters"]
        return letters

    def replay(self, letter: str, *, again: bool = False) -> dict[str, Any]:
        """Send one back."""
        return self.desk.replay(letter, time.monotonic() + 60, again=again)

    def back(self) -> list[Any]:
        """What came back."""
        return read(self.bootstrap, self.origin)


@pytest.fixture(params=["topic", "file"])
def fans(request: pytest.FixtureRequest, kafka: Broker, topics: Any, tmp_path: Path) -> Fans:
    return Fans(kafka, topics, tmp_path / "dead.jsonl" if request.param == "file" else None)


def test_a_letter_is_shown_with_what_failed_and_what_it_held(fans: Fans) -> None:
    fans.bury(b'{"rpm": 7, "at": [1, 2, 3]}')
    fans.bury(b'{"rpm": NaN}', [("streamer-record", b'{"qos": 1}'), *headers_of(fans.origin, step="check")])
    newest, first = fans.listed()
    assert (newest["step"], newest["record"], "value" in newest) == ("check", {"qos": 1}, False)
    assert "NaN" in newest["undecoded"]
    assert first.pop("time") is None or fans.file is None
    assert {name: first[name] for name in first if name != "id"} == {
        "topic": fans.origin,
        "partition": 0,
        "offset": 7,
        "timestamp": 5.0,
        "step": "scale",
        "error": "ValueError",
        "text": "too <b>hot",
        "key": "fan 1",
        "headers": [["trace", "00 ff"]],
        "more_headers": 0,
        "size": 27,
        "payload": {"text": '{"rpm": 7, "at": [1, 2, 3]}'},
        "value": {"rpm": 7, "at": [1, 2, 3]},
        "replayed": False,
        "stays": None,
    }
    assert [letter["id"] for letter in fans.listed(1)] == [newest["id"]]


def test_a_letter_goes_back_once_unless_asked_and_the_command_line_knows_it(
    fans: Fans, cli: Any, tmp_path: Path
) -> None:
    for number in range(3):
        fans.bury(b"%d" % number)
    letter = next(letter["id"] for letter in fans.listed() if letter["payload"] == {"text": "1"})
    assert fans.replay(letter) == {"letter": letter, "topic": fans.origin, "state": "sent"}
    (message,) = fans.back()
    assert (message.value, message.key, message.headers) == (b"1", b"fan 1", (("trace", b"\x00\xff"),))
    assert [letter["id"] for letter in fans.listed() if letter["replayed"]] == [letter]
    with pytest.raises(StreamerError, match="was replayed before"):
        fans.replay(letter)
    fans.replay(letter, again=True)
    file = tmp_path / "fans.yaml"
    file.write_text(fans.text)
    report = json.loads(cli("replay", file, "--json").out)
    assert (report["sent"], report["before"]) == (2, 1)
    assert [message.value for message in fans.back()] == [b"1", b"1", b"0", b"2"]
    assert all(letter["replayed"] for letter in fans.listed())


def test_a_letter_with_the_values_of_a_window_is_not_sent_where_records_are_read(
    fans: Fans, tmp_path: Path, cli: Any
) -> None:
    fans.bury(b'{"mean": 3}', [("streamer-window", b"json"), *headers_of(fans.origin)])
    fans.bury(b"1")
    place = f"{fans.origin}[0]@7"
    (window,) = [letter for letter in fans.listed() if letter["stays"]]
    why = f"it has the values of a window, which no topic of records takes; the window's last record is at {place}"
    assert window["stays"] == why
    file = tmp_path / "fans.yaml"
    file.write_text(fans.text)
    ended = cli("replay", file, "--json")
    report = json.loads(ended.out)
    assert (ended.code, report["sent"], report["windows"]) == (1, 1, [place])
    assert "1 have the values of a window" in ended.err
    with pytest.raises(StreamerError) as refused:
        fans.replay(window["id"], again=True)
    assert str(refused.value) == why
    assert [message.value for message in fans.back()] == [b"1"]


def test_a_window_is_shown_however_records_are_written(kafka: Broker, topics: Any, tmp_path: Path) -> None:
    fans = Fans(kafka, topics, tmp_path / "dead.jsonl", codec="protodata")
    window = Data({"device": "a", "samples": np.array([[1], [2]], np.float32)}).to_json().encode()
    fans.bury(window, [("streamer-window", b"json"), *headers_of(fans.origin)])
    (letter,) = fans.listed()
    assert letter["value"]["device"] == "a"
    assert "2" in str(letter["value"]["samples"])


def test_a_letter_that_must_not_or_cannot_go_back_says_why_before_and_when_it_is_replayed(fans: Fans) -> None:
    fans.bury(b"forged", headers_of("payments"))
    fans.bury(b"{}", [("streamer-left-out", b"payload"), ("streamer-size", b"9000000"), *headers_of(fans.origin)])
    whys = {"payments": '"payments" is not among the topics of the service\'s source'}
    whys[fans.origin] = f"no payload to send; the record is, as long as its topic keeps it, at {fans.origin}[0]@7"
    letters = fans.listed()
    assert {letter["topic"]: letter["size"] for letter in letters} == {"payments": 6, fans.origin: 9_000_000}
    for letter in letters:
        assert whys[letter["topic"]] in letter["stays"]
        with pytest.raises(StreamerError) as refused:
            fans.replay(letter["id"])
        assert str(refused.value) == letter["stays"]
    assert fans.back() == []


def test_hostile_and_huge_payloads_are_shown_as_short_texts(kafka: Broker, topics: Any, tmp_path: Path) -> None:
    fans = Fans(kafka, topics, tmp_path / "dead.jsonl")
    deep = b"[" * 900 + b"]" * 900
    for payload in (
        HUGE,
        HUGE[:900_000] + b'"}',
        b"\xff\x00" * 5000,
        b'{"x": ' + deep + b"}",
        b"</script><img src=x>",
        None,
    ):
        fans.bury(payload, [*headers_of(fans.origin), *((f"h{number}", b"\xff" * 9000) for number in range(200))])
    answer = json.dumps(fans.listed(), allow_nan=False)
    assert len(answer) < 200_000
    tombstone, page, nested, binary, large, huge = json.loads(answer)
    assert (tombstone["size"], "payload" in tombstone) == (None, False)
    assert page["payload"] == {"text": "</script><img src=x>"}
    assert page["undecoded"]
    assert "max_depth" in nested["undecoded"]
    assert binary["payload"] == {"hex": "ff 00 " * 127 + "ff 00"}
    assert large["value"]["text"]["text"] == 899_990
    assert huge["undecoded"] == "payloads of more than 1,048,576 bytes are not decoded here"
    assert (len(page["headers"]), page["more_headers"]) == (50, 151)


def test_a_small_picture_is_shown_and_one_of_many_pixels_is_not(
    kafka: Broker, topics: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fans = Fans(kafka, topics, tmp_path / "dead.jsonl", codec="image")
    fans.bury(PNG)
    assert fans.listed()[0]["picture"] == "data:image/png;base64," + base64.b64encode(PNG).decode()
    monkeypatch.setattr(shown, "_PIXELS", 0)
    assert "picture" not in fans.listed()[0]


def test_a_letter_whose_topic_was_made_anew_is_not_taken_for_another(fans: Fans) -> None:
    fans.bury(b"1")
    (letter,) = fans.listed()
    changed = letter["id"][:-8] + "00000000"
    for name in (changed, letter["id"].replace("0-0-", "0-9-"), "../x", ""):
        with pytest.raises(NoSuchLetter):
            fans.replay(name)
    assert fans.back() == []


@pytest.mark.parametrize(
    ("dead", "why"),
    [
        ("{type: memory, topic: dead}", "no dead_letter in a topic of a bus, or in a file with format: jsonl"),
        (
            '{type: mqtt, url: "mqtt://localhost:1", topic: dead}',
            "dead: its bus does not keep letters to be read again",
        ),
        ("{type: file, path: none.jsonl, format: jsonl}", "no dead letter has been written yet"),
    ],
)
def test_where_letters_cannot_be_read_again_the_reason_is_told(tmp_path: Path, dead: str, why: str) -> None:
    desk = LetterDesk(loads(f"{NOWHERE}dead_letter: {dead}\n", base=tmp_path), structlog.get_logger())
    answer = desk.newest(20, time.monotonic() + 5)
    assert answer["letters"] == []
    assert why in answer["reason"]
    with pytest.raises(StreamerError, match=why.split(":")[-1]):
        desk.replay("0-0-00000000", time.monotonic() + 5)


def test_letters_of_a_source_that_takes_no_records_back_are_shown_but_stay(tmp_path: Path) -> None:
    file = tmp_path / "dead.jsonl"
    file.write_bytes(document(b'{"x": 1}', None, headers_of("in")) + b"\n")
    text = (
        "name: fans\nsource: {type: memory, topic: in, codec: json}\npipeline: []\nsink: {type: memory, topic: out}\n"
    )
    text += f"dead_letter: {{type: file, path: {file}, format: jsonl}}\n"
    desk = LetterDesk(loads(text), structlog.get_logger())
    (letter,) = desk.newest(20, time.monotonic() + 60)["letters"]
    assert letter["value"] == {"x": 1}
    assert "the service fans reads from no bus with topics" in letter["stays"]
    with pytest.raises(StreamerError) as refused:
        desk.replay(letter["id"], time.monotonic() + 60)
    assert str(refused.value) == letter["stays"]


def test_brokers_that_do_not_answer_are_told_of_in_time() -> None:
    text = (
        "source: {type: kafka, topics: a, bootstrap: 'localhost:1'}\npipeline: []\nsink: {type: memory, topic: out}\n"
    )
    desk = LetterDesk(loads(text + "dead_letter: {type: kafka, topic: dead}\n"), structlog.get_logger())
    with pytest.raises(ConnectorError) as unanswered:
        desk.newest(20, time.monotonic() + 5)
    assert unanswered.value.retriable
