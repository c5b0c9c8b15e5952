"""`streamer backfill`: results and errors of files, and what a second run does."""

import errno
import gzip
import os
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backfills import InThisProcess, rows, run, service_of, tree

import streamer
from connectors.codecs.compression import FORMATS
from pipelines.arrow import mapper
from pipelines.errors import DefinitionError, StreamerError
from streamer.backfill.formats import inputformat, jsonlines
from streamer.backfill.localfiles import LocalFiles
from streamer.backfill.plans.manifest import Manifest
from streamer.backfill.rowsfile import Lines

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
DOUBLE = [{"@type": "MAP", "ensure": ["x < 100"], "select": {"y": "x * 2"}, "keep": []}]


def table(path: Path, row_group_size: int | None = None, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)


@pytest.fixture
def doubling(tmp_path: Path) -> streamer.Service:
    return service_of(tmp_path, DOUBLE, keep=["id"])


def test_results_are_those_of_the_mapper(tmp_path: Path) -> None:
    with np.load(DIGITS / "digits.npz") as data:
        images = data["images"]
    digits = pa.table({"id": range(len(images)), "image": pa.FixedShapeTensorArray.from_numpy_ndarray(images)})
    (tmp_path / "in").mkdir()
    pq.write_table(digits, tmp_path / "in" / "a.parquet")
    summary = run(streamer.load(DIGITS / "digits.yaml"), f"{tmp_path}/in/*.parquet", tmp_path / "out")
    f = mapper(DIGITS / "digits.pipeline.yaml", keep=["id"], errors="drop", rows=512)
    expected = pa.Table.from_batches(list(f(digits.to_batches())))
    written = pq.read_table(tmp_path / "out" / "a.parquet")
    assert written.equals(expected.cast(written.schema))
    assert (summary.pieces, summary.rows, summary.results, summary.errors) == (1, 899, 899, 0)


def test_failed_rows_are_apart_and_can_be_the_input_of_the_next_run(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "in/day=1/a.parquet", id=[1, 2, 3], x=[1, 200, 3], note=["a", "b", None])
    table(tmp_path / "in/day=2/a.parquet", id=[4], x=[4], note=["d"])
    summary = run(doubling, f"{tmp_path}/in/day=*/*.parquet", tmp_path / "out")
    written = tree(tmp_path / "out")
    assert written["day=1/a.parquet"] == [{"id": 1, "y": 2}, {"id": 3, "y": 6}]
    assert written["day=2/a.parquet"] == [{"id": 4, "y": 8}]
    (failed,) = written["_errors/day=1/a.parquet"]
    error = failed.pop("_error")
    assert failed == {"id": 2, "x": 200, "note": "b"}
    assert error.startswith("0:MAP: ")
    assert set(written) == {"day=1/a.parquet", "day=2/a.parquet", "_errors/day=1/a.parquet"}
    assert (summary.rows, summary.results, summary.errors, summary.error) == (4, 3, 1, error)

    still = service_of(tmp_path, [{"@type": "MAP", "ensure": ["x < 50"]}])
    run(still, f"{tmp_path}/out/_errors/**/*.parquet", tmp_path / "still")
    assert list(tree(tmp_path / "still")["_errors/day=1/a.parquet"][0]) == ["id", "x", "note", "_error"]
    mended = service_of(tmp_path, [{"@type": "MAP", "select": {"y": "x * 2"}, "keep": ["id"]}], keep="all")
    run(mended, f"{tmp_path}/out/_errors/**/*.parquet", tmp_path / "again")
    assert tree(tmp_path / "again") == {"day=1/a.parquet": [{"id": 2, "x": 200, "note": "b", "y": 400}]}


def test_a_large_file_is_several_pieces_of_whole_row_groups(
    doubling: streamer.Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputformat, "ROWS_OF_PIECE", 250)
    table(tmp_path / "in/a.parquet", row_group_size=100, id=range(1050), x=[1.5] * 1050)
    summary = run(doubling, f"{tmp_path}/in/a.parquet", tmp_path / "out")
    written = tree(tmp_path / "out")
    assert [len(part) for part in written.values()] == [300, 300, 450]
    assert list(written) == [f"a-0000{number}-of-00003.parquet" for number in range(3)]
    assert [row["id"] for part in written.values() for row in part] == list(range(1050))
    assert summary.pieces == 3


