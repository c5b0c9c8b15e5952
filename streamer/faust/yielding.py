"""Results that a Faust agent yields: to its sinks (other agents, topics, functions), and to tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Literal

from connectors.config import SinkConfig
from pipelines.errors import ConnectorError
from streamer.faust.loopsink import LoopSink, Sent

NAME = "agent"
"""Name of the sink."""


class YieldingConfig(SinkConfig):
    """The agent itself as a sink of the service in it."""

    carries: ClassVar[frozenset[Literal["bytes", "objects"]]] = frozenset({"bytes", "objects"})

    type: Literal["agent"] = "agent"
    """The type of connector."""

    def build(self) -> YieldingSink:
        """The sink, not yet open. In the thread of the event loop."""
        return YieldingSink(self.label)


class YieldingSink(LoopSink):
    """The agent yields its messages; one is confirmed when the agent's sinks have taken it.

    `made` turns a block into the values to yield; by default they are the payloads.
    """

    def __init__(self, name: str = NAME, made: Callable[[Sent], list[Any]] | None = None) -> None:
        super().__init__(name)
        self._made = made or (lambda sent: list(sent.messages.values))
        self._due: asyncio.Queue[tuple[YieldingSink, Sent] | None] = asyncio.Queue()

    def beside(self, name: str) -> YieldingSink:
        """Another sink, whose messages are yielded among those of this one."""
        other = YieldingSink(name, self._made)
        other._due = self._due
        return other

    async def results(self) -> AsyncIterator[Any]:
        """The values to yield, until `end`."""
        while (due := await self._due.get()) is not None:
            sink, sent = due
            for value in self._made(sent):
                yield value
            sink.finish(sent)

    def end(self) -> None:
        """Stop yielding: messages that were sent and not yielded are not confirmed. In the loop's thread."""
        self.fail(ConnectorError(f"sink {self.name}: the agent has ended"))
        self._due.put_nowait(None)

    async def _deliver(self, blocks: asyncio.Queue[Sent]) -> None:
        while True:
            self._due.put_nowait((self, await blocks.get()))
