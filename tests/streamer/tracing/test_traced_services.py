"""Traces of whole services, on memory connectors, as a collector gets them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from collector import Collector, attributes, collecting
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import pipelines
from connectors.memory import MemorySink, MemorySource, MemoryTopic
from connectors.message import Message
from connectors.records import Lane
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.agent.summary import Summary
from streamer.definition.service import Service
from streamer.observe.logs import logger
from streamer.tracing import otlp
from streamer.tracing.exporting import Export
from streamer.tracing.finished import Finished, Origin, Period, RecordSpan
from streamer.tracing.heldback import HeldBack
from streamer.tracing.traceparent import TraceContext, read

ERROR = 2
SAMPLED = TraceContext(0xABC, 0xDEF)
UNSAMPLED = TraceContext(0xABD, 0xDEF, 0)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as there:
        yield there


def double(data: Data) -> Data:
    x = data.get_int64("x")
    if x < 0:
        raise ValueError("negative")
    return Data({"y": x * 2})


def message(x: int, *headers: tuple[str, bytes | None]) -> Message:
    return Message(Data({"x": x}).to_bytes(), headers=headers)


def carrying(x: int, context: TraceContext) -> Message:
    return message(x, ("traceparent", context.header()))


def run(tracing: dict[str, Any], messages: list[Message], **settings: Any) -> tuple[Summary, list[Message]]:
    """Run a service on these until its end."""
    service = Service(
        name="doubles",
        source={"type": "memory", "topic": "numbers"},
        pipeline=pipelines.Sequence([double]),
        sink={"type": "memory", "topic": "out"},
        dead_letter={"type": "memory", "topic": "dead"},
        tracing=tracing,
        **settings,
    )
    source, sink = MemorySource(topic=MemoryTopic("numbers"), name="memory"), MemorySink(name="memory")
    source.feed(*messages)
    source.end()
    parts = build(service, sources={"memory": source}, sinks={"memory": sink}, dead=MemorySink(name="dead_letter"))
    return Agent(service, assembly=parts).run(), sink.messages


def context_of(result: Message) -> TraceContext | None:
    values = [value for name, value in result.headers or () if name == "traceparent"]
    return read(values[0]) if values else None


def in_hex(span: Any) -> tuple[int, int]:
    return int.from_bytes(span.trace_id, "big"), int.from_bytes(span.span_id, "big")


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_sampled_record_has_a_span_in_its_trace_and_its_result_names_it(collector: Collector, parallel: int) -> None:
    others: list[tuple[str, bytes | None]] = [("tracestate", b"a=1"), ("id", b"7")]
    first = message(1, ("traceparent", SAMPLED.header()), *others)
    tracing = {"endpoint": collector.endpoint, "sample": 0}
    summary, results = run(tracing, [first, carrying(2, UNSAMPLED), message(3)], limits={"parallel": parallel})
    assert summary.ok == 3
    (span,) = collector.named("process numbers")
    assert in_hex(span)[0] == SAMPLED.trace
    assert int.from_bytes(span.parent_span_id, "big") == SAMPLED.span
    assert context_of(results[0]) == TraceContext(*in_hex(span))
    assert [header for header in results[0].headers or () if header[0] != "traceparent"] == others
    assert [context_of(result) for result in results[1:]] == [UNSAMPLED, None]
    assert attributes(span) == {
        "messaging.system": "memory",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "numbers",
        "messaging.destination.partition.id": "0",
    }
    resource = collector.resources[0]
    assert resource["service.name"] == "doubles"
    assert resource["service.instance.id"]
    assert resource["telemetry.distro.name"] == "streamer"


def test_a_batch_links_to_all_its_sampled_records_and_its_stages_are_within_it(collector: Collector) -> None:
    contexts = [TraceContext(number + 1, number + 1, number % 2) for number in range(300)]
    run({"endpoint": collector.endpoint, "sample": 0}, [carrying(1, each) for each in contexts])
    batches = collector.named("streamer batch")
    linked = [in_hex(link) for batch in batches for link in batch.links]
    assert sorted(linked) == [(each.trace, each.span) for each in contexts if each.is_sampled]
    batch = batches[0]
    children = {span.name: span for span in collector.spans if span.parent_span_id == batch.span_id}
    assert set(children) == {"poll", "decode", "run", "encode", "send"}
    (step,) = [span for span in collector.spans if span.parent_span_id == children["run"].span_id]
    assert step.name == "0:FUNCTION"
    for span in [*children.values(), step]:
        assert batch.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= batch.end_time_unix_nano
    assert abs(batch.end_time_unix_nano / 1e9 - time.time()) < 60
    record = next(span for span in collector.named("process numbers") if span.links[0].span_id == batch.span_id)
    assert batch.start_time_unix_nano - 1e8 < record.start_time_unix_nano <= record.end_time_unix_nano


def test_a_share_of_the_records_without_a_trace_begin_one(collector: Collector) -> None:
    _, results = run({"endpoint": collector.endpoint, "sample": "100%"}, [message(1), carrying(2, UNSAMPLED)])
    (span,) = collector.named("process numbers")
    assert not span.parent_span_id
    assert [context_of(result) for result in results] == [TraceContext(*in_hex(span)), UNSAMPLED]
    (batch,) = collector.named("streamer batch")
    assert [in_hex(link) for link in batch.links] == [in_hex(span)]


def test_every_sampled_record_of_many_batches_has_its_span_within_a_batch_that_was_sent(collector: Collector) -> None:
    count = 3000
    summary, results = run({"endpoint": collector.endpoint, "sample": 1}, [message(x) for x in range(count)])
    assert (summary.ok, len(results)) == (count, count)
    spans = {in_hex(span): span for span in collector.named("process numbers")}
    assert {context_of(result) for result in results} == {TraceContext(*each) for each in spans}
    batches = {batch.span_id for batch in collector.named("streamer batch")}
    assert {link.span_id for span in spans.values() for link in span.links} == batches


def test_batches_without_sampled_records_have_no_spans_and_bad_headers_pass(collector: Collector) -> None:
    bad = message(1, ("traceparent", b"00-nonsense"), ("tracestate", b"a=1"))
    _, results = run({"endpoint": collector.endpoint}, [bad, carrying(2, UNSAMPLED)])
    assert [list(result.headers or ()) for result in results] == [
        [("traceparent", b"00-nonsense"), ("tracestate", b"a=1")],
        [("traceparent", UNSAMPLED.header())],
    ]
    assert collector.spans == []


def test_the_span_of_a_record_that_fails_says_why(collector: Collector) -> None:
    summary, _ = run({"endpoint": collector.endpoint, "sample": 1}, [message(-1), message(1)])
    assert summary.dead == 1
    failed, fine = collector.named("process numbers")
    assert failed.status.code == ERROR
    assert "negative" in failed.status.message
    assert attributes(failed)["error.type"] == "ValueError"
    assert fine.status.code != ERROR


def test_a_dead_collector_holds_nothing_up_and_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streamer.tracing.exporting.PAUSE", 0.0)
    monkeypatch.setattr("streamer.tracing.exporting.BATCH", 64)
    monkeypatch.setattr("streamer.tracing.exporting.QUEUE", 256)
    summary, results = run({"endpoint": "http://127.0.0.1:9", "sample": 1}, [message(x) for x in range(1000)])
    assert (summary.ok, len(results)) == (1000, 1000)
    assert len([line for line in caplog.messages if "does not take spans" in line]) == 1


def test_an_error_of_a_batch_costs_its_spans_alone(collector: Collector) -> None:
    export = Export("doubles", collector.endpoint, logger())
    export.put(Finished("lost", 1, -1, 2, [], [], None, []))
    export.put(Finished("sent", 1, 1, 2, [], [], None, []))
    export.close()
    (span,) = collector.spans
    assert attributes(span)["streamer.source"] == "sent"


def test_of_a_batch_that_does_not_fit_into_the_queue_the_spans_that_do_are_sent(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streamer.tracing.exporting.DELAY", 60.0)
    monkeypatch.setattr("streamer.tracing.exporting.QUEUE", 8)
    export = Export("doubles", collector.endpoint, logger())

    def put(source: str, count: int) -> None:
        records = [RecordSpan(n, None, TraceContext(n + 1, n + 1), "doubles", n, 1) for n in range(count)]
        export.put(Finished(source, count, 1, 2, records, [Period("decode", 1, 2)], Period("run", 1, 2), []))

    put("first", 2)
    put("second", 9)
    put("third", 1)
    export.close()
    batches = {attributes(each)["streamer.source"]: each for each in collector.named("streamer batch")}
    assert sorted(batches) == ["first", "second"]
    names = ["streamer batch", "decode", "run", *["infer doubles"] * 2, "streamer batch", *["infer doubles"] * 2]
    assert [each.name for each in collector.spans] == names
    (line,) = [line for line in caplog.messages if "spans are lost" in line]
    assert f"lost={9 + 4}" in line


def test_spans_of_a_transaction_say_whether_its_results_were_published() -> None:
    sent: list[Finished] = []
    lost: set[Lane] = set()
    confirming = SimpleNamespace(unconfirmed=True)
    ledger = SimpleNamespace(has_ended=lost.__contains__)
    held = HeldBack(sent.append, cast(Any, SimpleNamespace(ledger=ledger, confirming=confirming)))
    lanes = [Lane("in", "a", 0), Lane("in", "b", 0)]
    part = cast(Any, SimpleNamespace(records=SimpleNamespace(lane_of=lanes.__getitem__)))

    def add() -> None:
        records = [RecordSpan(n, None, TraceContext(n + 1, 1), "doubles", n, 1) for n in range(2)]
        held.add(part, Finished("in", 2, 1, 2, records, [], None, []))

    def outcomes() -> list[tuple[str | None, list[str | None]]]:
        seen = [(each.transaction, [record.transaction for record in each.records]) for each in sent]
        assert all(b"commit" in b"".join(each.spans()) or each.transaction == "aborted" for each in sent)
        sent.clear()
        return seen  # type: ignore[return-value]

    add()
    add()
    assert outcomes() == []
    held.ended("committed")
    assert outcomes() == [("committed", ["committed"] * 2)] * 2
    add()
    held.ended("aborted")
    assert outcomes() == [("aborted", ["aborted"] * 2)]
    lost.add(lanes[0])
    add()
    held.ended("committed")
    assert outcomes() == [("committed", ["aborted", "committed"])]
    lost.add(lanes[1])
    add()
    assert outcomes() == [("aborted", ["aborted"] * 2)], "it was never sent"
    lost.clear()
    confirming.unconfirmed = False
    add()
    assert outcomes() == [("committed", ["committed"] * 2)], "its transaction has ended while it was sent"


def test_what_is_written_is_what_the_protocol_s_own_library_writes() -> None:
    context = TraceContext(1 << 127, 1 << 63)
    record = RecordSpan(0, context, context, Origin("kafka", "naïve" * 50, 3), 1 << 40, 1, ("ValueError", "\ud800 bad"))
    period = Period("decode", 1, 2)
    spans = Finished("a", 5, 1, 2, [record], [period], period, [period]).spans()
    resource = otlp.resource_of({"flag": True, "pid": -1, "share": 0.5, "args": ("a", 2), "name": "ä"})
    message = otlp.request(resource, otlp.scope_of("streamer", "1"), spans)
    read_back = ExportTraceServiceRequest.FromString(message)
    assert read_back.SerializeToString(deterministic=True) == message
    (of_resource,) = read_back.resource_spans
    assert [each.value.WhichOneof("value") for each in of_resource.resource.attributes] == [
        "bool_value",
        "int_value",
        "double_value",
        "array_value",
        "string_value",
    ]
    assert of_resource.resource.attributes[1].value.int_value == -1
    batch, *_, of_record = of_resource.scope_spans[0].spans
    assert of_record.status.message == "? bad"
    assert (of_record.flags, of_record.links[0].flags, batch.links[0].flags) == (0x301, 0x101, 0x301)


@pytest.mark.parametrize("compression", ["", "gzip", "deflate"])
def test_the_collector_gets_the_headers_and_the_compression_of_opentelemetrys_variables(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-scope=7")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    run({"endpoint": collector.endpoint, "sample": 1}, [message(1)])
    assert collector.named("process numbers")
    assert collector.headers[0]["authorization"] == "Bearer abc"
    assert collector.headers[0]["x-scope"] == "7"


def test_opentelemetry_is_not_imported_without_tracing() -> None:
    code = (
        "import sys, pipelines\n"
        "from streamer import testing\n"
        "from streamer.definition.service import Service\n"
        "memory = {'type': 'memory', 'topic': 'a'}\n"
        "service = Service(source=memory, pipeline=pipelines.Sequence([lambda data: data]), sink=memory)\n"
        "assert len(testing.run(service, [{'x': 1}]).results) == 1\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_check_names_the_extra_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from streamer.cli.findings import examined

    memory = {"type": "memory", "topic": "a"}
    service = Service(source=memory, pipeline=pipelines.Sequence([double]), sink=memory, tracing={"sample": "1%"})
    (fine,) = [each for each in examined(service).findings if each.part == "tracing"]
    assert fine.ok
    assert fine.text == "spans to http://localhost:4318, of 1% of the records that come without a trace"
    monkeypatch.setattr("pipelines.plugins.requirements._installed", lambda name: "opentelemetry" not in name)
    (missing,) = [each for each in examined(service).findings if each.part == "tracing"]
    assert not missing.ok
    assert "streamer-inference[otel]" in missing.text


@pytest.mark.parametrize(
    ("tracing", "says"),
    [
        ({"sample": 5}, "write 5%"),
        ({"sample": "101%"}, "less than or equal to 1"),
        ({"sample": "few"}, "a share like 1% or 0.01"),
        ({"endpoint": "localhost:4318"}, "an address like http://localhost:4318"),
    ],
)
def test_settings_that_make_no_sense_are_refused(tracing: dict[str, Any], says: str) -> None:
    memory = {"type": "memory", "topic": "a"}
    with pytest.raises(ValueError, match=says):
        Service(source=memory, pipeline=pipelines.Sequence([double]), sink=memory, tracing=tracing)