def test_files_may_have_another_order_of_columns_further_ones_and_none_of_some_values(tmp_path: Path) -> None:
    service = service_of(tmp_path, [{"@type": "MAP", "select": {"y": "x * 2"}}], keep=["id"])
    table(tmp_path / "in/a.parquet", id=[1, 2], x=[1.0, None])
    table(tmp_path / "in/b.parquet", extra=[[1, 2]], x=[3.0], id=[3])
    table(tmp_path / "in/c.parquet", x=[4.0], struct=[{"a": 1}], image=[b"\x00"])
    run(service, f"{tmp_path}/in", tmp_path / "out")
    schemas = {pq.read_schema(path).names.__str__() for path in (tmp_path / "out").glob("*.parquet")}
    assert len(schemas) == 1
    written = tree(tmp_path / "out")
    assert [row["y"] for part in "abc" for row in written[f"{part}.parquet"]] == [2.0, None, 6.0, 8.0]
    assert written["b.parquet"][0]["extra"] == [1, 2]
    assert written["c.parquet"][0]["id"] is None
    assert written["c.parquet"][0]["struct"] == {"a": 1}


def test_a_column_that_is_needed_and_missing_is_refused_before_anything_runs(tmp_path: Path) -> None:
    table(tmp_path / "in/a.parquet", image=[[0.0] * 64])
    table(tmp_path / "in/b.parquet", imagee=[[0.0] * 64], other=[[0.0]])
    with pytest.raises(DefinitionError, match=r'b\.parquet: .*needs the column "image"; did you mean "imagee"'):
        run(streamer.load(DIGITS / "digits.yaml"), f"{tmp_path}/in/*", tmp_path / "out")
    assert tree(tmp_path / "out") == {}


def test_files_that_cannot_be_read_fail_alone(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "in/a.parquet", id=[1], x=[1])
    (tmp_path / "in/b.parquet").write_bytes(b"PAR1 nonsense")
    (tmp_path / "in/c.arrow").write_bytes(b"ARROW1\0\0 nonsense")
    (tmp_path / "in/d.jsonl.gz").write_bytes(gzip.compress(b'{"x": 1}\n' * 1000)[:-20])
    table(tmp_path / "in/e.parquet", id=[2], x=[2])
    summary = run(doubling, f"{tmp_path}/in", tmp_path / "out")
    assert sorted(tree(tmp_path / "out")) == ["a.parquet", "e.parquet"]
    assert [Path(piece).name for piece, _ in sorted(summary.failed)] == ["b.parquet", "c.arrow", "d.jsonl.gz"]
    summary = run(doubling, f"{tmp_path}/in", tmp_path / "out")
    assert (summary.before, len(summary.failed)) == (2, 3)


def test_empty_files_have_empty_outputs(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "in/a.parquet", id=pa.array([], pa.int64()), x=pa.array([], pa.int64()))
    (tmp_path / "in/b.jsonl").write_bytes(b"")
    summary = run(doubling, f"{tmp_path}/in", tmp_path / "out")
    assert (summary.pieces, summary.rows, summary.failed) == (2, 0, [])
    # Later files say what the columns are.
    table(tmp_path / "in/c.parquet", id=[1], x=[1])
    run(doubling, f"{tmp_path}/in", tmp_path / "out")
    assert tree(tmp_path / "out")["c.parquet"] == [{"id": 1, "y": 2}]


