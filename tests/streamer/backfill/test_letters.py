"""Dead letters of a service as the input of a backfill: a mended pipeline runs over what failed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from backfills import InThisProcess, rows, run, tree
from confluent_kafka import Producer
from kafkatopics import read

import streamer
from connectors.codecs.letterdocument import document
from pipelines import Data
from pipelines.errors import ConnectorError, DefinitionError
from streamer.backfill.formats.letters import partition_file
from streamer.backfill.formats.registry import FORMATS
from streamer.backfill.plans.deadletters import pieces_left
from streamer.backfill.plans.listing import InputFile
from streamer.devbroker import Broker

STRICT = f"{__name__}:strict"
MENDED = f"{__name__}:mended"


def strict(data: Data) -> Data:
    return Data({"id": data["id"], "double": data["x"] * 2.0})


def mended(data: Data) -> Data:
    return Data({"id": data["id"], "double": float(data["x"]) * 2.0})


def service_of(folder: Path, function: str, **fields: Any) -> streamer.Service:
    """Reads a file, and writes dead letters to one, unless told otherwise."""
    described = {
        "name": "doubles",
        "source": {"type": "file", "path": "in.jsonl", "format": "jsonl", "codec": "json"},
        "pipeline": [{"@type": "FUNCTION", "function": function}],
        "sink": {"type": "file", "path": "out.jsonl", "format": "jsonl"},
        "dead_letter": {"type": "file", "path": "dead.jsonl", "format": "jsonl"},
        "errors": {"stop_ratio": 1.0},
        **fields,
    }
    path = folder / f"{function.rpartition(':')[2]}.yaml"
    path.write_text(json.dumps(described))
    return streamer.load(path)


def letter_of(payload: bytes | None, topic: str = "in.jsonl", offset: int = 7, **more: str) -> bytes:
    """A line of a file of dead letters."""
    fields = {"topic": topic, "partition": "0", "offset": str(offset), "timestamp": "5000", "step": "double"}
    # Those that only some letters have stand before the others.
    ours = {**{name: value for name, value in more.items() if name not in fields}, **fields, **more}
    headers = [(f"streamer-{name}".replace("_", "-"), value.encode()) for name, value in ours.items()]
    return document(payload, b"k", [*headers, ("trace", b"t1")])


def dead(folder: Path, *lines: bytes) -> None:
    with (folder / "dead.jsonl").open("ab") as file:
        file.writelines(line + b"\n" for line in lines)


def test_letters_that_a_service_has_written_are_run_once_by_a_mended_pipeline(tmp_path: Path) -> None:
    lines = [{"id": number, "x": number if number % 20 else str(number)} for number in range(200)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    service_of(tmp_path, STRICT).run()
    service, out = service_of(tmp_path, MENDED, keep=["x"]), tmp_path / "results"
    summary = run(service, "letters", out)
    assert (summary.rows, summary.results, summary.errors) == (10, 10, 0)
    source = "in.jsonl"
    origin = {"_topic": source, "_partition": 0}
    assert tree(out) == {
        "letters-0-0-10.parquet": [
            {"x": str(number), **origin, "_offset": number, "id": number, "double": number * 2.0}
            for number in range(0, 200, 20)
        ]
    }
    again = run(service, "letters", out)
    assert (again.pieces, again.before) == (0, 1)
    dead(tmp_path, letter_of(b'{"id": 1000, "x": "8"}', source, 1000))
    assert run(service, "letters", out).results == 1
    assert [row["_offset"] for row in rows(out / "letters-0-10-11.parquet")] == [1000]
    assert run(service, "letters", out).pieces == 0


def test_what_has_no_record_to_run_and_what_fails_again_is_among_the_errors(tmp_path: Path) -> None:
    dead(
        tmp_path,
        letter_of(b'{"id": 1, "x": "3"}', offset=1),
        letter_of(b'{"id": 2, "x": "three"}', offset=2),
        letter_of(b"{", offset=3),
        letter_of(b'{"id": 4}', offset=4, window="json"),
        letter_of(b"{}", offset=5, left_out="payload", size="9"),
        letter_of(None, offset=6),
        b'{"id": 7, "x": 1}',
        b"no JSON",
        letter_of(b'{"id": 8, "x": 4}', offset=2**70, partition="9" * 5000),
    )
    out = tmp_path / "out"
    summary = run(service_of(tmp_path, MENDED), "letters", out)
    assert (summary.rows, summary.results, summary.errors, summary.failed) == (9, 2, 7, [])
    assert [(row["_offset"], row["_partition"], row["id"]) for row in rows(out / "letters-0-0-9.parquet")] == [
        (1, 0, 1),
        (-1, -1, 8),
    ]
    errors = rows(out / "_errors/letters-0-0-9.parquet")
    assert [(row["_letter"], row["_offset"], row["_payload"]) for row in errors] == [
        (1, 2, b'{"id": 2, "x": "three"}'),
        (2, 3, b"{"),
        (3, 4, b'{"id": 4}'),
        (4, 5, errors[3]["_payload"]),
        (5, 6, None),
        (6, None, b'{"id": 7, "x": 1}'),
        (7, None, b"no JSON"),
    ]
    said = [row["_error"] for row in errors]
    assert "could not convert string to float" in said[0]
    assert said[1].startswith("decode: ")
    assert said[2] == "letters: it has the values of a window, whose last record is at in.jsonl[0]@4"
    assert "no payload; the record is, as long as its topic keeps it, at in.jsonl[0]@5" in said[3]
    assert said[4:] == ["letters: its record has no payload", *["letters: it is no dead letter"] * 2]


def test_each_record_is_decoded_as_by_the_source_that_has_read_it(tmp_path: Path) -> None:
    def kafka(topic: str, codec: Any, **more: Any) -> dict[str, Any]:
        return {"type": "kafka", "topics": topic, "bootstrap": "localhost:1", "codec": codec, "name": topic, **more}

    into = {"key": "key", "headers.trace": "trace", "timestamp": "at", "offset": "place", "topic": "from"}
    csv = {"type": "csv", "names": ["id", "x"]}
    sources = [
        kafka("a", "json", into=into),
        kafka("b", csv),
        kafka("^c", "json"),
        kafka("^cc", "json", into={"key": "k"}),
    ]
    dead(
        tmp_path,
        letter_of(b"2,4", "b", partition="1"),
        letter_of(b'{"id": 1, "x": 3}', "a", 11),
        letter_of(b"3,5", "b"),
        letter_of(b"6,6", "b", partition="1"),
        letter_of(b'{"id": 4, "x": 3}', "c1"),
        letter_of(b'{"id": 5, "x": 3}', "cc1"),
    )
    service = service_of(tmp_path, MENDED, source=sources, keep=list(into.values()))
    run(service, "letters", tmp_path / "out", format="jsonl")
    results = {int(row["id"]): row for row in rows(tmp_path / "out/letters-0-0-6.jsonl")}
    assert {number: row["double"] for number, row in results.items()} == {1: 6.0, 2: 8.0, 3: 10.0, 4: 6.0, 6: 12.0}
    assert {key: results[1][key] for key in into.values()} == {
        "key": "k",
        "trace": "t1",
        "at": 5000,
        "place": 11,
        "from": "a",
    }
    assert {number: (row["_topic"], row["_partition"], row["_offset"]) for number, row in results.items()} == {
        1: ("a", 0, 11),
        2: ("b", 1, 7),
        3: ("b", 0, 7),
        4: ("c1", 0, 7),
        6: ("b", 1, 7),
    }
    (error,) = rows(tmp_path / "out/_errors/letters-0-0-6.parquet")
    assert error["_error"] == 'letters: it is not known which source of doubles has read "cc1"'


class WhileLettersCome(InThisProcess):
    """Another letter is written when the pieces are planned."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def outcomes(self, job: Any, pieces: Any, stop: Any) -> Any:
        dead(self._folder, letter_of(b'{"id": 9, "x": 9}', offset=9))
        return super().outcomes(job, pieces, stop)


