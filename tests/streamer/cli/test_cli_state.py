"""`streamer state`: what steps remember is shown and forgotten; `check` and the start say where state has to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from waiting import until

import streamer
from connectors.memory import Message, forget_memory_topic, memory_topic
from pipelines import Data

SERVICE = """
name: windows
source: {{type: memory, topic: {name}}}
pipeline:
  - {{"@type": WINDOW, by: device, size: 4, values: x, outputName: y}}
sink: {{type: memory, topic: {name}-out}}
"""


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """A service file of windows, whose state has two samples of pump-1 and one of pump-2."""
    file = tmp_path / "windows.yaml"
    name = tmp_path.name
    file.write_text(SERVICE.format(name=name) + "state: {path: windows.state}\n")
    feed(file, ("pump-1", 1), ("pump-2", 5), ("pump-1", 2))
    with streamer.load(file) as running:
        wait_for(file, 3)
        assert running is not None
    return file


def feed(file: Path, *samples: tuple[str, int]) -> None:
    for device, x in samples:
        memory_topic(file.parent.name).append(Message(Data({"device": device, "x": x}).to_bytes()))


def wait_for(file: Path, position: int) -> None:
    until(lambda: memory_topic(file.parent.name).group("default").acknowledged == [position])


def test_keys_and_positions_are_shown(cli: Any, service: Path) -> None:
    ended = cli("state", "show", service.parent / "windows.state")
    assert ended.code == 0, ended.err
    assert "service windows on" in ended.out
    assert "memory 0 up to position 3" in ended.out
    assert "WINDOW: 2 keys" in ended.out
    assert '"pump-1"' in ended.out
    (report,) = [
        json.loads(line) for line in cli("state", "show", service.parent / "windows.state", "--json").out.splitlines()
    ]
    assert [each["key"] for each in report["keys"]] == ['"pump-1"', '"pump-2"']


def test_a_window_goes_on_after_a_restart_and_a_forgotten_key_begins_anew(cli: Any, service: Path) -> None:
    forgotten = cli("state", "forget", service.parent / "windows.state", "--key", "pump-2")
    assert (forgotten.code, "forgotten is the state of 1 key\n" in forgotten.out) == (0, True), forgotten.err
    feed(service, *(("pump-1", x) for x in (3, 4)), *(("pump-2", x) for x in (6, 7, 8, 9)))
    with streamer.load(service):
        wait_for(service, 9)
    windows = [
        Data.from_bytes(message.value or b"") for message in memory_topic(f"{service.parent.name}-out").messages()
    ]
    assert [(data["device"], data["y"].ravel().tolist()) for data in windows] == [
        ("pump-1", [1, 2, 3, 4]),
        ("pump-2", [6, 7, 8, 9]),
    ]


def test_an_unknown_key_or_another_file_is_an_error(cli: Any, service: Path) -> None:
    ended = cli("state", "forget", service.parent / "windows.state", "--key", "pump-9")
    assert (ended.code, 'there is no key "pump-9"; did you mean' in ended.err) == (1, True), ended.err
    ended = cli("state", "show", service)
    assert ended.code == 1
    assert "not a state, or damaged" in ended.err


def test_check_says_which_line_is_missing(cli: Any, tmp_path: Path) -> None:
    file = tmp_path / "windows.yaml"
    file.write_text(SERVICE.format(name=tmp_path.name))
    ended = cli("check", file)
    assert ended.code != 0
    said = ended.out + ended.err
    assert "step 0:WINDOW remembers earlier records, and nothing says where that is kept" in said
    assert "state: {path: state.db}" in said
    file.write_text(SERVICE.format(name=tmp_path.name) + "state: memory\n")
    assert cli("check", file).code == 0
    forget_memory_topic(tmp_path.name)


def test_check_refuses_a_step_that_remembers_where_clients_wait_for_answers(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "asked.yaml").write_text(
        "name: asked\n"
        "source: {type: http, listen: '127.0.0.1:0', codec: json}\n"
        'pipeline: [{"@type": DEDUP, by: device, for: 10s}]\n'
        "state: memory\n"
        "sink: {type: http, codec: json}\n"
    )
    ended = cli("check", tmp_path / "asked.yaml")
    assert ended.code != 0
    assert 'sink "http" answers each request' in (ended.out + ended.err).replace("\n", " ")
