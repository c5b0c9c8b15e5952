"""`Engine`: one service as the body of a Faust agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from faust import App, Stream
from faust.agents import current_agent
from faust.types import TP
from faust.types.agents import AgentTestWrapperT

from connectors.config import SinkConfig
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.message import messages_of_block
from connectors.sink import Sink
from pipelines.errors import StreamerError
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.agent.summary import Summary
from streamer.definition.refusals import check_code
from streamer.definition.service import Service
from streamer.delivery.deadletter import original
from streamer.faust.fitting import check_alone
from streamer.faust.logs import spare_records
from streamer.faust.loopsink import Sent
from streamer.faust.sink import FaustSink
from streamer.faust.source import FaustSource
from streamer.faust.yielding import NAME, YieldingConfig, YieldingSink
from streamer.testing import DeadLetter

GATHERED = (0.002, 0.01)
"""Seconds, least and most, for which events are left to gather after one has come: to be woken for each costs more than
to take it. Between these a fifth of the time that the first record of a batch waits for others."""

OnEnd = Callable[[Summary], object]
"""Gets the summary of a run that has ended."""


class Engine:
    """Runs a service on the events of a stream, in threads of its own, from the agent's start to its end.

    The event loop only moves events, messages and acknowledgements: decoding, the pipeline and encoding run in the
    service's threads, so that heartbeats and other agents go on meanwhile.
    """

    def __init__(self, app: App, service: Service, on_end: OnEnd | None = None) -> None:
        (config,) = service.sources
        assert isinstance(config, KafkaSourceConfig)
        self._app = app
        self._service = service
        self._config = config
        self._on_end = on_end

    async def run(self, stream: Stream[Any]) -> AsyncIterator[Any]:
        """The results, if the agent has sinks for them; otherwise it yields none, and runs as long as the agent.

        In the agent's own `test_context` it sends no messages, and yields results and dead letters (as
        `streamer.testing.DeadLetter`). Raises the errors of opening, and `StreamerError` when the service fails: the
        agent's supervisor then has to end the app.
        """
        faust_agent = current_agent()
        testing = isinstance(faust_agent, AgentTestWrapperT)
        if faust_agent is not None and not testing:
            check_alone(self._service, self._app, faust_agent)
            await self._app.maybe_start_producer()
        spare_records()
        source = FaustSource(
            self._app,
            name=self._config.label,
            headers=self._config.reads_headers,
            commit=None if testing else self._commit,
        )
        yielding = YieldingSink(made=_for_tests if testing else None)
        wanted = faust_agent is not None and bool(faust_agent.info()["sink"])
        agent = self._built(source, yielding, wanted=wanted, testing=testing)
        try:
            await asyncio.to_thread(agent.start)
        except asyncio.CancelledError:
            # The app ends while models are loaded: the service that then begins is to end at once.
            agent.stop()
            raise
        ended = asyncio.ensure_future(asyncio.to_thread(agent.join))
        reading = asyncio.ensure_future(_read(stream.channel, source, self._gathered))
        ended.add_done_callback(lambda _: yielding.end())
        reading.add_done_callback(lambda _: yielding.end())

        async def revoked(_app: Any, partitions: Collection[TP], **_: Any) -> None:
            mine = {tp for tp in partitions if tp.topic in self._config.topics}
            await source.revoke(mine, self._revoke_timeout)

        async def assigned(_app: Any, partitions: Collection[TP], **_: Any) -> None:
            source.assign({tp for tp in partitions if tp.topic in self._config.topics})

        async def stopping(_app: Any, **_: Any) -> None:
            agent.stop()
            await asyncio.wait([ended])

        signals: list[tuple[Any, Any]] = [
            (self._app.on_partitions_revoked, revoked),
            (self._app.on_partitions_assigned, assigned),
            (self._app.on_before_shutdown, stopping),
        ]
        for signal, handler in signals:
            signal.connect(handler)
        try:
            async for value in yielding.results():
                yield value
            if reading.done():
                reading.result()
            _raise_failure(await ended)
            # It was stopped with the app, which now ends its agents.
            await asyncio.Event().wait()
        finally:
            for signal, handler in signals:
                signal.disconnect(handler)
            reading.cancel()
            yielding.end()
            agent.stop()
            await asyncio.wait([ended, reading])
            if self._on_end is not None:
                self._on_end(ended.result())

    @property
    def _gathered(self) -> float:
        least, most = GATHERED
        return min(max(self._service.batch.wait / 5, least), most)

    @property
    def _revoke_timeout(self) -> float:
        return float(min(self._config.revoke_timeout, 0.2 * self._app.conf.broker_rebalance_timeout))

    async def _commit(self) -> None:
        topics = set(self._config.topics)
        if not await self._app.commit(topics):
            # A commit that had begun before was waited for instead.
            await self._app.commit(topics)

    def _built(self, source: FaustSource, yielding: YieldingSink, *, wanted: bool, testing: bool) -> Agent:
        service = self._service
        check_code(service)
        config = YieldingConfig(name=NAME, codec="objects")
        dead: Sink | None = None
        sinks: dict[str, Sink] = {}
        if testing:
            service = service.model_copy(update={"sink": [config]})
            dead = None if service.dead_letter is None else yielding.beside("dead_letter")
        else:
            sinks = {config.label: self._sink(config) for config in service.sinks}
            dead = None if service.dead_letter is None else self._sink(service.dead_letter)
            if wanted:
                service = service.model_copy(update={"sink": [*service.sinks, config]})
        sinks[NAME] = yielding
        return Agent(service, assembly=build(service, sources={source.name: source}, sinks=sinks, dead=dead))

    def _sink(self, config: SinkConfig) -> FaustSink:
        assert isinstance(config, KafkaSinkConfig)
        return FaustSink(self._app, config.topic, name=config.label)


async def _read(channel: Any, source: FaustSource, gathered: float) -> None:
    """Feed the source with the events of an agent's channel, gathered for so many seconds.

    Not by the agent's stream, which takes a turn of the loop for each event and acknowledges by itself.
    """
    queue = channel.queue
    while True:
        first = await channel.get()
        await asyncio.sleep(gathered)
        events = [first]
        while not queue.empty():
            events.append(queue.get_nowait())
        await source.feed(events)


def _raise_failure(summary: Summary) -> None:
    if summary.error is not None:
        raise StreamerError(f"the service {summary.service} failed: {summary.error}")


def _for_tests(sent: Sent) -> list[Any]:
    values: list[Any] = []
    for message in messages_of_block(sent.messages):
        origin = original(message.headers)
        values.append(message.value if origin is None else DeadLetter(message, origin))
    return values
