"""Services on Spark, local with two cores, and a real Kafka: results, dead letters, errors, metrics, and kills."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafkatopics import IN_ORDER, Topics, facts, read, write
from securedkafka import PASSWORD, USER, secured_kafka
from variedrecords import COUNT, payloads
from waiting import until

import pipelines
import streamer
import streamer.spark
from connectors.message import Message
from pipelines.errors import DefinitionError
from streamer.definition.connectors.written import Written
from streamer.devbroker import create_topics

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

STARTING = 300.0
"""Seconds in which a driver has results: half a minute of CPU time, on a machine that has much else to do."""
SERVICE = """
name: {name}
source:
  type: kafka
  bootstrap: "{bootstrap}"
  topics: [{source}]
  codec: json
  into: {{key: device, headers.site: site}}
pipeline: {pipeline}
keep: [id, device, site]
batch: {{max_records: 16}}
sink: {{type: kafka, topic: "{sink}.{{kind}}", topics: ["{sink}.low", "{sink}.high"], codec: json}}
dead_letter: {{type: kafka, topic: {dead}}}
"""
PIPELINE = """
  steps:
    - "@type": MAP
      ensure: ["x < 990"]
      keep: [x]
      select: {y: "x * 2", kind: "CASE WHEN x < 500 THEN 'low' ELSE 'high' END"}
"""


class Place:
    """Topics of a test with a service file between them."""

    def __init__(self, bootstrap: str, topics: Topics, folder: Path, pipeline: str = PIPELINE) -> None:
        self.bootstrap = bootstrap
        self.source, self.sink, self.dead = topics(3, "in"), topics(1, "out"), topics(1, "dead")
        self.folder = folder
        self.file = folder / "service.yaml"
        names = {"bootstrap": bootstrap, "source": self.source, "sink": self.sink, "dead": self.dead}
        self.file.write_text(SERVICE.format(name=self.source, pipeline=pipeline, **names))

    def write(self, start: int, stop: int) -> None:
        """Records with these numbers, one in a hundred no JSON, with keys and headers."""
        self.send(
            [
                b"junk %d" % number if number % 100 == 50 else json.dumps({"id": number, "x": number % 1000}).encode()
                for number in range(start, stop)
            ],
            start,
        )

    def send(self, values: list[bytes], start: int = 0) -> None:
        """Records with these payloads, with keys and headers."""
        producer = Producer({"bootstrap.servers": self.bootstrap, **IN_ORDER, "linger.ms": 5})
        for number, value in enumerate(values, start):
            headers: list[tuple[str, Any]] = [("site", b"north"), ("empty", None)] if number % 3 else []
            producer.produce(self.source, value, b"device-%d" % (number % 7), headers=headers)
        assert producer.flush(60) == 0

    def results(self) -> list[Message]:
        return [message for kind in ("low", "high") for message in read(self.bootstrap, f"{self.sink}.{kind}")]

    def result_count(self) -> int:
        """How many results were written, repeated ones too, told without reading them."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "counting"})
        try:
            ends = [
                consumer.get_watermark_offsets(TopicPartition(f"{self.sink}.{kind}", 0), 30) for kind in ("low", "high")
            ]
        finally:
            consumer.close()
        return sum(stop for _, stop in ends)

    def letters(self) -> list[Message]:
        return read(self.bootstrap, self.dead)

    def run(self, spark: Any, **more: Any) -> Any:
        """A query that has read all that is there."""
        query = streamer.spark.start(
            spark, self.file, checkpoint=self.folder / "checkpoint", trigger={"availableNow": True}, **more
        )
        query.awaitTermination(120)
        assert not query.isActive
        return query


@pytest.fixture
def place(kafka: Any, topics: Topics, tmp_path: Path) -> Place:
    return _place(kafka, topics, tmp_path)


def _place(kafka: Any, topics: Topics, folder: Path, pipeline: str = PIPELINE) -> Place:
    made = Place(kafka.bootstrap, topics, folder, pipeline)
    create_topics(kafka.bootstrap, {f"{made.sink}.low": 1, f"{made.sink}.high": 1})
    return made


