"""Dead letters that their sink does not take as they are: shorter ones are written, and the service goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.file.imagesink import ImageSink
from connectors.file.sink import FileSink
from connectors.memory import MemorySink
from connectors.message import Message
from pipelines import Data
from pipelines.errors import ConnectorError
from streamer.delivery.deadletter import Original, original

LARGE = 5000
OWN = (("trace", b"\x00\xff"), ("streamer-left-out", b"forged"))


def fail(data: Data) -> Data:
    raise ValueError("never " * 1000)


def size(message: Message) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in message.headers)
    return len(message.value or b"") + len(message.key or b"") + headers


def too_large(message: Message) -> str | None:
    return "too large" if size(message) > LARGE else None


def refusing(refuse: Callable[[Message], str | None] | None = None) -> MemorySink:
    dead = MemorySink(name="dead_letter")
    dead.topic.faults.refuse = refuse
    return dead


class FindsOutLate(MemorySink):
    """Takes everything, and says at the barrier what was too large, as a broker does."""

    def barrier(self, deadline: float) -> Any:
        found = super().barrier(deadline)
        return {row: ConnectorError("too large after all") for row in found}


def finding_out_late() -> MemorySink:
    dead = FindsOutLate(name="dead_letter")
    dead.topic.faults.lose = lambda message: size(message) > LARGE
    return dead


def told(message: Message) -> Original:
    found = original(message.headers)
    assert found is not None
    return found


@pytest.fixture
def buried(define: Any, serve: Any, eventually: Any) -> Callable[..., Any]:
    """`buried(dead, *messages)`: what is in the sink of dead letters once these are acknowledged."""

    def run(dead: Any, *messages: Message, **settings: Any) -> Any:
        serving = serve(define(fail, errors={"stop_ratio": 1}, **settings), dead=dead)
        serving.source.feed(*messages)
        eventually(lambda: serving.source.acknowledged == [len(messages)] or serving.agent.summary is not None)
        assert serving.agent.summary is None, serving.agent.summary
        assert serving.stop().dead == len(messages)
        return dead

    return run


@pytest.mark.parametrize("dead", [lambda: refusing(too_large), finding_out_late], ids=["at once", "at the barrier"])
def test_a_letter_that_is_too_large_is_written_without_its_payload_and_says_so(buried: Any, dead: Any) -> None:
    payload = b"\xff" * LARGE
    letters = buried(dead(), Message(payload, b"k", OWN), Message(b"\xff small", b"k", OWN)).messages
    large, small = sorted(letters, key=lambda one: told(one).offset)
    found = told(large)
    assert (found.topic, found.partition, found.offset, found.step) == ("memory", 0, 0, "decode")
    assert (found.left_out, found.size, found.sha256) == ("payload", LARGE, hashlib.sha256(payload).hexdigest())
    assert "too large" in found.refusal
    assert (large.key, found.headers) == (b"k", list(OWN))
    # A sink without headers keeps what they say.
    assert json.loads(large.value) == {
        name: (value or b"").decode() for name, value in large.headers if (name, value) not in OWN
    }
    assert (small.value, told(small).left_out, told(small).headers) == (b"\xff small", "", list(OWN))


@pytest.mark.parametrize("dead", [lambda: refusing(too_large), finding_out_late], ids=["at once", "at the barrier"])
@pytest.mark.parametrize(
    "message",
    [
        Message(b"\xff", b"k", (("huge", b"h" * LARGE),)),
        Message(b"\xff", b"k" * LARGE),
        Message(b"\xff" * LARGE, b"k" * LARGE, (("h" * LARGE, None),)),
    ],
    ids=["headers", "key", "everything"],
)
def test_a_letter_whose_key_or_headers_are_too_large_is_written_without_them(
    buried: Any, dead: Any, message: Message
) -> None:
    (letter,) = buried(dead(), message).messages
    found = told(letter)
    assert found.left_out == "payload, key, headers"
    assert (found.topic, found.partition, found.offset) == ("memory", 0, 0)
    assert (found.size, found.sha256) == (len(message.value), hashlib.sha256(message.value).hexdigest())
    assert found.headers == []
    assert letter.key == b"memory-0-0"
    assert size(letter) < 2500


def test_one_letter_in_a_batch_that_is_too_large_leaves_the_others_as_they_are(buried: Any) -> None:
    sent = [Message(b"\xff" * (LARGE if number in (0, 7, 19) else 10), b"%d" % number) for number in range(20)]
    letters = buried(refusing(too_large), *sent).messages
    assert sorted(told(one).offset for one in letters) == list(range(20))
    assert {told(one).offset for one in letters if told(one).left_out} == {0, 7, 19}
    assert {one.key: one.value for one in letters if not told(one).left_out} == {
        one.key: one.value for one in sent if len(one.value) == 10
    }


def test_a_dead_letter_that_is_lost_is_sent_again_where_its_record_does_not_come_again(buried: Any) -> None:
    dead = MemorySink(name="dead_letter")
    lost: list[Message] = []

    def lose(message: Message) -> bool:
        lost.append(message)
        return len(lost) == 1

    dead.topic.faults.lose = lose
    letters = buried(dead, Message(b"\xff"), delivery="at_most_once").messages
    assert [(one.value, told(one).left_out) for one in letters] == [(b"\xff", "")]


@pytest.mark.parametrize("format", ["protodata", "jsonl", "lines"])
def test_a_dead_letter_that_its_file_format_cannot_hold_does_not_stop_the_service(
    buried: Any, tmp_path: Path, format: str
) -> None:
    path = tmp_path / "dead"
    source = {"type": "memory", "topic": "in", "tombstones": "dead_letter"}
    sent = [b"\xff\nline", None, b"\xff plain", b" ", b"\xff" * LARGE]
    buried(FileSink(path, format, max_record=4500), *(Message(value) for value in sent), source=source)
    content = path.read_bytes()
    assert b"\xff plain" in content
    # An empty payload or a tombstone has nothing to be remembered by.
    assert hashlib.sha256(b"\xff" * LARGE).hexdigest().encode() in content
    assert (b"\xff\nline" in content) == (format == "protodata")
    if format == "jsonl":
        lines = [json.loads(line) for line in content.splitlines() if line != b"\xff plain"]
        assert [line["streamer-offset"] for line in lines] == ["0", "1", "3", "4"]
        assert [line["streamer-size"] for line in lines] == ["6", "-1", "1", str(LARGE)]


def test_a_folder_of_images_takes_the_letter_of_a_record_that_names_no_file(buried: Any, tmp_path: Path) -> None:
    buried(
        ImageSink(tmp_path), Message(b"\xff", b"picture.png"), Message(b"\xff no name"), Message(b"\xff", b"k" * 999)
    )
    assert (tmp_path / "picture.png").read_bytes() == b"\xff"
    for offset, payload in ((1, b"\xff no name"), (2, b"\xff")):
        found = json.loads((tmp_path / f"memory-0-{offset}").read_bytes())
        assert found["streamer-sha256"] == hashlib.sha256(payload).hexdigest()
        assert found["streamer-left-out"] == "payload, key, headers"
