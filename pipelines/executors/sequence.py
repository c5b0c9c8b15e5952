"""The executor of a sequence: the output of each step is the input of the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipelines.data.batch import Batch
from pipelines.data.data import as_data
from pipelines.data.result import Result
from pipelines.executors.accounting import Journal, joined
from pipelines.executors.executor import Outcome
from pipelines.executors.openpipeline import OpenPipeline
from pipelines.executors.openstep import Emit, OpenStep
from pipelines.executors.ports import Ports


class SequenceExecutor(OpenPipeline):
    """An open sequence of steps; `OpenPipeline` says how it is opened, used and closed."""

    @property
    def reads(self) -> frozenset[str] | None:
        keys: frozenset[str] | None = None if self._steps else frozenset()
        for step in self._steps:
            reads = step.runner.reads
            if reads is None:
                break
            keys = reads if keys is None else keys | reads
            if not step.runner.keeps_keys:
                break
        return keys

    def ports(self) -> Ports:
        if not self._steps:
            return Ports()
        first, last = self._steps[0].runner.ports(), self._steps[-1].runner.ports()
        return Ports(first.inputs, first.optional, last.outputs)

    def run_many(self, datas: Iterable[Mapping[str, Any]]) -> list[Outcome]:
        if self._steps:
            return super().run_many(datas)
        self._check_open()
        return [as_data(item) for item in datas]

    def _ran(self, batch: Batch) -> Result:
        return self._pushed(batch, self._steps)

    def _pushed(self, batch: Batch, steps: Sequence[OpenStep], journal: Journal | None = None) -> Result:
        result = Result(batch)
        for step in steps:
            if not batch.size:
                break
            result = step.run(batch, self.observer)
            batch = result.batch
            if journal is not None or result.failed or result.dropped or len(result.held) or result.gathered:
                journal = Journal() if journal is None else journal
                journal.add(step.name, result)
        return result if journal is None else journal.result(batch)

    def _drained(self, emit: Emit) -> Result:
        journal = Journal()
        batches: list[Batch] = []
        for position, step in enumerate(self._steps):
            result = step.emitted(emit, self.observer)
            if result is None:
                continue
            journal.add(step.name, result)
            batches.append(self._pushed(result.batch, self._steps[position + 1 :], journal).batch)
        return journal.result(joined(map(Result, batches)).batch)
