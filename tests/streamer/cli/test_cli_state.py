"""`streamer state`: what steps remember is shown and forgotten; `check` and the start say where state has to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafkatopics import write
from waiting import until

import streamer
from connectors.memory import Message, forget_memory_topic, memory_topic
from pipelines import Data
from streamer.devbroker import Broker

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
    (service.parent / "other.state").write_text("name: other")
    ended = cli("state", "show", service.parent / "other.state")
    assert ended.code == 1
    assert "not a state, or damaged" in ended.err


def test_a_service_file_says_where_its_state_is(cli: Any, service: Path) -> None:
    ended = cli("state", "show", service, "--key", "pump-2")
    assert f"{service.parent / 'windows.state'}: service windows on" in ended.out
    assert '"pump-1"' not in ended.out
    assert cli("state", "forget", service).code == 0
    assert "WINDOW" not in cli("state", "show", service).out
    text = service.read_text()
    service.write_text(text.replace("{path: windows.state}", "memory"))
    ended = cli("state", "show", service)
    assert (ended.code, "it saves no state" in ended.err) == (2, True), ended.err
    both = f"{text}---{text.replace('name: windows', 'name: others').replace('windows.state', 'others.state')}"
    service.write_text(both)
    ended = cli("state", "forget", service)
    assert ended.code == 2
    assert "has 2 services with state" in " ".join(ended.err.split())


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("assignor", ["range", "consumer"])
def test_state_in_a_topic_is_shown_and_forgotten_once_no_member_is_left(
    cli: Any, kafka: Broker, topics: Any, topic_name: Any, tmp_path: Path, assignor: str
) -> None:
    first, second, state = topics(1, "a-pumps"), topics(2, "b-fans"), topic_name("state")
    file = tmp_path / "windows.yaml"
    out = tmp_path.name
    file.write_text(
        f"""
name: windows
source:
  {{type: kafka, bootstrap: "{kafka.bootstrap}", topics: [{first}, {second}], group: {first}, assignor: {assignor}}}
pipeline:
  - {{"@type": WINDOW, by: device, size: 4, values: x, outputName: y}}
sink: {{type: memory, topic: {out}}}
state: {{topic: {state}, interval: 100ms}}
"""
    )

    def put(topic: str, device: str, *samples: int) -> None:
        values = [Data({"device": device, "x": x}).to_bytes() for x in samples]
        write(kafka.bootstrap, topic, values, key=device)

    def report() -> Any:
        ended = cli("state", "show", file, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    assert "does not exist: nothing was saved in it yet" in cli("state", "show", file).err
    put(first, "pump-1", 1, 2)
    put(first, "pump-2", 5)
    put(second, "fan-1", 7)
    with streamer.load(file):
        until(lambda: len(report()["keys"]) == 3, seconds=60)
        ended = cli("state", "forget", file, "--key", "pump-2")
        assert ended.code == 1
        assert f'topic "{state}" is in use by the group {first}: ' in ended.err
    seen = report()
    assert [(each["partition"], each["position"], each["keys"]) for each in seen["positions"]] == [
        (f"{first}-0", 3, 2),
        (f"{second}-0", 1, 1),
        (f"{second}-1", None, 0),
    ]
    ended = cli("state", "forget", file, "--key", "pump-2")
    assert (ended.code, ended.out) == (0, f"topic {state}: forgotten is the state of 1 key\n"), ended.err
    after = report()
    assert [each["key"] for each in after["keys"]] == ['"pump-1"', '"fan-1"']
    assert [each["position"] for each in after["positions"]] == [3, 1, None]
    put(first, "pump-2", 6, 7, 8, 9)
    put(first, "pump-1", 3, 4)
    with streamer.load(file):
        until(lambda: len(memory_topic(out).messages()) == 2, seconds=60)
    windows = [Data.from_bytes(message.value or b"") for message in memory_topic(out).messages()]
    assert {data["device"]: data["y"].ravel().tolist() for data in windows} == {
        "pump-1": [1, 2, 3, 4],
        "pump-2": [6, 7, 8, 9],
    }
    ended = cli("state", "show", file)
    assert f"kafka {first}-0 up to position 9: 2 keys, " in ended.out
    assert "WINDOW: 3 keys" in ended.out
    forget_memory_topic(out)


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
