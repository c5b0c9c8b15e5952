"""The debug flag of a service and of its records: results that carry a trace of all steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.data.result import Result
from pipelines.executors.executor import Executor
from pipelines.observe.observing import together
from pipelines.observe.tracing import Trace, Tracer
from streamer.agent.decodedbatch import DecodedBatch

FLAG: Final = "streamer-debug"
"""The header, or entry of the metadata, by which a record asks for its trace."""
TRACE: Final = "trace"
"""The entry of a result's metadata that holds the trace, as `Trace.to_data` says."""
LOGGED: Final = 10
"""Traces of one batch that are logged at most."""

_NO: Final = frozenset({"", "0", "false", "no", "off"})


def debugged(
    executor: Executor, decoded: DecodedBatch, batch: Batch, debug: bool | Literal["records"], log: Any
) -> Result:
    """`executor.run_batch(batch)`, with a trace in the metadata of the results whose records get one.

    `batch` holds all rows of `decoded`, or some of them.

    With `debug` "records" these are the records that ask for it, and up to `LOGGED` of their traces are logged. With
    `debug` true these are all records, and the first one's trace is logged.
    """
    numbers = list(_asking(decoded, batch)) if debug == "records" else batch.rows.tolist()
    if not numbers:
        return executor.run_batch(batch)
    tracer = Tracer(frozenset(numbers))
    before = executor.observer
    executor.observer = together(before, tracer)
    began = time.perf_counter()
    try:
        result = executor.run_batch(batch)
    finally:
        executor.observer = before
    seconds = time.perf_counter() - began
    traces = {number: Trace(tracer.steps(number), seconds) for number in numbers}
    for number in numbers[: LOGGED if debug == "records" else 1]:
        _log(log, decoded, number, traces[number])
    result.batch = _carrying(result.batch, traces)
    return result


def _asking(decoded: DecodedBatch, batch: Batch) -> Iterator[int]:
    headers = decoded.records.header_column()
    for position in range(batch.size):
        number = int(batch.rows[position])
        given = None if headers is None else headers[number - decoded.first]
        metadata = None if batch.metadata is None else batch.metadata[position]
        if (given and _in_headers(given)) or (metadata is not None and _means_yes(metadata.get(FLAG, ""))):
            yield number


def _in_headers(headers: Any) -> bool:
    flag = next((value for name, value in reversed(headers) if name == FLAG), b"")
    return _means_yes((flag or b"").decode(errors="replace"))


def _means_yes(value: object) -> bool:
    return str(value).strip().lower() not in _NO


def _carrying(batch: Batch, traces: Mapping[int, Trace]) -> Batch:
    metadata: list[Data | None] = list(batch.metadata or [None] * batch.size)
    for position in range(batch.size):
        trace = next((traces[row] for row in batch.parents(position).tolist() if row in traces), None)
        if trace is not None:
            entry = metadata[position]
            # A copy: the metadata may be shared with the input.
            entry = Data() if entry is None else entry.copy()
            entry[TRACE] = trace.to_data()
            metadata[position] = entry
    return Batch(
        batch.columns,
        batch.size,
        rows=batch.rows,
        splits=batch.splits,
        metadata=metadata,
        origin=batch.origin,
        views=batch.views,
    )


def _log(log: Any, decoded: DecodedBatch, number: int, trace: Trace) -> None:
    record = decoded.records.context(number - decoded.first)
    at = f"{record.topic}[{record.partition}]@{record.offset}"
    for step in trace.steps:
        log.info(
            "trace",
            at=at,
            step=step.step,
            milliseconds=round(step.seconds * 1000, 3),
            rows=step.rows,
            given="; ".join(step.given),
            made="; ".join(step.made) or "no row",
        )
