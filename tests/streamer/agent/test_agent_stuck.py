"""A source that gives nothing though it has records makes `/live` fail, and nothing else does."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from connectors.memory import MemorySource
from connectors.records import Records
from connectors.source import SourceDown

LIMITS = {"stuck": "500ms"}


class Silent(MemorySource):
    """Gives nothing from a partition, or does not return, while it is told so."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.silent = threading.Event()
        self.gave_nothing = threading.Event()
        self.hanging = threading.Event()
        self.polled = threading.Event()
        self.down: str | None = None
        self._told: str | None = None

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        self.polled.set()
        while self.hanging.is_set():
            threading.Event().wait(0.01)
        if self.down != self._told:
            self._told = self.down
            self._events.append(SourceDown(self.name, self.down is not None, self.down or ""))
        if self.silent.is_set():
            self.gave_nothing.set()
            threading.Event().wait(timeout)
            return Records.empty(self.name)
        return super().poll(max_records, max_bytes, timeout)


def test_a_partition_that_gives_nothing_though_it_has_records_is_not_alive_until_it_does(
    define: Any, serve: Any, eventually: Any
) -> None:
    source = Silent(name="memory")
    serving = serve(define(limits=LIMITS), {"memory": source})
    serving.feed(1)
    eventually(lambda: serving.results() == [2])
    source.silent.set()
    assert source.gave_nothing.wait(30)
    serving.feed(2)
    eventually(lambda: serving.agent.live() is not None)
    assert "source memory: memory[0] has records to deliver, and none has come for" in serving.agent.live()
    source.silent.clear()
    eventually(lambda: serving.agent.live() is None)
    eventually(lambda: serving.results() == [2, 4])


def test_one_partition_of_two_that_gives_nothing_is_found_while_the_other_one_does(
    define: Any, serve: Any, eventually: Any
) -> None:
    class OneLags(MemorySource):
        def lag(self) -> Mapping[tuple[str, int], int]:
            return {**super().lag(), ("memory", 1): 7}

    source = OneLags(name="memory")
    serving = serve(define(limits=LIMITS), {"memory": source})
    number = 0

    def stalled() -> bool:
        nonlocal number
        number += 1
        serving.feed(number)
        return serving.agent.live() is not None

    eventually(stalled)
    assert "memory[1] has records" in serving.agent.live()


def test_a_source_whose_thread_hangs_is_not_alive(define: Any, serve: Any, eventually: Any) -> None:
    source = Silent(name="memory")
    serving = serve(define(limits=LIMITS), {"memory": source})
    source.hanging.set()
    eventually(lambda: serving.agent.live() is not None)
    assert "source memory: its thread has made no progress for" in serving.agent.live()
    source.hanging.clear()
    eventually(lambda: serving.agent.live() is None)


def test_a_service_is_not_ready_before_its_source_has_said_how_it_is(define: Any, serve: Any, eventually: Any) -> None:
    source = Silent(name="memory")
    source.hanging.set()
    source.down = "the peer is away"
    serving = serve(define(), {"memory": source})
    assert source.polled.wait(30)
    assert serving.agent.ready() == "starting"
    source.hanging.clear()
    eventually(lambda: serving.agent.ready() == "source memory: the peer is away")


@pytest.mark.slow
def test_a_source_that_has_nothing_or_lost_its_peer_is_alive(define: Any, serve: Any, eventually: Any) -> None:
    source = Silent(name="memory")
    serving = serve(define(limits={"stuck": "1s"}), {"memory": source})
    pause = threading.Event()
    pause.wait(2)
    assert serving.agent.live() is None, "there was nothing to deliver"
    source.down = "the peer is away"
    eventually(lambda: serving.agent.ready() is not None)
    source.silent.set()
    assert source.gave_nothing.wait(30)
    serving.feed(1)
    pause.wait(2.5)
    assert serving.agent.live() is None, "a new process could not reach the peer either"
    source.down = None
    source.silent.clear()
    eventually(lambda: serving.results() == [2])
    assert serving.agent.live() is None