def test_letters_that_come_meanwhile_are_left_to_the_next_run(tmp_path: Path) -> None:
    dead(tmp_path, letter_of(b'{"id": 1, "x": 3}'))
    service, out = service_of(tmp_path, MENDED), tmp_path / "out"
    assert run(service, "letters", out, engine=WhileLettersCome(tmp_path)).results == 1
    assert run(service, "letters", out).results == 1
    assert {name: [row["id"] for row in part] for name, part in tree(out).items()} == {
        "letters-0-0-1.parquet": [1],
        "letters-0-1-2.parquet": [9],
    }


def test_the_pipeline_does_not_see_where_records_are_from_and_keep_all_has_it(tmp_path: Path) -> None:
    dead(tmp_path, letter_of(b'{"id": 1, "x": 3}'))
    run(service_of(tmp_path, f"{__name__}:names", keep="all"), "letters", tmp_path / "out")
    (row,) = rows(tmp_path / "out/letters-0-0-1.parquet")
    assert row == {"names": "id,x", "id": 1, "x": 3, "_topic": "in.jsonl", "_partition": 0, "_offset": 7}


def names(data: Data) -> Data:
    return Data({"names": ",".join(sorted(data))})


def test_replay_does_not_take_them_for_replayed(tmp_path: Path) -> None:
    dead(tmp_path, letter_of(b'{"id": 1, "x": 3}'))
    before = sorted(path.name for path in tmp_path.iterdir())
    run(service_of(tmp_path, MENDED), "letters", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "mended.yaml", "out"])