def test_arrow_files_and_streams_are_read_and_written(doubling: streamer.Service, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    records = pa.table({"id": [1, 2], "x": [1, 200]})
    with pa.ipc.new_file(tmp_path / "in/a.arrow", records.schema) as file:
        file.write_table(records)
    with pa.ipc.new_stream(tmp_path / "in/b.arrow", records.schema) as file:
        file.write_table(records)
    run(doubling, f"{tmp_path}/in/*", tmp_path / "out", format="arrow")
    written = tree(tmp_path / "out")
    assert written["a.arrow"] == written["b.arrow"] == [{"id": 1, "y": 2}]
    assert written["_errors/a.parquet"][0]["x"] == 200


LINES = [
    '{"id": 1, "x": 1, "note": "é"}',
    "",
    '{"id": 2, "x": 200, "nested": {"a": [1, null]}}',
    "{no json",
    '{"id": 3, "x": 3.25}',
    "[1]",
    '{"id": "four", "x": 4}',
    '{"x": 5, "_error": "of an earlier run"}',
]


def test_lines_equal_what_the_service_writes_byte_for_byte(tmp_path: Path) -> None:
    service = service_of(
        tmp_path, DOUBLE, keep="all", dead_letter={"type": "file", "path": "dead.jsonl", "format": "jsonl"}
    )
    lines = [line for line in LINES if "_error" not in line] * 400
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    run(service, f"{tmp_path}/in.jsonl", tmp_path / "out", format="jsonl")
    service.run()
    assert (tmp_path / "out/in.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert len(rows(tmp_path / "out/_errors/in.jsonl")) == len((tmp_path / "dead.jsonl").read_bytes().splitlines())


def test_lines_that_fail_are_lines_again(tmp_path: Path) -> None:
    service = service_of(tmp_path, DOUBLE, keep=["id"])
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1/a.ndjson").write_text("\n".join(LINES))
    run(service, f"{tmp_path}/day=*/*.ndjson", tmp_path / "out", format="jsonl")
    written = tree(tmp_path / "out")
    assert written["day=1/a.jsonl"] == [
        {"y": 2, "id": 1},
        {"y": 6.5, "id": 3},
        {"y": 8, "id": "four"},
        {"y": 10},
    ]
    failed = written["_errors/day=1/a.jsonl"]
    assert [(row.get("_line"), row.get("_payload")) for row in failed] == [(None, None), (4, "{no json"), (6, "[1]")]
    assert failed[0]["nested"] == {"a": [1, None]}
    assert all(row["_error"] for row in failed)


def test_errors_of_an_earlier_run_are_no_values_of_lines(tmp_path: Path) -> None:
    service = service_of(tmp_path, DOUBLE, keep="all")
    (tmp_path / "a.jsonl").write_text('{"x": 5, "_error": "of an earlier run"}\n')
    run(service, f"{tmp_path}/a.jsonl", tmp_path / "out", format="jsonl")
    assert tree(tmp_path / "out") == {"a.jsonl": [{"y": 10, "x": 5}]}


def test_lines_are_decoded_by_the_source_that_reads_json(tmp_path: Path) -> None:
    sources = [
        {"type": "file", "path": "a", "name": "a"},
        {"type": "file", "path": "b", "name": "b", "format": "jsonl", "codec": {"type": "json", "at": "/payload"}},
    ]
    service = service_of(tmp_path, DOUBLE, keep=["id"], source=sources)
    (tmp_path / "a.jsonl").write_text('{"payload": {"id": 1, "x": 1}}\n')
    run(service, f"{tmp_path}/a.jsonl", tmp_path / "out")
    assert tree(tmp_path / "out") == {"a.parquet": [{"id": 1, "y": 2}]}


def test_a_result_that_json_does_not_have_fails_its_record(tmp_path: Path) -> None:
    sink = {"type": "file", "path": "o.jsonl", "format": "jsonl", "codec": {"type": "json", "nan": "error"}}
    service = service_of(tmp_path, [{"@type": "MAP", "select": {"y": "x * 10"}, "keep": ["id"]}], sink=sink)
    table(tmp_path / "in/a.parquet", id=[1, 2], x=[1e308, 2.0])
    summary = run(service, f"{tmp_path}/in/*", tmp_path / "out", format="jsonl")
    assert (summary.results, summary.errors) == (1, 1)
    written = tree(tmp_path / "out")
    assert [row["id"] for row in written["_errors/a.parquet"]] == [1]
    assert written["_errors/a.parquet"][0]["_error"].startswith("encode: ")


def test_a_type_that_the_format_does_not_have_is_refused_before_anything_runs(tmp_path: Path) -> None:
    service = service_of(tmp_path, DOUBLE, keep=["span"])
    spans = pa.array([pa.MonthDayNano([1, 2, 3])])
    (tmp_path / "in").mkdir()
    with pa.ipc.new_file(tmp_path / "in/a.arrow", pa.schema({"span": spans.type, "x": pa.int64()})) as file:
        file.write_table(pa.table({"span": spans, "x": [1]}))
    with pytest.raises(StreamerError, match='"span" is of the type month_day_nano_interval, which parquet'):
        run(service, f"{tmp_path}/in/*", tmp_path / "out")


def test_code_is_refused_where_it_may_not_run(tmp_path: Path) -> None:
    service = service_of(tmp_path, [{"@type": "FUNCTION", "function": "backfillsteps:size"}])
    table(tmp_path / "in/a.parquet", x=[1])
    with pytest.raises(DefinitionError, match="runs code"):
        run(service.without_code(), f"{tmp_path}/in/*", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_results_that_are_no_lines_fail(tmp_path: Path) -> None:
    sink = {"type": "file", "path": "o.jsonl", "format": "jsonl", "codec": {"type": "json", "pretty": True}}
    service = service_of(tmp_path, DOUBLE, keep=["id"], sink=sink)
    table(tmp_path / "in/a.parquet", id=[1, 2], x=[1, 2])
    summary = run(service, f"{tmp_path}/in/*", tmp_path / "out", format="jsonl")
    assert (summary.results, summary.errors) == (0, 2)
    assert "line feeds: write the codec of the sink without pretty" in str(tree(tmp_path / "out"))


def test_an_arrow_file_whose_buffers_are_damaged_fails_alone(doubling: streamer.Service, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    texts = pa.array(["a", "\x00\x00", "c"])
    records = pa.table({"id": [1, 2, 3], "x": [1, 2, 3], "text": texts})
    with pa.ipc.new_file(tmp_path / "in/a.arrow", records.schema) as file:
        file.write_table(records)
    content = (tmp_path / "in/a.arrow").read_bytes()
    assert content.count(b"a\x00\x00c") == 1
    (tmp_path / "in/a.arrow").write_bytes(content.replace(b"a\x00\x00c", b"a\xff\xfec"))
    table(tmp_path / "in/b.parquet", id=[1], x=[1], text=["b"])
    summary = run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    assert sorted(tree(tmp_path / "out")) == ["b.parquet"]
    assert "a.arrow" in summary.failed[0][0]


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_lines_may_be_compressed(form: str, tmp_path: Path) -> None:
    service = service_of(tmp_path, DOUBLE, keep=["id"])
    text = b'{"id": 1, "x": 1}\n' * 5000
    (tmp_path / "in").mkdir()
    name = {"gzip": "a.jsonl.gz", "zstd": "a.ndjson.zst"}[form]
    (tmp_path / "in" / name).write_bytes(FORMATS[form].compressed(text, None))
    run(service, f"{tmp_path}/in/*", tmp_path / "out")
    assert tree(tmp_path / "out") == {"a.parquet": [{"id": 1, "y": 2}] * 5000}


def test_a_line_that_is_too_long_is_a_failure_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonlines, "MAX_RECORD", 1000)
    service = service_of(tmp_path, DOUBLE, keep=["id"])
    (tmp_path / "a.jsonl").write_text('{"id": 1, "x": 1}\n{"id": "' + "x" * 2000 + '", "x": 1}\n')
    summary = run(service, f"{tmp_path}/a.jsonl", tmp_path / "out", format="jsonl")
    assert "line 2: a line of 20" in summary.failed[0][1]
    assert summary.failed[0][1].endswith("take the line out, or write the file as Parquet")
    assert tree(tmp_path / "out") == {}


def test_a_full_disk_fails_a_file_and_says_what_to_do(
    doubling: streamer.Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(lines: Lines, rows: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    table(tmp_path / "in/a.parquet", id=[1], x=[1])
    with monkeypatch.context() as patched:
        patched.setattr(Lines, "add", full)
        summary = run(doubling, f"{tmp_path}/in", tmp_path / "out", format="jsonl")
    ((_, reason),) = summary.failed
    assert reason == (
        "its output cannot be written: No space left on device; make room, and run the same command again"
    )
    assert run(doubling, f"{tmp_path}/in", tmp_path / "out", format="jsonl").results == 1


def test_what_is_done_is_not_done_again_and_what_has_changed_is(doubling: streamer.Service, tmp_path: Path) -> None:
    for number in range(5):
        table(tmp_path / f"in/{number}.parquet", id=[number], x=[number])
    first = run(doubling, f"{tmp_path}/in/*", tmp_path / "out", engine=InThisProcess(stop_after=2))
    assert (first.pieces, first.left, first.stopped) == (2, 3, True)
    engine = InThisProcess()
    second = run(doubling, f"{tmp_path}/in/*", tmp_path / "out", engine=engine)
    assert (second.pieces, second.before, engine.ran) == (3, 2, ["2", "3", "4"])
    table(tmp_path / "in/1.parquet", id=[1, 1], x=[10, 200])
    engine = InThisProcess()
    third = run(doubling, f"{tmp_path}/in/*", tmp_path / "out", engine=engine)
    assert (third.pieces, third.before, third.changed, engine.ran) == (1, 4, 1, ["1"])
    written = tree(tmp_path / "out")
    assert written["1.parquet"] == [{"id": 1, "y": 20}]
    table(tmp_path / "in/1.parquet", id=[1], x=[11])
    assert run(doubling, f"{tmp_path}/in/*", tmp_path / "out").changed == 1
    assert tree(tmp_path / "out") == {
        f"{number}.parquet": [{"id": number, "y": 22 if number == 1 else 2 * number}] for number in range(5)
    }
    last = run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    assert (last.before, last.changed, last.pieces) == (5, 0, 0)


def test_of_a_file_of_several_pieces_those_that_are_missing_are_done(
    doubling: streamer.Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputformat, "ROWS_OF_PIECE", 10)
    table(tmp_path / "in/a.parquet", row_group_size=10, id=range(30), x=[1] * 30)
    run(doubling, f"{tmp_path}/in/*", tmp_path / "out", engine=InThisProcess(stop_after=1))
    engine = InThisProcess()
    run(doubling, f"{tmp_path}/in/*", tmp_path / "out", engine=engine)
    assert engine.ran == ["a-00001-of-00003", "a-00002-of-00003"]


def test_a_file_that_is_fewer_pieces_than_before_leaves_none_of_the_others(
    doubling: streamer.Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputformat, "ROWS_OF_PIECE", 10)
    table(tmp_path / "in/a.parquet", row_group_size=10, id=range(30), x=[1] * 30)
    run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    assert len(tree(tmp_path / "out")) == 3
    table(tmp_path / "in/a.parquet", row_group_size=10, id=range(20), x=[1] * 20)
    run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    assert list(tree(tmp_path / "out")) == ["a-00000-of-00002.parquet", "a-00001-of-00002.parquet"]


def test_the_types_of_results_hold_for_later_runs(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "in/a.parquet", id=[1], x=[1])
    run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    (tmp_path / "in/b.jsonl").write_text('{"id": "two", "x": 2}\n{"id": 3, "x": 3}\n')
    summary = run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    assert (summary.results, summary.errors) == (1, 1)
    written = tree(tmp_path / "out")
    assert written["b.parquet"] == [{"id": 3, "y": 6}]
    assert written["_errors/b.jsonl"][0]["_error"].startswith('arrow: WrongTypeError: the value of "id" is not int64')


def test_another_pipeline_or_format_is_refused_with_both_ways_out(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "in/a.parquet", id=[1], x=[1])
    run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    other = service_of(tmp_path, [{"@type": "MAP", "select": {"y": "x * 3"}, "keep": []}], keep=["id"])
    with pytest.raises(DefinitionError, match=r"pipeline differs\. Choose another --output, or .*--again"):
        run(other, f"{tmp_path}/in/*", tmp_path / "out")
    with pytest.raises(DefinitionError, match="format differs"):
        run(doubling, f"{tmp_path}/in/*", tmp_path / "out", format="jsonl")
    assert tree(tmp_path / "out") == {"a.parquet": [{"id": 1, "y": 2}]}
    run(other, f"{tmp_path}/in/*", tmp_path / "out", again=True, format="jsonl")
    assert tree(tmp_path / "out") == {"a.jsonl": [{"id": 1, "y": 3}]}
    table(tmp_path / "more/b.parquet", id=[1], x=[1])
    with pytest.raises(DefinitionError, match=r"would remove the results of 1 files .*a\.parquet"):
        run(other, f"{tmp_path}/more/*", tmp_path / "out", again=True, format="jsonl")


def test_a_model_that_is_replaced_is_another_pipeline(tmp_path: Path) -> None:
    for name in ("digits.yaml", "digits.pipeline.yaml", "digits.onnx"):
        (tmp_path / name).write_bytes((DIGITS / name).read_bytes())
    table(tmp_path / "in/a.parquet", id=[1], image=[[[0] * 8] * 8])
    run(streamer.load(tmp_path / "digits.yaml"), f"{tmp_path}/in/*", tmp_path / "out")
    model = tmp_path / "digits.onnx"
    os.utime(model, (1, 1))
    run(streamer.load(tmp_path / "digits.yaml"), f"{tmp_path}/in/*", tmp_path / "out")
    model.write_bytes(model.read_bytes() + b"\x72\x00")
    with pytest.raises(DefinitionError, match=r"file digits\.onnx differs"):
        run(streamer.load(tmp_path / "digits.yaml"), f"{tmp_path}/in/*", tmp_path / "out")


def test_two_inputs_with_the_same_output_are_refused(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "jan/a.parquet", id=[1], x=[1])
    table(tmp_path / "feb/a.parquet", id=[2], x=[2])
    both = [f"{tmp_path}/jan/*", f"{tmp_path}/feb/*"]
    with pytest.raises(DefinitionError, match=r"feb/a\.parquet and .*jan/a\.parquet would have the same output, a:"):
        run(doubling, both, tmp_path / "out")
    run(doubling, both[0], tmp_path / "out")
    with pytest.raises(DefinitionError, match="the same output"):
        run(doubling, both[1], tmp_path / "out")
    run(doubling, f"{tmp_path}/{{jan,feb}}/*", tmp_path / "both")
    assert set(tree(tmp_path / "both")) == {"jan/a.parquet", "feb/a.parquet"}


@pytest.mark.parametrize("output", ["in", "in/out", "in/day=1/out"])
def test_an_output_among_the_inputs_is_refused(doubling: streamer.Service, output: str, tmp_path: Path) -> None:
    table(tmp_path / "in/day=1/a.parquet", id=[1], x=[1])
    with pytest.raises(DefinitionError, match="results would become inputs"):
        run(doubling, f"{tmp_path}/in/**/*.parquet", tmp_path / output)
    assert sorted(path.name for path in (tmp_path / "in").rglob("*")) == ["a.parquet", "day=1"]


def test_inputs_that_do_not_exist_or_are_of_no_format_are_refused(doubling: streamer.Service, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x")
    with pytest.raises(DefinitionError, match="no file matches"):
        run(doubling, f"{tmp_path}/in/*.parquet", tmp_path / "out")
    with pytest.raises(DefinitionError, match=r"a\.csv is not known by its name"):
        run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    with pytest.raises(DefinitionError, match=r"no file of it has a known format; files end with \.parquet"):
        run(doubling, f"{tmp_path}/in", tmp_path / "out")


def test_an_output_that_cannot_be_written_is_an_error(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "in/a.parquet", id=[1], x=[1])
    (tmp_path / "out").write_text("a file")
    with pytest.raises(StreamerError, match=r"out/_manifest cannot be written: .*choose another folder"):
        run(doubling, f"{tmp_path}/in/*", tmp_path / "out")


def test_a_folder_with_files_that_are_no_manifest_is_refused(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "in/a.parquet", id=[1], x=[1])
    (tmp_path / "out/_manifest").mkdir(parents=True)
    (tmp_path / "out/_manifest/00000001.jsonl").write_text("[1]\n")
    with pytest.raises(StreamerError, match="no part of a manifest"):
        run(doubling, f"{tmp_path}/in/*", tmp_path / "out")


@pytest.mark.parametrize("name", ["../a.parquet", "/etc/a.parquet", "b/../../a.parquet"])
def test_a_manifest_names_no_files_outside_of_its_folder(name: str, tmp_path: Path) -> None:
    service = service_of(tmp_path, DOUBLE)
    table(tmp_path / "in/a.parquet", x=[1])
    run(service, f"{tmp_path}/in/*", tmp_path / "out")
    part = tmp_path / "out/_manifest/00000002.jsonl"
    part.write_text(part.read_text().replace('"a.parquet", "errors"', f'"{name}", "errors"'))
    table(tmp_path / "in/a.parquet", x=[1, 2])
    with pytest.raises(StreamerError, match="no part of a manifest"):
        run(service, f"{tmp_path}/in/*", tmp_path / "out")


def test_many_parts_of_a_manifest_are_put_together(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "in/0.parquet", id=[0], x=[0])
    run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    for number in range(1, 4):
        table(tmp_path / f"in/{number}.parquet", id=[number], x=[number])
        run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    parts = tmp_path / "out/_manifest"
    lines = [path.read_text() for path in sorted(parts.glob("*.jsonl"))]
    # More of them, as of a run that took long.
    for number in range(100):
        (parts / f"{number + 10:08d}.jsonl").write_text(lines[1])
    table(tmp_path / "in/4.parquet", id=[4], x=[4])
    assert run(doubling, f"{tmp_path}/in/*", tmp_path / "out").before == 4
    assert len(list(parts.glob("*.jsonl"))) == 2
    manifest = Manifest(LocalFiles(), str(tmp_path / "out"))
    assert sorted(entry.output for entry in manifest.entries.values()) == [f"{number}.parquet" for number in range(5)]
    assert run(doubling, f"{tmp_path}/in/*", tmp_path / "out").before == 5


def test_a_service_that_remembers_records_or_has_variants_is_refused(tmp_path: Path) -> None:
    table(tmp_path / "in/a.parquet", id=[1], x=[1])
    window = service_of(tmp_path, [{"@type": "DEDUP", "by": "id", "for": "1h"}], state="memory")
    with pytest.raises(DefinitionError, match=r"service\.yaml:1: step 0:DEDUP remembers .*file source"):
        run(window, f"{tmp_path}/in/*", tmp_path / "out")
    varied = service_of(tmp_path, DOUBLE, variants={"next": {"version": 4, "weight": 10}})
    with pytest.raises(DefinitionError, match=r"variants: not possible in a backfill"):
        run(varied, f"{tmp_path}/in/*", tmp_path / "out")


def test_all_records_that_fail_from_the_first_on_are_errors(doubling: streamer.Service, tmp_path: Path) -> None:
    table(tmp_path / "in/a.parquet", id=[1, 2], x=[200, 300])
    summary = run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    assert (summary.results, summary.errors) == (0, 2)
    assert len(tree(tmp_path / "out")["_errors/a.parquet"]) == 2


def test_of_a_service_that_fails_for_everything_the_reason_is_told(tmp_path: Path) -> None:
    service = service_of(tmp_path, DOUBLE, batch={"max_records": 10})
    table(tmp_path / "in/a.parquet", id=range(1000), x=[200] * 1000)
    with pytest.raises(StreamerError, match="all records of the first 64 batches failed"):
        run(service, f"{tmp_path}/in/*", tmp_path / "out")


def test_one_row_in_a_hundred_that_fails_is_counted_exactly(doubling: streamer.Service, tmp_path: Path) -> None:
    count = 200_000
    table(
        tmp_path / "in/a.parquet",
        row_group_size=50_000,
        id=range(count),
        x=[200 if number % 100 == 7 else 1 for number in range(count)],
    )
    summary = run(doubling, f"{tmp_path}/in/*", tmp_path / "out")
    assert (summary.rows, summary.results, summary.errors) == (count, count - 2000, 2000)
    written = tree(tmp_path / "out")
    assert [row["id"] for name, part in written.items() if name.startswith("_errors") for row in part] == [
        number for number in range(count) if number % 100 == 7
    ]
    assert len(written["a-00000-of-00002.parquet"]) == 99_000


def test_images_are_records_with_their_names_as_keys(tmp_path: Path) -> None:
    from PIL import Image as Pillow

    service = service_of(
        tmp_path,
        [{"@type": "FUNCTION", "function": "backfillsteps:size"}],
        source={"type": "file", "path": "pictures", "format": "images", "into": {"key": "name"}},
        keep=["name"],
    )
    for folder, count in (("cam=1", 3), ("cam=2", 1)):
        (tmp_path / "pictures" / folder).mkdir(parents=True)
        for number in range(count):
            Pillow.new("RGB", (10 + number, 5)).save(tmp_path / "pictures" / folder / f"{number}.png")
    (tmp_path / "pictures/cam=1/9.jpg").write_bytes(b"no picture")
    summary = run(service, f"{tmp_path}/pictures/*/*", tmp_path / "out")
    written = tree(tmp_path / "out")
    assert written["cam=1/0.png-and-3.parquet"] == [
        {"_file": f"cam=1/{number}.png", "name": f"cam=1/{number}.png", "width": 10 + number} for number in range(3)
    ]
    assert written["cam=2/0.png.parquet"] == [{"_file": "cam=2/0.png", "name": "cam=2/0.png", "width": 10}]
    (failed,) = written["_errors/cam=1/0.png-and-3.parquet"]
    assert (failed["_file"], failed["image"]) == ("cam=1/9.jpg", b"no picture")
    assert summary.pieces == 2
    # More of them are a piece of their own.
    Pillow.new("RGB", (50, 5)).save(tmp_path / "pictures/cam=1/4.png")
    engine = InThisProcess()
    run(service, f"{tmp_path}/pictures/*/*", tmp_path / "out", engine=engine)
    assert engine.ran == ["cam=1/4.png"]
    # What failed is an input again, though it is no picture still.
    run(service, f"{tmp_path}/out/_errors/**/*", tmp_path / "again")
    assert len(tree(tmp_path / "again")["_errors/cam=1/0.png-and-3.parquet"]) == 1


def test_results_of_images_say_of_which_also_beside_tables(tmp_path: Path) -> None:
    from PIL import Image as Pillow

    resize = [{"@type": "IMAGE_RESIZE", "inputNames": ["image"], "width": 2, "height": 2}]
    service = service_of(tmp_path, [*resize, {"@type": "MAP", "select": {"one": "1"}, "keep": []}])
    content = BytesIO()
    Pillow.new("RGB", (4, 4)).save(content, "png")
    for path in ("in/b.png", "in/deep/c.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content.getvalue())
    image = pa.field("image", pa.binary(), metadata={"image": "true"})
    pq.write_table(pa.table([[content.getvalue()]], schema=pa.schema([image])), tmp_path / "in/a.parquet")
    run(service, f"{tmp_path}/in", tmp_path / "out")
    assert tree(tmp_path / "out") == {
        "a.parquet": [{"_file": None, "one": 1}],
        "b.png.parquet": [{"_file": "b.png", "one": 1}],
        "deep/c.png.parquet": [{"_file": "deep/c.png", "one": 1}],
    }
    run(service, f"{tmp_path}/in/**/*.png", tmp_path / "lines", format="jsonl")
    assert (tmp_path / "lines/deep/c.png.jsonl").read_text() == '{"one":1,"_file":"deep/c.png"}\n'


def test_a_stop_leaves_no_half_of_a_file(doubling: streamer.Service, tmp_path: Path) -> None:
    class Noticing(InThisProcess):
        def outcomes(self, job: Any, pieces: Any, stop: Any) -> Any:
            worker = job.open()
            (piece,) = pieces
            asked: list[int] = []

            def stopped() -> bool:
                asked.append(1)
                return len(asked) > 3

            assert worker.run(piece, stopped) is None
            assert len(asked) == 4
            worker.close()
            yield None

    table(tmp_path / "in/a.parquet", id=range(5000), x=[1] * 5000)
    summary = run(doubling, f"{tmp_path}/in/*", tmp_path / "out", engine=Noticing())
    assert (summary.pieces, summary.left) == (0, 1)
    assert tree(tmp_path / "out") == {}
