"""`Stages`: a service that is given its records and gives back its messages, in the thread of its caller."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from connectors.kafka.config import KafkaSinkConfig
from connectors.records import Lane, Messages, Records
from pipelines.errors import DefinitionError, StreamerError
from pipelines.executors.keep import kept
from streamer.agent.assembly import build
from streamer.agent.opening import block_decoder, opened_delivery
from streamer.agent.runs.batchrun import BatchRun
from streamer.agent.runs.pipelinecalls import PipelineCalls
from streamer.batching.batcher import Closed
from streamer.definition.refusals import place_of
from streamer.definition.service import Service
from streamer.delivery.ledger import Ledger
from streamer.observe.logs import logger
from streamer.observe.metrics import OUTCOMES, ServiceMeters
from streamer.spark.ends import GivenSource, KeepingSink, Spark
from streamer.spark.fitting import remembers

Addressed = tuple[list[str], Messages]
"""Messages, and the topic of each."""


class Stages:
    """The stages of a service between its source and its sinks: decode, run, keep, route, encode, and dead letters.

    Opening it loads the models; `counts` and `step_seconds` are since then. Owned by one thread.
    """

    def __init__(self, service: Service) -> None:
        """Raises the errors of opening, and `DefinitionError` for a step that remembers earlier records."""
        (source,) = service.sources
        self._service = service
        self.source = source.label
        """The name of its source."""
        log = logger(service=service.name)
        self._sinks = [_sink(config) for config in service.sinks]
        letters = None if service.dead_letter is None else _sink(service.dead_letter)
        self._assembly = build(
            service,
            sources={source.label: GivenSource(source.label)},
            sinks={sink.name: sink for sink in self._sinks},
            dead=[] if letters is None else [letters],
        )
        if letters is not None:
            self._sinks.append(letters)
        meters = ServiceMeters(service.name, [source.label])
        self._meters = meters.run
        self._assembly.open()
        try:
            executor = self._assembly.executor
            if executor.stateful:
                step = next(iter([*executor.saving_steps, *executor.unsaved_steps]))
                raise DefinitionError(f"{place_of(service.written, 'pipeline', step)}{remembers(step)}")
            executor.observer = meters.run
            self._batch = service.batch.for_sources(perishable=False, in_flight=service.limits.in_flight)
            self._delivery = opened_delivery(self._assembly, Ledger(), Spark(), meters.run, log)
            self._assembly.serve(lambda name: None, lambda: None)
            self._decoder = block_decoder(self._assembly, 0, self._batch, meters, log)
            self._calls = PipelineCalls(executor, False, log)
            # The size of a call, unless the runners cut batches themselves.
            self._any_size = executor.limit(self._batch.max_records)
        except BaseException:
            self._assembly.close()
            raise

    def run(self, records: Records) -> Iterator[Addressed]:
        """The messages for these records, batch by batch.

        Letters of records that failed may be held back, while every record fails, until `finish`. Raises
        `ServiceStopped` if failures mean that the service must not go on.
        """
        for part in self._cut(records):
            for decoded in self._decoder.decoded(Closed(part, "records", 0.0), _waited) or ():
                self._delivery.enter(decoded)
                run = BatchRun.of([decoded])
                size = max(run.batch.size, 1) if self._any_size else self._batch.max_records
                self._calls.run(run, run.batch, size, lambda: True)
                self._meters.stage("run", run.began, run.seconds, run.batch.size)
                if self._service.keep:
                    run.result.batch = kept(run.result.batch, decoded.batch, self._service.keep)
                self._delivery.deliver(decoded, run.result)
                self._delivery.collect()
                yield from self._collected()

    def finish(self, lanes: set[Lane]) -> Iterator[Addressed]:
        """The messages that were held back; then every record of these lanes is finished, and they end.

        Raises `StreamerError` if a record is not.
        """
        self._delivery.release(now=True)
        self._delivery.wait_for_confirmations(time.monotonic())
        yield from self._collected()
        if self._delivery.ledger.has_open_rows:
            raise StreamerError(
                f"service {self._service.name}: {self._delivery.ledger.open_rows} records are not finished"
            )
        self._delivery.end_lanes(lanes)

    @property
    def counts(self) -> Counter[str]:
        """Records finished, by outcome (`ok`, `dead`, `dropped`, `passed`, `failed`)."""
        outcomes = self._meters.outcomes
        return Counter({name: int(outcomes[self.source, name]) for name in OUTCOMES})

    @property
    def step_seconds(self) -> dict[str, float]:
        """Seconds that each step has taken, by its name."""
        return {step: histogram.total for step, histogram in self._meters.steps.items()}

    def close(self) -> None:
        """Release models and files."""
        self._delivery.close()
        self._assembly.close()

    def _cut(self, records: Records) -> Iterator[Records]:
        most, size = self._batch.max_records, self._batch.max_bytes
        count = len(records)
        if count and records.byte_count > size:
            most = max(1, min(most, count * size // records.byte_count))
        if count <= most:
            yield records
            return
        for start in range(0, count, most):
            yield records.part(start, min(start + most, count))

    def _collected(self) -> Iterator[Addressed]:
        for sink in self._sinks:
            yield from sink.collect()


def _sink(config: Any) -> KeepingSink:
    assert isinstance(config, KafkaSinkConfig)
    return KeepingSink(config)


def _waited(seconds: float, reason: str) -> bool:
    time.sleep(seconds)
    return True