def test_letters_are_an_input_alone_and_of_a_service_that_has_some(tmp_path: Path) -> None:
    dead(tmp_path, letter_of(b'{"id": 1, "x": 3}'))
    service = service_of(tmp_path, MENDED)
    with pytest.raises(DefinitionError, match=r"no input beside others.*\./letters"):
        run(service, ["letters", "in.jsonl"], tmp_path / "out")
    with pytest.raises(DefinitionError, match=r"has no dead_letter in a topic of a bus"):
        run(service_of(tmp_path, MENDED, dead_letter=None), "letters", tmp_path / "out")
    (tmp_path / "dead.jsonl").unlink()
    with pytest.raises(ConnectorError, match="no dead letter has been written yet"):
        run(service, "letters", tmp_path / "out")


def test_fewer_letters_than_are_done_are_others(tmp_path: Path) -> None:
    service, out = service_of(tmp_path, MENDED), tmp_path / "out"
    dead(tmp_path, letter_of(b'{"id": 1, "x": 3}'), letter_of(b'{"id": 2, "x": 3}'))
    run(service, "letters", out)
    (tmp_path / "dead.jsonl").unlink()
    dead(tmp_path, letter_of(b'{"id": 3, "x": 3}'))
    with pytest.raises(DefinitionError, match=r"has 1 letters, and those before 2 are done.*--again"):
        run(service, "letters", out)
    assert run(service, "letters", out, again=True).results == 1
    assert list(tree(out)) == ["letters-0-0-1.parquet"]


@pytest.mark.parametrize(
    ("done", "left"),
    [
        ([], [(5, 100_005), (100_005, 200_005), (200_005, 250_000)]),
        ([(5, 250_000)], []),
        ([(100_005, 200_005)], [(5, 100_005), (200_005, 250_000)]),
        ([(0, 3), (200_005, 240_000), (5, 100_005)], [(100_005, 200_005), (240_000, 250_000)]),
        ([(0, 200_000)], [(200_000, 250_000)]),
    ],
)
def test_what_is_left_of_a_partition_are_the_offsets_in_no_piece_that_is_done(
    done: list[tuple[int, int]], left: list[tuple[int, int]]
) -> None:
    entry = InputFile(partition_file("dead", 3, "id"), FORMATS["letters"], (5, 250_000))
    pieces = pieces_left(entry, done)
    assert [piece.part for piece in pieces] == left
    assert [piece.output for piece in pieces] == [f"letters-3-{first}-{last}" for first, last in left]


@pytest.mark.timeout(200)
def test_only_what_failed_is_run_and_only_what_is_new_later(
    kafka: Broker, topics: Any, topic_name: Any, tmp_path: Path
) -> None:
    origin, dead_topic, group = topics(partitions=3), topics(partitions=2), topic_name()
    fields = {
        "source": {
            "type": "kafka",
            "topics": origin,
            "bootstrap": kafka.bootstrap,
            "group": group,
            "start": "earliest",
            "codec": "json",
            "into": {"key": "device"},
        },
        "sink": {"type": "memory", "topic": topic_name()},
        "dead_letter": {"type": "kafka", "topic": dead_topic, "bootstrap": kafka.bootstrap},
        "keep": ["device"],
    }

    def failed(first: int, count: int, share: int) -> None:
        """So many records, one of `share` of which the service cannot run."""
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(first, first + count):
            line = {"id": number, "x": number if number % share else str(number)}
            producer.produce(origin, json.dumps(line), f"d{number}")
        assert producer.flush(60) == 0
        before = len(read(kafka.bootstrap, dead_topic))
        with service_of(tmp_path, STRICT, **fields):
            read(kafka.bootstrap, dead_topic, before + count // share)

    failed(0, 1000, 20)
    service, out = service_of(tmp_path, MENDED, **fields), tmp_path / "results"
    engine = InThisProcess()
    first = run(service, "letters", out, engine=engine)
    assert (first.rows, first.results, first.errors) == (50, 50, 0)
    assert len(engine.ran) == 2
    results = [row for each in tree(out).values() for row in each]
    assert sorted(row["id"] for row in results) == list(range(0, 1000, 20))
    originals = {
        (message.partition, position): json.loads(message.value)["id"]
        for partition, messages in _by_partition(read(kafka.bootstrap, origin, 1000)).items()
        for position, message in enumerate(messages)
    }
    assert all(row["id"] == originals[row["_partition"], row["_offset"]] for row in results)
    assert {(row["_topic"], row["device"] == f"d{row['id']}", row["double"] == 2 * row["id"]) for row in results} == {
        (origin, True, True)
    }
    again = run(service, "letters", out)
    assert (again.pieces, again.results, again.before) == (0, 0, 2)
    failed(1000, 20, 1)
    new = run(service, "letters", out)
    assert (new.rows, new.results) == (20, 20)
    counts = Counter(row["id"] for each in tree(out).values() for row in each)
    assert counts == Counter([*range(0, 1000, 20), *range(1000, 1020)])


def _by_partition(messages: list[Any]) -> dict[int, list[Any]]:
    parts: dict[int, list[Any]] = {}
    for message in messages:
        parts.setdefault(message.partition, []).append(message)
    return parts
