"""A service is not ready while it loads what its steps remember."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.memory import MemorySink, MemorySource, MemoryTopic
from connectors.message import Message
from pipelines import Data, Dedup
from pipelines.runners.state.item import Change
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.service import Service
from streamer.state.filestore import FileStore
from streamer.state.store import Scope

KEYS = 100_000


def test_a_service_is_not_ready_while_the_state_of_100000_keys_is_loaded(
    define: Callable[..., Service], tmp_path: Path, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.db"
    store = FileStore(path, "test")
    store.open()
    scope = Scope("memory", "0")
    saved = b"\x01" + struct.pack("<q", 1_700_000_000_000)
    store.save([(scope, "DEDUP", Change(None, f'"key-{number}"', 0, saved)) for number in range(KEYS)], {scope: 0})
    store.close()

    topic, out = MemoryTopic("in", 1), MemoryTopic("out", 1)
    service = define(Dedup(by="id", span=3600))
    assembly = build(
        service,
        sources={"memory": MemorySource(topic=topic)},
        sinks={"memory": MemorySink(topic=out)},
        dead=MemorySink(topic=MemoryTopic("dead", 1)),
    )
    assembly.state = FileStore(path, "test")
    agent = Agent(service, assembly=assembly)
    caplog.set_level("INFO")
    reasons: set[str | None] = set()

    def is_loaded() -> bool:
        reasons.add(agent.ready())
        return "the state is loaded" in caplog.text

    agent.start()
    try:
        eventually(is_loaded)
        assert agent.ready() is None
        assert any(reason and reason.startswith("the state of memory 0 is being loaded, ") for reason in reasons)
        assert f"of {KEYS} pieces are" in str(reasons)
        assert f"pieces={KEYS} seconds=" in caplog.text
        for key in ("key-0", f"key-{KEYS - 1}", "new"):
            topic.append(Message(Data({"id": key}).to_bytes(), timestamp=1_700_000_001_000), 1e18)
        eventually(lambda: [Data.from_bytes(each.value)["id"] for each in out.messages()] == ["new"])
    finally:
        agent.stop()
        agent.join(60)
