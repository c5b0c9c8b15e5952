"""The stream of states that a dashboard reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from streamer.observe import events
from streamer.observe.events import MOST, Events


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "INTERVAL", 0.02)


def test_a_state_is_made_once_for_all_who_read_and_no_more_than_so_many_may() -> None:
    made: list[int] = []

    async def report() -> Mapping[str, Any]:
        made.append(len(made))
        return {"digits": {"number": len(made)}}

    async def read() -> None:
        stream = Events(report)
        answers = [stream.answer() for _ in range(MOST)]
        readers = [answer.stream() for answer in answers if answer.stream is not None]
        assert len(readers) == MOST
        first = [await anext(reader) for reader in readers]
        assert len(made) <= 3, "not once for each"
        assert json.loads(first[0].removeprefix(b"data: "))["services"]["digits"]["number"] == 1
        refused = stream.answer()
        assert (refused.status, refused.stream) == (503, None)
        await readers[0].aclose()
        assert stream.answer().status == 200
        assert await anext(readers[1]) != first[1]
        for reader in readers:
            await reader.aclose()

    asyncio.run(read())
