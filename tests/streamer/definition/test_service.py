"""A service built in Python: the same model as in a file."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import pipelines
from connectors.kafka.config import KafkaSinkConfig
from connectors.memory import memory_topic
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.message import Message
from pipelines.data.data import Data
from pipelines.errors import StreamerError
from streamer.agent.running import agent_of
from streamer.batching.batcher import HardBatcher, SoftBatcher
from streamer.batching.registry import built
from streamer.batching.rounds import RoundBatcher
from streamer.definition.service import Service
from streamer.definition.settings import BatchSettings

PIPELINE = pipelines.Sequence([pipelines.Logging()])


def service(**fields: Any) -> Service:
    given: dict[str, Any] = {
        "source": MemorySourceConfig(topic="in"),
        "pipeline": PIPELINE,
        "sink": MemorySinkConfig(topic="out"),
    }
    return Service(**{**given, **fields})


def double(data: Data) -> Data:
    return data


def test_source_pipeline_and_sink_are_enough() -> None:
    made = service()
    assert made.name == "service"
    assert made.sequence() is PIPELINE
    assert [source.topic for source in made.sources if isinstance(source, MemorySourceConfig)] == ["in"]
    assert (made.delivery, made.on_error, made.keep, made.dead_letter, made.control) == (
        "at_least_once",
        "stop",
        None,
        None,
        None,
    )


def test_defaults_are_those_of_the_documents() -> None:
    made = service()
    assert (made.batch.type, made.batch.max_records, made.batch.wait) == ("soft", 512, 0.005)
    assert (made.batch.max_bytes, made.limits.in_flight, made.limits.batches) == (16 << 20, 64 << 20, 2)
    assert (made.errors.stop_ratio, made.errors.over) == (0.5, 200)


@pytest.mark.parametrize("field", ["source", "pipeline", "sink"])
def test_each_of_the_three_is_required(field: str) -> None:
    given: dict[str, Any] = {
        "source": MemorySourceConfig(topic="in"),
        "pipeline": PIPELINE,
        "sink": MemorySinkConfig(topic="out"),
    }
    del given[field]
    with pytest.raises(ValidationError, match=rf"{field}\n  Field required"):
        Service(**given)


def test_connectors_may_be_plain_data() -> None:
    made = service(source={"type": "memory", "topic": "a"}, sink=[{"type": "memory", "topic": "b"}])
    assert made.sources == [MemorySourceConfig(topic="a", name="memory")]
    assert made.sinks == [MemorySinkConfig(topic="b", name="memory")]


def test_a_mistake_in_a_connector_is_told_at_its_place() -> None:
    with pytest.raises(ValidationError) as raised:
        service(source=[{"type": "memory", "topic": "a"}, {"type": "memory", "topcis": "a"}])
    assert {error["loc"] for error in raised.value.errors()} == {("source", 1, "topic"), ("source", 1, "topcis")}


# names


def test_a_lone_connector_is_called_by_its_type_and_several_are_counted() -> None:
    memory = MemorySourceConfig(topic="x")
    assert [source.label for source in service(source=memory).sources] == ["memory"]
    made = service(source=[memory, MemorySourceConfig(topic="x", name="own"), memory])
    assert [source.label for source in made.sources] == ["memory-0", "own", "memory-2"]


def test_two_connectors_of_one_name_are_refused() -> None:
    sinks = [MemorySinkConfig(topic="x", name="a"), MemorySinkConfig(topic="y", name="a")]
    with pytest.raises(ValidationError, match='two sinks have the name "a"'):
        service(sink=sinks)
    with pytest.raises(ValidationError, match='two sources have the name "memory-0"'):
        service(source=[MemorySourceConfig(topic="x"), MemorySourceConfig(topic="y", name="memory-0")])


def test_a_dead_letter_in_kafka_may_be_larger_than_a_result_unless_the_file_says_otherwise() -> None:
    made = service(
        sink=KafkaSinkConfig(topic="out", bootstrap="b:9092"),
        dead_letter={"type": "kafka", "topic": "d", "bootstrap": "b"},
    )
    assert [getattr(one, "max_message", None) for one in (*made.sinks, made.dead_letter)] == [1 << 20, 16 << 20]
    said = service(dead_letter={"type": "kafka", "topic": "d", "bootstrap": "b", "max_message": "1MiB"}).dead_letter
    assert getattr(said, "max_message", None) == 1 << 20


def test_a_dead_letter_has_a_name_of_its_own() -> None:
    made = service(dead_letter=MemorySinkConfig(topic="dead"))
    assert made.dead_letter is not None
    assert made.dead_letter.label == "dead_letter"
    with pytest.raises(ValidationError, match='a sink has the name "memory" too'):
        service(dead_letter=MemorySinkConfig(topic="dead", name="memory"))


# the pipeline


def test_a_pipeline_may_be_steps_and_functions_a_path_or_a_definition(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.to_yaml())
    definition = PIPELINE.to_dict()
    for given in (PIPELINE, [pipelines.Logging()], str(file), file, definition, definition["steps"]):
        assert service(pipeline=given).sequence() == PIPELINE
    assert len(service(pipeline=[pipelines.Logging(), double]).sequence().steps) == 2


def test_a_missing_pipeline_file_is_an_error_when_the_service_is_made() -> None:
    with pytest.raises(ValidationError, match="no such file"):
        service(pipeline="none-of-that-name.yaml")


# what contradicts itself


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {
                "delivery": "exactly_once",
                "source": [{"type": "memory", "topic": "a"}, {"type": "memory", "topic": "b"}],
            },
            "exactly_once needs one source.*make each a service of its own, or use at_least_once",
        ),
        (
            {"delivery": "exactly_once", "source": {"type": "file", "path": "a"}},
            'source "file": .*cannot be committed by transactions; use at_least_once',
        ),
        (
            {"delivery": "exactly_once", "dead_letter": {"type": "file", "path": "d"}},
            'sink "dead_letter": a sink of type "file" sends in no transactions; use at_least_once',
        ),
        ({"transaction": {"interval": "1s"}}, "is for delivery: exactly_once; with at_least_once there are no"),
        (
            {"delivery": "exactly_once", "transaction": {"interval": "10s"}},
            "too short for an interval of 10 s.*twice as long at least",
        ),
        ({"delivery": "maybe"}, "'at_most_once', 'at_least_once' or 'exactly_once'"),
        ({"on_error": "drop", "dead_letter": {"type": "memory", "topic": "d"}}, "drop contradicts dead_letter"),
        ({"batch": {"max_age": "1s"}}, "is for batches of type hard"),
        ({"batch": {"target_latency": "20ms", "max_wait": "5ms"}}, "and so does max_wait; remove one of them"),
        ({"batch": {"type": "hard", "target_latency": "20ms"}}, "a hard one is run only when it is full"),
        ({"batch": {"type": "round", "target_latency": "20ms"}}, "a round one waits for max_wait"),
        ({"batch": {"target_latency": "900us"}}, "0.9 ms is less than a batch takes; 1ms is the least"),
        (
            {"source": {"type": "camera", "cameras": {"gate": "rtsp://gate/1"}}, "batch": {"target_latency": "20ms"}},
            "a service of live sources alone has rounds",
        ),
        ({"batch": {"max_bytes": "65MiB"}}, "less than one batch may hold"),
        ({"limits": {"in_flight": "1MiB"}}, "less than one batch may hold"),
        ({"batch": {"max_records": 0}}, "greater than or equal to 1"),
        ({"errors": {"stop_ratio": 0}}, "greater than 0"),
        ({"errors": {"stop_ratio": 1.5}}, "less than or equal to 1"),
        ({"control": {"listen": "9464"}}, "host:port is needed"),
        ({"control": {"listen": "localhost:99999"}}, "host:port is needed"),
        ({"dead_letter": {"type": "memory", "topic": "d", "when": {"a": 1}}}, "no when, keys or drop"),
        ({"source": []}, "at least 1 item"),
        ({"source": {"topic": "a"}}, "type is required; known are"),
        ({"source": "kafka"}, "a mapping with a type is needed"),
        ({"source": {"type": "memory", "topic": "a", "into": {"key": "@type"}}}, "into: .*reserved"),
        (
            {"source": {"type": "memory", "topic": "a", "into": {"key": "id", "topic": "id"}}},
            '"key" and "topic" would both become "id"',
        ),
        ({"sink": {"type": "memory", "topic": "a", "when": {"p": {"gte": 1}}}}, "when: p: gte: no such comparison"),
        ({"source": {"type": "memory", "topic": "a", "where": {"p": {"gte": 1}}}}, "where: p: gte: no such comparison"),
        ({"source": {"type": "memory", "topic": "a", "where": [{"p": 1}, {"q": {}}]}}, "where: q: nothing to compare"),
        (
            {"source": {"type": "memory", "topic": "a", "codec": {"type": "json", "each": True}, "where": {"p": 1}}},
            "where: .*holds several records .*name metadata that into makes values of",
        ),
        ({"sink": {"type": "memory", "topic": "a.{b}"}}, "topic: .*`topics` must list"),
        ({"sink": {"type": "memory", "topic": "a", "codec": "jsn"}}, 'codec: there is no codec of type "jsn"'),
        ({"keep": "some"}, "keep"),
        ({"kepe": []}, "Extra inputs are not permitted"),
    ],
)
def test_contradictory_fields_are_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        service(**fields)


def test_a_hard_batch_waits_as_long_as_it_takes_unless_it_has_an_age() -> None:
    assert service(batch={"type": "hard"}).batch.wait == math.inf
    assert service(batch={"type": "hard", "max_age": "2s"}).batch.wait == 2.0


def test_the_batch_settings_make_a_batcher() -> None:
    soft = built(service(batch={"max_records": 7, "max_wait": "1s"}).batch)
    assert isinstance(soft, SoftBatcher)
    assert (soft.max_records, soft.max_wait) == (7, 1.0)
    hard = built(service(batch={"type": "hard", "max_age": "2s"}).batch)
    assert isinstance(hard, HardBatcher)
    assert hard.max_wait == 2.0


def test_a_service_of_cameras_alone_has_rounds_unless_it_says_otherwise() -> None:
    def settings(perishable: bool, **batch: Any) -> BatchSettings:
        made = service(batch=batch).batch.for_sources(perishable=perishable, in_flight=1 << 30)
        assert isinstance(made, BatchSettings)
        return made

    assert settings(False).type == "soft"
    assert settings(True, type="soft").type == "soft"
    rounds = settings(True)
    assert (rounds.type, rounds.max_wait, rounds.max_bytes, rounds.learns_size) == ("round", 0.0, 1 << 30, True)
    chosen = settings(False, type="round", max_records=4, max_wait="20ms", max_bytes="1MiB")
    assert (chosen.max_wait, chosen.max_bytes, chosen.learns_size) == (0.02, 1 << 20, False)
    batcher = built(chosen)
    assert isinstance(batcher, RoundBatcher)
    assert (batcher.max_records, batcher.rounds) == (4, None)
    with pytest.raises(ValidationError, match="is for batches of type hard; a round one waits for max_wait"):
        service(batch={"type": "round", "max_age": "2s"})


@pytest.mark.parametrize("listen", ["127.0.0.1:9464", "0.0.0.0:0", "localhost:80", "[::1]:9464", "my-host.example:1"])
def test_control_listens_at_a_host_and_port(listen: str) -> None:
    control = service(control={"listen": listen}).control
    assert control is not None
    assert control.listen == listen


def test_a_service_cannot_be_changed_behind_the_agents_back() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        service().name = "other"  # type: ignore[misc]


# running


def waited(ready: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not ready() and time.monotonic() < deadline:
        time.sleep(0.01)
    return ready()


def memory_service(name: str) -> Service:
    memory_topic(f"{name}-in").append(Message(Data({"x": 1}).to_bytes()))
    return service(source=MemorySourceConfig(topic=f"{name}-in"), sink=MemorySinkConfig(topic=f"{name}-out"))


def test_with_runs_a_service_in_the_background() -> None:
    out = memory_topic("with-out")
    with memory_service("with") as running:
        assert waited(lambda: len(out.messages()) == 1)
        with pytest.raises(StreamerError, match="runs already"):
            running.run()
    assert Data.from_bytes(out.messages()[0].value) == Data({"x": 1})


def test_a_service_that_runs_is_the_data_that_it_was_and_a_copy_of_it_runs_apart() -> None:
    made = memory_service("apart")
    copy = made.with_runners({})
    memory_topic("apart-in").end()
    with made:
        assert made == copy
        assert made.with_runners({}).run().error is None
    assert agent_of(made) is None, "nothing of a run that has ended is kept"


def test_run_goes_on_until_stop_and_can_be_run_again() -> None:
    made = memory_service("run")
    made.stop()
    for count in (1, 2):

        def stop_in_the_end(count: int = count) -> None:
            waited(lambda: len(memory_topic("run-out").messages()) == count)
            made.stop()

        threading.Thread(target=stop_in_the_end).start()
        summary = made.run()
        assert (summary.ok, summary.reason, summary.error) == (1, "stopped", None)
        memory_topic("run-in").append(Message(Data({"x": 2}).to_bytes()))


def test_a_service_that_failed_in_the_background_says_so_at_the_end() -> None:
    made = memory_service("fails")
    memory_topic("fails-in").append(Message(b"\xff"))
    with pytest.raises(StreamerError, match=r"fails-in\[0\]@1: decode"), made:
        assert waited(lambda: (agent := agent_of(made)) is not None and agent.summary is not None)


def test_a_notebook_shows_a_table() -> None:
    shown = service(name="<b>", dead_letter=MemorySinkConfig(topic="d"))._repr_html_()
    assert "&lt;b&gt;" in shown
    assert "memory (memory)" in shown
    assert "dead_letter (memory)" in shown
    assert "stop the service" in service()._repr_html_()


@pytest.mark.slow
def test_importing_the_model_starts_nothing_and_loads_no_client() -> None:
    clients = "[m for m in ('confluent_kafka', 'onnxruntime') if m in sys.modules]"
    code = f"import sys, streamer.definition.service; print({clients})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_log_says_which_group_a_service_reads_as(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "streamer")
    with service(source=MemorySourceConfig(topic="group-in", group="cats")):
        pass
    assert any(line.startswith("running ") and "groups={'memory': 'cats'}" in line for line in caplog.messages)


def test_requests_wait_for_others_only_while_there_are_some_unless_the_service_says_so() -> None:
    http = {"type": "http", "listen": "127.0.0.1:0"}

    def settings(source: Any = http, sink: Any = None, **batch: Any) -> BatchSettings:
        asked = service(source=source, sink=sink or {"type": "http"}, batch=batch)
        made = asked.batch.for_sources(perishable=False, in_flight=1 << 30, asked=asked.is_asked)
        assert isinstance(made, BatchSettings)
        return made

    assert (settings().wait, settings().of_requests) == (0.002, True)
    assert (settings(max_wait=0).wait, settings(max_wait=0).of_requests) == (0.0, False)
    assert settings(type="hard").wait == 0.05
    assert settings(max_wait="20ms").wait == 0.02
    assert settings(type="hard", max_age="1s").wait == 1.0
    assert settings(target_latency="30ms").target == 0.03
    # Records of a topic gather as ever, and so do requests whose clients learn only that they are done.
    topic = {"type": "memory", "topic": "in"}
    assert settings([http, topic]).wait == 0.005
    assert settings(sink={"type": "memory", "topic": "out"}).wait == 0.005
