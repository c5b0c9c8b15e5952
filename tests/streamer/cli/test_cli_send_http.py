"""`streamer send --http`: records of files as requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pageblocks import ROOT

from connectors.http.endpoint.source import HttpSource
from streamer.agent.agent import Agent
from streamer.definition.loading import loads

SERVICE = """
name: digits
source: {type: http, listen: "127.0.0.1:0", codec: json, token: open sesame}
pipeline: examples/digits/digits.pipeline.yaml
sink: {type: http, codec: json, keys: [label]}
"""
IMAGE = [[0] * 8] * 8


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a service with a token."""
    agent = Agent(loads(SERVICE, base=ROOT))
    agent.start()
    deadline = time.monotonic() + 30
    while (trouble := agent.ready()) is not None:
        assert time.monotonic() < deadline, trouble
        time.sleep(0.01)
    (source,) = agent.sources
    assert isinstance(source, HttpSource)
    yield f"http://127.0.0.1:{source.address[1]}/v1/digits"
    agent.stop()
    agent.join(30)


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "token.txt").write_text("open sesame\n")
    file = tmp_path / "images.jsonl"
    file.write_text(
        "".join(json.dumps(record) + "\n" for record in ({"image": IMAGE}, {"image": [1]}, {"image": IMAGE}))
    )
    return file


def test_answers_come_in_the_order_of_the_records_and_errors_in_their_places(cli: Any, url: str, lines: Path) -> None:
    ended = cli("send", "--http", url, lines, "--token-file", lines.parent / "token.txt", "--repeat", "2", "--json")
    *answers, summary = map(json.loads, ended.out.splitlines())
    assert ended.code == 1
    assert [answer["record"] for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert [list(answer) for answer in answers[:3]] == [
        ["record", "answer"],
        ["record", "error", "status"],
        ["record", "answer"],
    ]
    assert answers[0]["answer"].keys() == {"label"}
    assert (answers[1]["status"], summary["sent"], summary["failed"]) == (400, 6, 2)


def test_for_people_answers_are_lines_and_errors_are_told_with_their_record(cli: Any, url: str, lines: Path) -> None:
    ended = cli("send", "--http", url, lines, "--token-file", lines.parent / "token.txt")
    assert [json.loads(line).keys() for line in ended.out.splitlines()] == [{"label"}, {"label"}]
    assert "record 2: 400: " in ended.err
    assert "3 requests to" in ended.err
    refused = cli("send", "--http", url, lines)
    assert refused.code == 1
    assert refused.err.count(": 401: ") == 3


def test_a_raw_file_is_a_body_as_it_is(cli: Any, url: str, lines: Path) -> None:
    body = lines.parent / "one.json"
    body.write_text(json.dumps({"image": IMAGE}))
    ended = cli("send", "--http", url, body, "--format", "raw", "--token-file", lines.parent / "token.txt")
    assert (ended.code, json.loads(ended.out).keys()) == (0, {"label"})


def test_a_url_at_which_nothing_answers_is_told(cli: Any, lines: Path) -> None:
    for path in ("v1/digits", "v2/models/digits"):
        ended = cli("send", "--http", f"http://127.0.0.1:1/{path}", lines)
        assert ended.code == 1
        assert "127.0.0.1:1" in ended.err


def test_a_service_file_says_where_its_service_is_asked_with_its_token(cli: Any, url: str, lines: Path) -> None:
    file = lines.parent / "digits.yaml"
    port = url.partition(":")[2].partition("/v1")[0].rpartition(":")[2]
    pipeline = json.dumps(str(ROOT / "examples" / "digits" / "digits.pipeline.yaml"))
    text = SERVICE.replace("127.0.0.1:0", f"127.0.0.1:{port}").replace("examples/digits/digits.pipeline.yaml", pipeline)
    file.write_text(text)
    ended = cli("send", file, lines)
    assert ended.code == 1, "one of the records is wrong"
    assert [json.loads(line).keys() for line in ended.out.splitlines()] == [{"label"}, {"label"}]
    file.write_text(text.replace(f":{port}", ":0"))
    ended = cli("send", file, lines)
    assert (ended.code, "--http URL says which" in ended.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--http", "http://h:1", "--key", "a"), "--key is for topics"),
        (("--token-file", "t"), "name the files to send"),
    ],
)
def test_options_of_the_other_way_are_refused(cli: Any, lines: Path, options: tuple[str, ...], text: str) -> None:
    ended = cli("send", lines, *options)
    assert ended.code == 2
    assert text in " ".join(ended.err.split())
