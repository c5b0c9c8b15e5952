"""`start`: a service as a streaming query of Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from pipelines.definitions.document import Document
from pipelines.definitions.walk import walk
from pipelines.errors import DISTRIBUTION, DefinitionError
from pipelines.steps.base import Step
from streamer.definition.connectors.written import Written
from streamer.definition.loading import load
from streamer.definition.refusals import check_code
from streamer.definition.service import Service
from streamer.observe.metrics import OUTCOMES
from streamer.shipped import ShippedService
from streamer.spark.arrowrows import COLUMNS, READ
from streamer.spark.fitting import check_service
from streamer.spark.mapping import METRICS, ServiceMap
from streamer.spark.options import read_options, write_options

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

CONNECTOR: Final = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
"""Spark's connector for Kafka in Maven's words; it has to be of PySpark's own version."""
OBSERVED: Final = "streamer"
"""The name of the service's metrics among `observedMetrics` of a query's progress."""
_ANSWER: Final = 60.0
"""Seconds in which another Python says whether it has streamer."""
_PER_BATCH: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"


def start(
    spark: SparkSession,
    service: str | PathLike[str] | Service,
    *,
    checkpoint: str | PathLike[str],
    trigger: Mapping[str, Any] | None = None,
    read: Mapping[str, Any] | None = None,
    write: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a service, a file's path or a `Service`, as a streaming query, and return the query.

    Spark reads the topics of the service's source and writes results and dead letters; everything between is the
    service's own: codec, batches, pipeline, `keep`, `when`, failures. Delivery is at least once: positions are those of
    `checkpoint`, a folder that all of Spark's processes reach and that is this query's alone; where it has none,
    reading begins at the source's `start`.

    Args:
        spark: The session. Spark's connector for Kafka has to be on its class path.
        service: The service, which runs in Spark's worker processes.
        checkpoint: A path or a URL of Hadoop's file systems, `s3a://bucket/digits`.
        trigger: As for `DataStreamWriter.trigger`; by default a micro-batch begins `batch.max_wait` after the one
            before.
        read: More options of Spark's reader, such as `{"kafka.max.poll.records": 1000}`; they override those that are
            made of the service.
        write: More options of Spark's writer.

    Raises:
        DefinitionError: Naming file and line, for settings of the service that Spark cannot honour; and for a session
            without the connector, or whose workers would run another Python.
    """
    loaded = service if isinstance(service, Service) else load(service)
    return started(
        spark, loaded, Written.of(service), checkpoint=checkpoint, trigger=trigger, read=read or {}, write=write or {}
    )


def started(
    spark: SparkSession,
    service: Service,
    written: Written,
    *,
    checkpoint: str | PathLike[str],
    trigger: Mapping[str, Any] | None = None,
    read: Mapping[str, Any] = MappingProxyType({}),
    write: Mapping[str, Any] = MappingProxyType({}),
) -> StreamingQuery:
    """As `start`, of a service that was `written` so."""
    check_service(service, written)
    check_code(service)
    _check_python(spark)
    made = service_map(service, written)
    reading = {**read_options(service, written), **read}
    writing = {**write_options(service, written), **write}
    try:
        records = spark.readStream.format("kafka").options(**reading).load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower():
            raise
        raise DefinitionError(
            f"Spark has no connector for Kafka: {str(error).splitlines()[0]}; begin the session with it: "
            f"spark-submit --packages {CONNECTOR}, or spark.jars.packages"
        ) from error
    messages = _observed(records.select(*_read(records.columns)).mapInArrow(made, _schema(made)), made.steps)
    writer = messages.writeStream.format("kafka").options(**writing).queryName(service.name)
    writer = writer.option("checkpointLocation", os.fspath(checkpoint))
    writer = writer.trigger(**(trigger or {"processingTime": f"{round(service.batch.wait * 1000)} milliseconds"}))
    with _records_per_batch(spark, service.batch.max_records):
        return writer.start()


def service_map(service: Service, written: Written) -> ServiceMap:
    """The function that travels to the workers, without what they do not need: logins, and the text of the file."""
    bare = {
        "source": [source.model_copy(update={"client": {}}) for source in service.sources],
        "sink": [sink.model_copy(update={"client": {}}) for sink in service.sinks],
    }
    if service.dead_letter is not None:
        bare["dead_letter"] = service.dead_letter.model_copy(update={"client": {}})
    document = service.written
    if document is not None:
        service = service.written_in(Document({}, document.file, document.place, document.prefix))
    file = "" if written.document is None or written.document.file is None else written.document.file
    parts = walk(service.sequence())
    return ServiceMap(
        query=uuid.uuid4().hex,
        # Functions of the program that starts the query travel whole.
        service=ShippedService.of(service.model_copy(update=bare), Path(file) if file else None, cloudpickle.dumps),
        steps=tuple(part.name for part in parts if isinstance(part.what, Step)),
    )


def _read(columns: list[str]) -> list[str]:
    return [name for name in READ if name in columns]


def _schema(made: ServiceMap) -> str:
    counts = [f"{name}: bigint" for name in OUTCOMES]
    seconds = [f"s{at}: double" for at in range(len(made.steps))]
    return (
        "topic string, key binary, value binary, headers array<struct<key: string, value: binary>>, "
        f"{METRICS} struct<{', '.join([*counts, *seconds])}>"
    )


def _observed(rows: Any, steps: tuple[str, ...]) -> Any:
    """The messages, with the metrics beside them summed up in the query's progress."""
    counts = [F.coalesce(F.sum(f"{METRICS}.{name}"), F.lit(0)).alias(name) for name in OUTCOMES]
    seconds = [
        F.coalesce(F.sum(f"{METRICS}.s{at}"), F.lit(0.0)).alias(f"seconds {step}") for at, step in enumerate(steps)
    ]
    # A message without a topic would fail the query: the rows without one have metrics alone.
    return rows.observe(OBSERVED, *counts, *seconds).where("topic is not null").select(*COLUMNS)


@contextmanager
def _records_per_batch(spark: SparkSession, most: int) -> Iterator[None]:
    """A query that starts inside gives functions batches of so many records; it keeps a copy of the configuration."""
    before = spark.conf.get(_PER_BATCH)
    spark.conf.set(_PER_BATCH, str(most))
    try:
        yield
    finally:
        spark.conf.set(_PER_BATCH, str(before))


def _check_python(spark: SparkSession) -> None:
    """Raise `DefinitionError` if workers on this machine would run a Python that has no streamer."""
    context = spark.sparkContext
    program = shutil.which(context.pythonExec)
    if not context.master.startswith("local") or program == sys.executable:
        return
    trouble = "is not on the PATH" if program is None else _why_not(program)
    if trouble is not None:
        raise DefinitionError(
            f"Spark's workers would run {program or context.pythonExec}, which {trouble}; set PYSPARK_PYTHON to "
            f"{sys.executable} before the session begins"
        )


def _why_not(python: str) -> str | None:
    try:
        done = subprocess.run([python, "-c", "import streamer"], capture_output=True, timeout=_ANSWER)  # noqa: S603 - as Spark will
    except subprocess.TimeoutExpired:
        return f"does not answer within {_ANSWER:.0f} s"
    return None if done.returncode == 0 else f"does not have {DISTRIBUTION}"