@pytest.fixture(scope="module")
def spark(spark_environment: dict[str, str]) -> Iterator[Any]:
    """The session of all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in spark_environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "path", [*sys.path, spark_environment["PYTHONPATH"].split(os.pathsep)[0]])
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        session = SparkSession.builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
        SparkContext._gateway = SparkContext._jvm = None


def test_results_and_dead_letters_are_those_of_the_agent_bit_for_bit(
    spark: Any, place: Place, kafka: Any, topics: Topics, tmp_path: Path
) -> None:
    place.send(payloads())
    query = place.run(spark)
    results, letters = place.results(), place.letters()
    assert len(results) + len(letters) == COUNT
    assert len(letters) > COUNT // 5
    (tmp_path / "agent").mkdir()
    other = _place(kafka, topics, tmp_path / "agent")
    agent = streamer.loads(other.file.read_text().replace(other.source, place.source))
    with agent:
        until(lambda: len(other.letters()) >= len(letters) and len(other.results()) >= len(results))
    assert facts(results) == facts(other.results())
    assert facts(letters) == facts(other.letters())
    progress = [each["observedMetrics"].get("streamer") for each in query.recentProgress]
    counts = [observed.asDict() for observed in progress if observed is not None]
    assert sum(each["ok"] for each in counts) == len(results)
    assert sum(each["dead"] for each in counts) == len(letters)
    assert sum(each["dropped"] for each in counts) == 0
    assert sum(each["seconds 0:MAP"] for each in counts) > 0


def test_functions_of_the_job_itself_travel_to_the_workers(spark: Any) -> None:
    from streamer.spark.starting import service_map

    source, sink = {"type": "kafka", "topics": ["a"], "codec": "json"}, {"type": "kafka", "topic": "b", "codec": "json"}
    pipeline = pipelines.Sequence([lambda data: pipelines.Data({"y": data["x"] * 3})])
    made = service_map(streamer.Service(source=source, pipeline=pipeline, sink=sink), Written(None))
    (step,) = pickle.loads(made.service.pickled).pipeline.steps
    assert step.function(pipelines.Data({"x": 2}))["y"] == 6


def test_a_query_goes_on_from_its_checkpoint(spark: Any, place: Place) -> None:
    place.write(0, 100)
    place.run(spark)
    place.write(100, 300)
    place.run(spark)
    assert sorted(json.loads(message.value or b"")["id"] for message in place.results()) == [
        number for number in range(300) if number % 100 != 50
    ]
    assert sorted(message.value or b"" for message in place.letters()) == [b"junk 150", b"junk 250", b"junk 50"]


def test_a_service_without_dead_letters_stops_at_a_bad_record_which_is_read_again(spark: Any, place: Place) -> None:
    from pyspark.errors import StreamingQueryException

    whole = place.file.read_text()
    place.file.write_text(whole.partition("dead_letter")[0])
    place.write(0, 60)
    with pytest.raises(StreamingQueryException, match=rf"{place.source}\[\d\]@\d+.*give the service a dead_letter"):
        place.run(spark)
    place.file.write_text(whole)
    place.run(spark)
    assert {json.loads(message.value or b"")["id"] for message in place.results()} == set(range(60)) - {50}
    assert [message.value for message in place.letters()] == [b"junk 50"]


def test_a_run_of_the_command_line_tells_why_it_failed_in_the_words_of_the_worker(spark: Any, place: Place) -> None:
    from streamer.spark.running import SparkRun

    place.file.write_text(place.file.read_text().partition("dead_letter")[0])
    place.write(0, 60)
    run = SparkRun(streamer.load(place.file), Written.of(place.file), place.folder / "checkpoint")
    run.start()
    until(lambda: not spark.streams.active)
    run.stop()
    summary = run.join()
    assert (summary.reason, summary.ok) == ("failed", 0)
    assert summary.error is not None
    assert summary.error.startswith(f"{place.source}[")
    assert summary.error.endswith("or write down on_error: drop")


def test_a_session_without_the_connector_is_told_which_one_it_needs(
    spark: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.errors import AnalysisException
    from pyspark.sql.streaming import DataStreamReader

    def lacking(self: Any, *arguments: Any) -> None:
        raise AnalysisException("Failed to find data source: kafka. Please deploy the application as per ...")

    monkeypatch.setattr(DataStreamReader, "load", lacking)
    with pytest.raises(
        DefinitionError, match=r"org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.2\.0, or spark\.jars\.packages"
    ):
        place.run(spark)


SECURED = """
name: tripled
source:
  type: kafka
  bootstrap: {bootstrap}
  topics: [numbers]
  codec: json
  client: {client}
pipeline: {{steps: [{{"@type": FUNCTION, function: "tripled_on_spark:triple"}}]}}
sink: {{type: kafka, topic: results, codec: json}}
"""


@pytest.mark.timeout(400)
def test_a_query_logs_in_as_its_file_says_and_finds_functions_beside_it(
    spark: Any, start_kafka: Any, tmp_path: Path
) -> None:
    kafka = secured_kafka(start_kafka, tmp_path)
    create_topics(kafka.plain, {"numbers": 1, "results": 1})
    (tmp_path / "tripled_on_spark.py").write_text("def triple(data):\n    data['x'] = 3 * data['x']\n    return data\n")
    write(kafka.plain, "numbers", [b'{"x": 1}', b'{"x": 2}'])
    believed = {"ssl.ca.location": str(kafka.certificate.certificate)}
    shown = {
        "ssl.certificate.location": str(kafka.certificate.certificate),
        "ssl.key.location": str(kafka.certificate.key),
    }
    login = {"sasl.username": USER, "sasl.password": PASSWORD}
    ways: list[tuple[str, dict[str, str]]] = [
        (kafka.mutual, {"security.protocol": "ssl", **believed, **shown}),
        (kafka.secret, {"security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN", **believed, **login}),
        (kafka.open, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", **login}),
    ]
    for number, (bootstrap, client) in enumerate(ways, start=1):
        file = tmp_path / "service.yaml"
        file.write_text(SECURED.format(bootstrap=bootstrap, client=json.dumps(client)))
        query = streamer.spark.start(
            spark, file, checkpoint=tmp_path / f"positions-{number}", trigger={"availableNow": True}
        )
        query.awaitTermination(120)
        assert not query.isActive
        assert sorted(message.value or b"" for message in read(kafka.plain, "results")) == (
            [b'{"x":3}'] * number + [b'{"x":6}'] * number
        )


LOOKUP = """
  steps:
    - {"@type": LOOKUP, by: device, path: devices.csv, take: {kind: kind}}
