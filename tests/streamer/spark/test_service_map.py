"""A service as a function of Arrow's batches, without Spark: results, letters, metrics, and when it stops."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streamer
from pipelines.errors import DISTRIBUTION, DefinitionError, StreamerError
from streamer.shipped import ShippedService
from streamer.spark import mapping
from streamer.spark.arrowrows import HEADERS
from streamer.spark.mapping import ServiceMap

SERVICE = """
name: s
source: {type: kafka, topics: [a], codec: json, into: {key: device}}
pipeline:
  steps:
    - {"@type": MAP, where: "x >= 0", ensure: ["x < 900"], keep: [x], select: {y: "x * 2"}}
keep: [id, device]
batch: {max_records: 8}
sink: {type: kafka, topic: out, codec: json}
dead_letter: {type: kafka, topic: dead}
"""


@pytest.fixture(autouse=True)
def none_open() -> Iterator[None]:
    yield
    for _, stages in mapping._open.values():
        stages.close()
    mapping._open.clear()


def made(text: str = SERVICE, *, query: str = "q", steps: tuple[str, ...] = ("0:MAP",), **fields: Any) -> ServiceMap:
    service = replace(ShippedService.of(streamer.loads(text), None), **fields)
    return ServiceMap(query=query, service=service, steps=steps)


def batch(values: list[bytes | None], *, start: int = 0, partition: int = 0) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["a"] * count),
            "partition": pa.array([partition] * count, pa.int32()),
            "offset": pa.array(range(start, start + count), pa.int64()),
            "timestamp": pa.array([10**15] * count, pa.timestamp("us", "UTC")),
            "headers": pa.nulls(count, HEADERS),
        }
    )


def records(*numbers: int) -> list[bytes | None]:
    return [json.dumps({"id": number, "x": number}).encode() for number in numbers]


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for each in batches for row in each.to_pylist()]


def sent(batches: list[pa.RecordBatch]) -> Counter[str]:
    return Counter(row["topic"] for row in rows(batches) if row["topic"] is not None)


def summed(batches: list[pa.RecordBatch]) -> dict[str, float]:
    totals: Counter[str] = Counter()
    for row in rows(batches):
        totals.update(row["metrics"] or {})
    return dict(totals)


def test_records_become_results_letters_or_nothing_and_metrics_say_how_many() -> None:
    values = [*records(*range(20)), b"junk", *records(950, -1), None]
    given = list(made()([batch(values[:10]), batch([]), batch(values[10:], start=10)]))
    assert sent(given) == {"out": 21, "dead": 2}
    first = next(row for row in rows(given) if row["value"] is not None)
    assert (first["topic"], first["key"]) == ("out", b"k")
    assert json.loads(first["value"]) == {"id": 0, "device": "k", "x": 0, "y": 0}
    # A record without a payload is forwarded, as the source says nothing else.
    assert [row["value"] for row in rows(given) if row["topic"] == "out"].count(None) == 1
    letters = {row["value"] for row in rows(given) if row["topic"] == "dead"}
    assert letters == {b"junk", json.dumps({"id": 950, "x": 950}).encode()}
    totals = summed(given)
    assert totals.pop("s0") > 0
    assert totals == {"ok": 21, "dead": 2, "dropped": 1, "passed": 0, "failed": 0}


def test_the_next_task_of_a_process_uses_the_same_models() -> None:
    function = made()
    list(function([batch(records(1))]))
    (first,) = mapping._open.values()
    # The same offsets once more: the task before has failed elsewhere.
    assert sent(list(function([batch(records(1))]))) == {"out": 1}
    assert sent(list(pickle.loads(pickle.dumps(function))([batch(records(2))]))) == {"out": 1}
    assert mapping._open == {"s": first}
    # Nor does it keep anything of the partitions of tasks that have ended.
    assert first[1]._delivery.ledger.marks() == {}


def test_another_start_of_the_query_opens_its_models_anew() -> None:
    list(made()([batch(records(1))]))
    (first,) = mapping._open.values()
    assert sent(list(made(query="r")([batch(records(1))]))) == {"out": 1}
    (second,) = mapping._open.values()
    assert second[1] is not first[1]


def test_letters_are_sent_at_the_end_of_a_task_even_if_every_record_of_it_failed() -> None:
    given = list(made()([batch([b"junk"] * 5)]))
    assert sent(given) == {"dead": 5}
    assert summed(given)["dead"] == 5


def test_a_service_stops_when_all_of_the_first_records_fail() -> None:
    with pytest.raises(StreamerError, match=r"all of the first \d+ records failed in decode"):
        list(made()([batch([b"junk"] * 50)]))
    # What was half done is forgotten, so that the task can be run again here.
    assert mapping._open == {}
    assert sent(list(made()([batch(records(1))]))) == {"out": 1}


def test_a_task_that_is_given_up_leaves_nothing_half_done() -> None:
    running = made()([batch(records(*range(20))), batch(records(1), start=20)])
    next(iter(running))
    running.close()  # type: ignore[attr-defined]
    assert mapping._open == {}


def test_a_bad_record_without_dead_letters_is_named() -> None:
    without = SERVICE.replace("dead_letter: {type: kafka, topic: dead}", "")
    with pytest.raises(StreamerError, match=r"a\[0\]@3.*give the service a dead_letter"):
        list(made(without)([batch([*records(0, 1, 2), b"junk", *records(*range(50))])]))


def test_a_result_that_is_too_large_or_has_no_possible_topic_becomes_a_dead_letter() -> None:
    """Both would fail the whole query, again and again."""
    text = SERVICE.replace("topic: out,", 'topic: "{kind}", topics: ["^.*$"], max_message: 2000,').replace(
        "keep: [x]", "keep: all"
    )
    values: list[bytes | None] = [
        b'{"x": 1, "id": 1, "kind": "out"}',
        b'{"x": 1, "id": 2, "kind": "a topic"}',
        b'{"x": 1, "id": 3, "kind": ".."}',
        b'{"x": 1, "id": "%s", "kind": "out"}' % (b"x" * 3000),
        b'{"x": 1, "id": 5, "kind": "%s"}' % (b"t" * 250),
        *[b'{"x": 1, "id": 1, "kind": "out"}'] * 10,
    ]
    given = list(made(text)([batch(values)]))
    assert sent(given) == {"out": 11, "dead": 4}
    texts = [
        header["value"].decode()
        for row in rows(given)
        if row["topic"] == "dead"
        for header in row["headers"]
        if header["key"] == "streamer-text"
    ]
    assert sum("is no name that a topic can have" in text for text in texts) == 3
    assert sum("max_message is 2000; raise it" in text for text in texts) == 1


def test_a_letter_that_is_too_large_goes_without_its_payload() -> None:
    text = SERVICE.replace("topic: dead}", "topic: dead, max_message: 2000}")
    (letter,) = [
        row for row in rows(list(made(text)([batch([*records(*range(5)), b"x" * 3000])]))) if row["topic"] == "dead"
    ]
    assert len(letter["value"]) < 2000
    assert {header["key"]: header["value"] for header in letter["headers"]}["streamer-left-out"] == b"payload"


def test_a_worker_with_another_streamer_is_refused_with_both_versions() -> None:
    with pytest.raises(StreamerError, match=rf"has {DISTRIBUTION} {version(DISTRIBUTION)}, and the driver 9\.9\.9"):
        # The service of another version is not even read.
        list(made(version="9.9.9", pickled=b"of another version")([batch(records(1))]))


def test_a_file_that_a_worker_lacks_is_named_with_how_to_ship_it(tmp_path: Path) -> None:
    text = SERVICE.replace('"@type": MAP', '"@type": ONNX, modelUri: fault.onnx').partition(", where")
    service = f"{text[0]}}}\n" + SERVICE[SERVICE.index("batch:") :]
    with pytest.raises(StreamerError, match=r"(?s)fault\.onnx.*put them there on each worker.*spark\.files"):
        list(made(service)([batch(records(1))]))


TRACKS = """
name: s
source: {type: kafka, topics: [a], codec: json}
pipeline: {steps: [{"@type": TRACK}]}
sink: {type: kafka, topic: out, codec: json}
"""


def test_a_step_that_remembers_is_refused_also_where_only_opening_tells_it() -> None:
    with pytest.raises((DefinitionError, StreamerError), match="step 0:TRACK remembers earlier records"):
        list(made(TRACKS)([batch(records(1))]))
