"""Steps that remember go on after a restart of their service, with the state that its file has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from connectors.memory import MemorySink, MemorySource, MemoryTopic
from connectors.message import Message
from pipelines import Data, Dedup, Function, Step
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.service import Service
from streamer.state.filestore import FileStore

Values: TypeAlias = Mapping[str, Any]
Restarted: TypeAlias = Callable[[Step, Sequence[Sequence[Values]]], list[dict[str, Any]]]


@pytest.fixture
def restarted(define: Callable[..., Service], tmp_path: Path, eventually: Any) -> Restarted:
    """`restarted(step, runs)` gives the results of services one after another, each with the records of a run."""

    def run(step: Step, runs: Sequence[Sequence[Values]]) -> list[dict[str, Any]]:
        given, results = MemoryTopic("in", 1), MemoryTopic("out", 1)
        service = define(step, batch={"max_records": 2})
        for records in runs:
            for values in records:
                given.append(Message(Data(values).to_bytes()))
            assembly = build(
                service,
                sources={"memory": MemorySource(topic=given)},
                sinks={"memory": MemorySink(topic=results)},
                dead=MemorySink(topic=MemoryTopic("dead", 1)),
            )
            assembly.state = FileStore(tmp_path / "test.state", "test")
            agent = Agent(service, assembly=assembly)
            agent.start()
            try:
                eventually(lambda: given.group("default").acknowledged == [given.end_of(0)])
            finally:
                agent.stop()
                assert agent.join(60).error is None
        return [dict(Data.from_bytes(message.value or b"")) for message in results.messages()]

    return run


def test_a_repetition_is_dropped_though_the_first_came_before_the_restart(restarted: Restarted) -> None:
    step = Dedup(by="seq", span=600)
    runs = [[{"seq": 1}, {"seq": 2}, {"seq": 1}], [{"seq": 2}, {"seq": 3}], [{"seq": 1}, {"seq": 3}, {"seq": 4}]]
    assert restarted(step, runs) == [{"seq": 1}, {"seq": 2}, {"seq": 3}, {"seq": 4}]


def counted(data: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """How many records of its device there were."""
    state["n"] = state.get("n", 0) + 1
    return {"device": data["device"], "n": state["n"]}


def test_a_function_goes_on_with_what_it_remembered(restarted: Restarted) -> None:
    a, b = {"device": "a"}, {"device": "b"}
    results = restarted(Function(counted, remember="device"), [[a, b, a], [a, b], [a]])
    assert results == [
        {"device": device, "n": n} for device, n in [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2), ("a", 4)]
    ]