"""


def test_a_file_of_the_pipeline_is_looked_for_on_the_worker_and_may_be_shipped(
    spark: Any, kafka: Any, topics: Topics, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    (tmp_path / "driver").mkdir()
    place = _place(kafka, topics, tmp_path / "driver", LOOKUP)
    service = streamer.load(place.file)
    gone = tmp_path / "gone"
    service = service.model_copy(update={"pipeline": service.pipeline.moved(gone)})
    place.write(0, 50)
    started: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "trigger": {"availableNow": True}}
    with pytest.raises(StreamingQueryException, match=r"devices\.csv.*spark\.files"):
        streamer.spark.start(spark, service, **started).awaitTermination(120)
    table = tmp_path / "devices.csv"
    table.write_text("device,kind\n" + "".join(f"device-{number},low\n" for number in range(7)))
    spark.sparkContext.addFile(str(table))
    streamer.spark.start(spark, service, **started).awaitTermination(120)
    assert len(place.results()) == 50


def test_a_session_whose_workers_lack_streamer_is_refused_with_what_to_set(
    spark: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = place.folder / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 100")
    slow.chmod(0o755)
    monkeypatch.setattr("streamer.spark.starting._ANSWER", 1.0)
    for program, trouble in {
        shutil.which("false"): "does not have ",
        str(slow): "does not answer within 1 s",
        "no-such-python": "is not on the PATH",
    }.items():
        monkeypatch.setattr(spark.sparkContext, "pythonExec", program)
        with pytest.raises(DefinitionError, match=f"{trouble}.*; set PYSPARK_PYTHON to {sys.executable}"):
            place.run(spark)


class Driver:
    """`streamer run --engine spark` of a place's service, in a process group of its own."""

    def __init__(self, place: Place, spark_environment: dict[str, str]) -> None:
        self.log = place.folder / "driver.log"
        words = ["run", str(place.file), "--engine", "spark", "--checkpoint", str(place.folder / "positions"), "--json"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "streamer", *words],
                env={**os.environ, **spark_environment},
                cwd=place.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Until this has happened. The test fails if the driver ends before."""
        deadline = time.monotonic() + STARTING
        while not happened():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.3)

    def kill(self) -> None:
        """The driver, its Java and its workers, at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)

    def stop(self) -> dict[str, Any]:
        """The summary, after a first signal, for which PySpark has a handler of its own."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(90) == 0, self.log.read_text()
        said = self.log.read_text()
        summary: dict[str, Any] = json.loads(said[said.rindex('{"service"') : said.rindex("}") + 1])
        return summary


@pytest.fixture
def start_driver(place: Place, spark_environment: dict[str, str]) -> Iterator[Callable[[], Driver]]:
    """Starts a driver, which does not outlive the test."""
    drivers: list[Driver] = []

    def start() -> Driver:
        drivers.append(Driver(place, spark_environment))
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()


@pytest.mark.timeout(1200)
@pytest.mark.soak
def test_a_driver_that_is_killed_loses_no_record_and_no_letter(
    place: Place, start_driver: Callable[[], Driver]
) -> None:
    chance = random.Random(7)
    records = 20_000
    place.write(0, records)
    good = {number for number in range(records) if number % 100 != 50 and number % 1000 < 990}

    def ids() -> list[int]:
        return [json.loads(message.value or b"")["id"] for message in place.results()]

    for _ in range(3):
        before = place.result_count()
        driver = start_driver()
        driver.wait_for(lambda: place.result_count() > before)  # noqa: B023
        time.sleep(chance.uniform(0.0, 1.0))
        driver.kill()
    assert len(set(ids())) < len(good)
    driver = start_driver()
    driver.wait_for(lambda: place.result_count() >= len(good) and set(ids()) == good)
    summary = driver.stop()
    assert summary["reason"] == "stopped"
    assert summary["ok"] > 0
    assert set(ids()) == good
    bad = {b"junk %d" % number for number in range(records) if number % 100 == 50}
    assert {message.value for message in place.letters() if (message.value or b"").startswith(b"junk")} == bad
    refused = {json.loads(message.value or b"")["id"] for message in place.letters() if message.value not in bad}
    assert refused == {number for number in range(records) if number % 1000 >= 990 and number % 100 != 50}
    contents: dict[int, set[bytes | None]] = {}
    for message in place.results():
        contents.setdefault(json.loads(message.value or b"")["id"], set()).add(message.value)
    # What came twice is the same.
    assert {len(values) for values in contents.values()} == {1}
