"""`ServiceMap`: a service as a function of Arrow batches, for `mapInArrow` in Spark's worker processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from connectors.records import Lane
from pipelines.errors import StreamerError
from streamer.observe.metrics import OUTCOMES
from streamer.shipped import ShippedService, cannot_be_opened
from streamer.spark.arrowrows import COLUMNS, records_of, rows_of
from streamer.spark.stages import Addressed, Stages

METRICS: Final = "metrics"
"""The column with counts of records by outcome, and the seconds of step i as `s{i}`."""
_open: Final[dict[str, tuple[str, Stages]]] = {}
"""The services that are open in this process, by name, each with the query that it is open for."""
_epochs: Final = itertools.count()
_HOW: Final = (
    "with spark.files (spark-submit --files a.onnx,b.txt), which finds files that lie beside the pipeline's own"
)


@dataclass(frozen=True, slots=True)
class ServiceMap:
    """Called in a worker process with the batches of one task. It opens the service once in each process.

    The service travels in it, without logins to brokers. Files that its pipeline names do not: they have to be in the
    same folder on each worker, or to be shipped by Spark.
    """

    query: str
    """The start of the query that it belongs to: another start opens the service anew."""
    service: ShippedService
    steps: tuple[str, ...]
    """The steps of which `metrics` has the seconds."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows with topic, key, value, headers and metrics. Rows that have metrics alone have no topic."""
        stages = self._opened()
        epoch, lanes = next(_epochs), set[Lane]()
        try:
            for batch in batches:
                if batch.num_rows:
                    records = records_of(batch, stages.source, epoch)
                    lanes.update(span.lane for span in records.spans)
                    yield from self._rows(stages, stages.run(records))
            yield from self._rows(stages, stages.finish(lanes))
        except BaseException:
            # What is half done is not gone on with: the task is run again, here or in another process.
            _open.pop(self.service.name, None)
            raise

    def _rows(self, stages: Stages, messages: Iterator[Addressed]) -> Iterator[pa.RecordBatch]:
        counts, seconds = stages.counts, stages.step_seconds
        for topics, block in messages:
            for columns in rows_of(topics, block):
                yield pa.RecordBatch.from_arrays(
                    [*columns, pa.nulls(len(columns[0]), self._metrics)], names=[*COLUMNS, METRICS]
                )
        made, after = stages.counts - counts, stages.step_seconds
        if made:
            spent = {f"s{at}": after.get(step, 0.0) - seconds.get(step, 0.0) for at, step in enumerate(self.steps)}
            metrics = {**{name: made[name] for name in OUTCOMES}, **spent}
            nothing = [pa.nulls(1, of) for of in COLUMNS.values()]
            yield pa.RecordBatch.from_arrays([*nothing, pa.array([metrics], self._metrics)], names=[*COLUMNS, METRICS])

    @property
    def _metrics(self) -> Any:
        counts = [(name, pa.int64()) for name in OUTCOMES]
        return pa.struct([*counts, *((f"s{at}", pa.float64()) for at in range(len(self.steps)))])

    def _opened(self) -> Stages:
        name = self.service.name
        known = _open.get(name)
        if known is not None and known[0] == self.query:
            return known[1]
        if known is not None:
            known[1].close()
            del _open[name]
        service = self.service.arrived(_of_spark)
        try:
            stages = Stages(service)
        except (StreamerError, OSError) as error:
            raise cannot_be_opened(service, error, _HOW) from error
        _open[name] = self.query, stages
        return stages


def _of_spark() -> Path:
    """Where Spark puts files that are shipped."""
    from pyspark import SparkFiles

    return Path(SparkFiles.getRootDirectory())
