"""`streamer outbox`: messages that a sink refused are listed and sent again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import streamer
from connectors.memory import Message, memory_topic

SERVICE = """
name: boxed
source: {{type: memory, topic: {name}, codec: raw}}
pipeline: []
sink: {{type: memory, topic: {name}-out, codec: raw, outbox: {{path: box}}}}
"""


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A service file whose sink has refused two of four messages."""
    file = tmp_path / "boxed.yaml"
    name = tmp_path.name
    file.write_text(SERVICE.format(name=name))
    out = memory_topic(f"{name}-out")
    out.faults.refuse = lambda message: "too green" if (message.value or b"").startswith(b"green") else None
    memory_topic(name).extend([Message(value) for value in (b"red", b"green 1", b"blue", b"green\x00")])
    memory_topic(name).end()
    streamer.load(file).run()
    out.faults.refuse = None
    return file


def test_refused_messages_are_listed_with_their_reason(cli: Any, service: Path) -> None:
    for named in (service, service.parent / "box"):
        ended = cli("outbox", named)
        assert ended.code == 0, ended.err
        assert "nothing waits; 2 were refused" in ended.out
        assert "too green" in ended.out
        assert "green 1" in ended.out
        assert "67 72 65 65 6e 00" in ended.out
    (report,) = [json.loads(line) for line in cli("outbox", service, "--json").out.splitlines()]
    assert [(one["number"], one["payload"]) for one in report["refused"]] == [(1, "Z3JlZW4gMQ=="), (3, "Z3JlZW4A")]


def test_refused_messages_are_sent_again_at_the_next_start_after_resend(cli: Any, service: Path) -> None:
    box, out = service.parent / "box", memory_topic(f"{service.parent.name}-out")
    assert "1 refused messages are forgotten" in cli("outbox", box, "--forget", "--number", "1").out
    assert "1 refused messages are sent again" in cli("outbox", service, "--resend").out
    with streamer.load(service):
        deadline = time.monotonic() + 20
        while len(out) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert [one.value for one in out.messages()] == [b"red", b"blue", b"green\x00"]
    assert "nothing waits" in cli("outbox", service).out


def test_wrong_use_is_told(cli: Any, service: Path, tmp_path: Path) -> None:
    assert cli("outbox", service, "--resend", "--forget").code == 2
    ended = cli("outbox", tmp_path / "nothing-here", "--resend")
    assert ended.code != 0
    assert "no such file" in ended.err
    ended = cli("outbox", service, "--resend", "-n", "77")
    assert "77" in ended.err
    bare = tmp_path / "bare.yaml"
    bare.write_text("source: {type: memory, topic: a}\npipeline: []\nsink: {type: memory, topic: b}\n")
    assert "none of its sinks has an outbox" in cli("outbox", bare).err


@pytest.mark.parametrize(
    "sink",
    [
        "type: view",
        "type: video, path: gate.mp4",
        "type: clip, directory: clips",
        "type: memory, topic: b, codec: objects",
    ],
)
def test_an_outbox_in_front_of_a_sink_of_pictures_is_refused_with_its_line(cli: Any, tmp_path: Path, sink: str) -> None:
    file = tmp_path / "yard.yaml"
    file.write_text(
        "source: {type: camera, cameras: {gate: film.mp4}}\npipeline: []\nsink:\n"
        "  - {type: file, path: boxes.jsonl, drop: [image], outbox: {path: boxes.outbox}}\n"
        f"  - {{{sink},\n     outbox: {{path: results.outbox}}}}\n"
    )
    ended = cli("check", file)
    assert ended.code != 0
    said = " ".join((ended.out + ended.err).split())
    assert "yard.yaml:6" in said, said
    assert "an outbox keeps bytes" in said
    assert "remove the outbox" in said
