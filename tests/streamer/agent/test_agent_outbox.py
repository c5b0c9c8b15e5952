"""Services whose sinks have an outbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from waiting import until

import streamer
from connectors.memory import Message, memory_topic
from pipelines import Data
from pipelines.errors import DefinitionError
from streamer.agent.running import agent_of

SERVICE = """
name: {name}
source: {{type: memory, topic: {name}-in}}
pipeline: []
sink: {{type: memory, topic: {name}-out, outbox: {{path: out.outbox, max: {max}}}}}
delivery: {delivery}
"""


def service_of(folder: Path, name: str, *, max: str = "1GiB", delivery: str = "at_least_once") -> streamer.Service:
    file = folder / "service.yaml"
    file.write_text(SERVICE.format(name=name, max=max, delivery=delivery))
    return streamer.load(file)


def feed(name: str, start: int, stop: int) -> None:
    for number in range(start, stop):
        memory_topic(f"{name}-in").append(Message(Data({"n": number}).to_bytes(), b"key"))


def arrived(name: str) -> list[int]:
    return [Data.from_bytes(message.value)["n"] for message in memory_topic(f"{name}-out").messages()]


def test_a_service_goes_on_while_its_sink_is_away_and_its_next_run_sends_what_waited(tmp_path: Path) -> None:
    name = f"outbox-{tmp_path.name}"
    memory_topic(f"{name}-out").faults.cut("the ship is at sea")
    feed(name, 0, 500)
    with service_of(tmp_path, name) as service:
        agent = agent_of(service)
        assert agent is not None
        until(lambda: sum(agent.acknowledged.values()) == 500)
        assert agent.ready() is None, "nothing waits for the sink"
    assert arrived(name) == []
    assert (tmp_path / "out.outbox").exists(), "its path is relative to the service file"
    memory_topic(f"{name}-out").faults.mend()
    feed(name, 500, 600)
    memory_topic(f"{name}-in").end()
    summary = service_of(tmp_path, name).run()
    assert summary.error is None
    assert arrived(name) == list(range(600))


def test_a_full_outbox_holds_back_the_source_and_ready_says_so(tmp_path: Path) -> None:
    name = f"outbox-{tmp_path.name}"
    memory_topic(f"{name}-out").faults.cut("the ship is at sea")
    feed(name, 0, 500)
    with service_of(tmp_path, name, max="100") as service:
        agent = agent_of(service)
        assert agent is not None
        until(lambda: "out.outbox is full" in str(agent.ready()))
        assert "at sea" in str(agent.ready())
        memory_topic(f"{name}-out").faults.mend()
        until(lambda: sum(agent.acknowledged.values()) == 500)
        until(lambda: agent.ready() is None)
    assert arrived(name) == list(range(500))


def test_exactly_once_refuses_an_outbox(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r'outbox of the sink "memory".*at_least_once'):
        service_of(tmp_path, "once", delivery="exactly_once")


@pytest.mark.parametrize(
    ("max", "why"),
    [("0", "greater than or equal to 1"), ("0B", "no room"), ("many", "not a size"), ("true", "integer")],
)
def test_an_outbox_of_no_size_is_told(tmp_path: Path, max: str, why: str) -> None:
    with pytest.raises(DefinitionError, match=why):
        service_of(tmp_path, "wrong", max=max)


def test_check_tells_what_is_in_the_outbox(tmp_path: Path, cli: Any) -> None:
    name = f"outbox-{tmp_path.name}"
    memory_topic(f"{name}-out").faults.refuse = lambda message: "poison" if message.key == b"bad" else None
    feed(name, 0, 5)
    memory_topic(f"{name}-in").append(Message(Data({"n": 5}).to_bytes(), b"bad"))
    memory_topic(f"{name}-in").end()
    assert service_of(tmp_path, name).run().error is None
    assert arrived(name) == list(range(5))
    ended = cli("check", tmp_path / "service.yaml", "--json")
    assert ended.code == 0, ended.err
    (report,) = json.loads(ended.out)["services"]
    text = next(one["text"] for one in report["findings"] if one["part"] == "sink memory")
    assert "out.outbox: nothing waits; 1 were refused, the last one: memory: poison" in text
