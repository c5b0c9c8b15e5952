"""A pipeline as a function of record batches: columns that are kept, rows that fail, types, and other processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import pipelines
from pipelines import Batch, Data, DefinitionError, Sequence, StepError, StreamerError
from pipelines.arrow import Mapper, mapper
from pipelines.executors.sequence import SequenceExecutor
from pipelines.steps import Map, Onnx, Window

EXAMPLE = Path(__file__).parents[3] / "examples" / "digits"
DIGITS = EXAMPLE / "digits.pipeline.yaml"


@pytest.fixture(scope="module")
def images() -> Any:
    with np.load(EXAMPLE / "digits.npz") as data:
        return data["images"]


@pytest.fixture(scope="module")
def records(images: Any) -> Any:
    return pa.record_batch(
        {"id": pa.array(range(len(images)), pa.int32()), "image": pa.FixedShapeTensorArray.from_numpy_ndarray(images)}
    )


@pytest.fixture(scope="module")
def expected(images: Any) -> list[Data]:
    with pipelines.load(DIGITS).open() as executor:
        return executor.run_batch(Batch.of([Data({"image": image}) for image in images])).batch.to_list()


def double(data: Data) -> Data:
    return Data({"y": data["x"] * 2})


def odd_ones_fail(data: Data) -> Data:
    if data["x"] % 2:
        raise ValueError(f"{data['x']} is odd")
    return Data({"y": data["x"] * 10})


def as_often_as_it_says(data: Data) -> list[Data]:
    return [Data({"y": place}) for place in range(data["x"])]


def table(*numbers: int | None) -> Any:
    return pa.table({"x": pa.array(numbers, pa.int64()), "name": [f"n{number}" for number in numbers]})


def run(f: Mapper, *batches: Any) -> list[dict[str, Any]]:
    return [row for results in f(batches) for row in results.to_pylist()]


def test_results_are_those_of_the_pipeline_with_what_is_kept(records: Any, expected: list[Data]) -> None:
    f = mapper(DIGITS, keep=["id"])
    (results,) = f([records])
    assert results.schema.names == ["id", "probabilities", "prob", "label", "_error"]
    assert results.column("id").equals(records.column("id"))
    assert results.column("_error").null_count == len(expected)
    assert results.column("label").to_pylist() == [data["label"] for data in expected]
    assert results.column("prob").to_pylist() == [data["prob"] for data in expected]
    got = np.stack(results.column("probabilities").to_numpy(zero_copy_only=False))
    assert (got == np.stack([data["probabilities"] for data in expected])).all()


def test_batches_of_any_size_give_the_same_rows(records: Any) -> None:
    f = mapper(DIGITS, keep=["id"], rows=100)
    whole = pa.Table.from_batches(mapper(DIGITS, keep=["id"])([records]))
    parts = list(f([records.slice(0, 1), records.slice(1, 0), records.slice(1, 300), records.slice(301)]))
    assert [part.num_rows for part in parts] == [1, 100, 100, 100, *[100] * 5, 98]
    got = pa.Table.from_batches(parts)
    assert got.drop_columns(["probabilities", "prob"]).equals(whole.drop_columns(["probabilities", "prob"]))
    assert np.allclose(got["prob"].to_numpy(), whole["prob"].to_numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "form",
    [
        lambda images: pa.array(images.tolist(), pa.list_(pa.list_(pa.uint8()))),
        lambda images: pa.array(images.tolist(), pa.list_(pa.list_(pa.uint8(), 8), 8)),
        lambda images: pa.array(images.tolist()),
    ],
    ids=["lists", "fixed lists", "lists of int64"],
)
def test_pictures_may_come_as_lists_of_lists(form: Any, images: Any, expected: list[Data]) -> None:
    (results,) = mapper(DIGITS)([pa.record_batch({"image": form(images[:50])})])
    assert results.column("label").to_pylist() == [data["label"] for data in expected[:50]]


def test_a_record_that_fails_has_a_row_with_its_error_and_its_neighbours_have_results() -> None:
    f = mapper(Sequence([odd_ones_fail]), keep=["name"])
    results = run(f, *table(2, 3, 4, None, 6).to_batches())
    assert [(row["name"], row["y"]) for row in results] == [
        ("n2", 20),
        ("n3", None),
        ("n4", 40),
        ("nNone", None),
        ("n6", 60),
    ]
    assert [row["_error"] is None for row in results] == [True, False, True, False, True]
    assert results[1]["_error"] == "0:FUNCTION: ValueError: 3 is odd"
    assert "x" in results[3]["_error"]


def test_failures_are_dropped_or_end_the_call_as_it_is_said() -> None:
    dropping = mapper(Sequence([odd_ones_fail]), errors="drop")
    assert run(dropping, table(1, 2, 3, 4)) == [{"y": 20}, {"y": 40}]
    with pytest.raises(StepError, match="row 5: 0:FUNCTION: ValueError: 7 is odd") as error:
        run(mapper(Sequence([odd_ones_fail]), errors="raise"), table(2, 4), table(6, 8, 10, 7))
    assert error.value.step == "0:FUNCTION"


def test_what_is_kept_follows_rows_that_are_dropped_or_become_several() -> None:
    results = run(mapper(Sequence([as_often_as_it_says]), keep=["name"]), table(2, 0, 1, None))
    assert [(row["name"], row["y"]) for row in results] == [("n2", 0), ("n2", 1), ("n1", 0), ("nNone", None)]
    filtered = run(mapper(Sequence([Map(where="x > 2", select={"z": "x + 1"})]), keep=["name"]), table(1, 3, 2, 5))
    assert [(row["name"], row["z"]) for row in filtered] == [("n3", 4), ("n5", 6)]


def test_a_graph_runs_as_a_sequence_does() -> None:
    document = """
steps:
  way: {"@type": SWITCH, "@input": input, switchFn: {"@type": INT_SWITCH, num_outputs: 2, field_name: x}}
  zero: {"@type": SWITCH_OUTPUT, "@input": way, outputNum: 0}
  one: {"@type": SWITCH_OUTPUT, "@input": way, outputNum: 1}
  a: {"@type": MAP, "@input": zero, select: {y: x + 100}}
  b: {"@type": MAP, "@input": one, select: {y: x + 200}}
  any: {"@type": ANY, "@input": [a, b]}
outputStep: any
"""
    results = run(mapper(pipelines.loads(document), keep=["name"]), table(0, 1, 5, 0))
    assert [(row["name"], row["y"]) for row in results] == [("n0", 100), ("n1", 201), ("n5", None), ("n0", 100)]
    assert results[2]["_error"]


def test_what_no_step_reads_passes_through_as_it_came() -> None:
    given = pa.record_batch(
        {
            "x": [1, 2],
            "price": pa.array([1, 2], pa.decimal128(10, 2)),
            "at": pa.array([1, None], pa.timestamp("ns", "UTC")),
            "kind": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    f = mapper(Sequence([Map(select={"y": "x + 1"})]), keep=["price"])
    (results,) = f([given])
    for name in given.schema.names:
        if name in results.schema.names:
            assert results.column(name).equals(given.column(name))
    assert results.column("price").equals(given.column("price"))


def test_the_schema_is_known_without_running_where_steps_state_it(records: Any) -> None:
    f = mapper(DIGITS)
    assert f.schema == pa.schema(
        [
            ("probabilities", pa.list_(pa.float32(), 10)),
            ("prob", pa.float64()),
            ("label", pa.string()),
            ("_error", pa.string()),
        ]
    )
    assert mapper(DIGITS, errors="drop").schema.names == ["probabilities", "prob", "label"]
    assert mapper(DIGITS, keep=["id"]).schema_for(records.schema).field("id").type == pa.int32()
    with pytest.raises(StreamerError, match=r'the type of "id" is that of the input: ask schema_for'):
        _ = mapper(DIGITS, keep=["id"]).schema
    (results,) = f([records])
    assert results.schema == f.schema


def test_a_column_may_be_null_in_the_results_though_it_is_not_in_the_records() -> None:
    """A record that failed has no values."""
    given = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    f = mapper(Sequence([Onnx(model_uri="digits.onnx", keep_other_values=True)], base=EXAMPLE))
    images = pa.field("image", pa.list_(pa.list_(pa.uint8())), nullable=False)
    assert f.schema_for(given.append(images)).field("x").nullable


def test_a_schema_that_is_not_known_says_how_to_state_it() -> None:
    with pytest.raises(StreamerError, match=r"0:FUNCTION does not tell what it gives. Say them: mapper\(..., schema="):
        _ = mapper(Sequence([double])).schema
    f = mapper(Sequence([double]), schema=pa.schema([("y", pa.float32())]), keep=["name"])
    assert f.schema_for(table(1).schema).names == ["name", "y", "_error"]
    assert run(f, table(1)) == [{"name": "n1", "y": 2.0, "_error": None}]
    named = mapper(Sequence([double]), schema=pa.schema([("y", pa.int16()), ("name", pa.large_string())]), keep="name")
    assert named.schema.names == ["y", "name", "_error"]
    (results,) = named(table(1).to_batches())
    assert results.schema == named.schema


def test_values_that_the_schema_does_not_name_are_left_out() -> None:
    f = mapper(DIGITS, schema=pa.schema([("label", pa.string())]), errors="drop")
    assert f.schema.names == ["label"]


def test_later_results_have_the_types_of_the_first_or_fail() -> None:
    def mixed(data: Data) -> Data:
        values: dict[int, dict[str, Any]] = {1: {"y": 1}, 2: {"y": "text"}, 3: {"y": 3, "z": 4}, 4: {}}
        return Data(values[data["x"]])

    results = run(mapper(Sequence([mixed])), table(1), table(2, 1), table(3, 4))
    assert [row["y"] for row in results] == [1, None, 1, None, None]
    assert results[1]["_error"].startswith('arrow: WrongTypeError: the value of "y" is not int64: ')
    assert 'no value of "z"' in results[3]["_error"]
    assert results[4]["_error"] is None
    with pytest.raises(StepError, match='row 1: arrow: WrongTypeError: the value of "y"'):
        run(mapper(Sequence([mixed]), errors="raise"), table(1), table(2))
    assert run(mapper(Sequence([mixed]), errors="drop"), table(1), table(2, 1)) == [{"y": 1}, {"y": 1}]


def test_a_result_that_cannot_be_written_fails_alone_also_if_it_is_the_first() -> None:
    f = mapper(Sequence([lambda data: Data({"y": [1, "a"] if data["x"] == 1 else [1, 2]})]))
    results = run(f, table(1, 2))
    assert [row["y"] for row in results] == [None, [1, 2]]
    assert "a list in a Data has elements of one type" in results[0]["_error"]


def test_results_with_an_error_of_their_own_are_told_what_to_do() -> None:
    (row,) = run(mapper(Sequence([lambda data: Data({"_error": "e"})])), table(1))
    assert row["_error"].endswith('results have a value "_error" of their own: name it otherwise, or set errors="drop"')


def test_results_that_come_after_failures_say_what_the_columns_are() -> None:
    f = mapper(Sequence([odd_ones_fail]), keep=["name"])
    results = list(f(table(1, 3, 2).to_batches(max_chunksize=1)))
    assert [part.schema.names for part in results] == [["name", "y", "_error"]] * 3
    only = run(mapper(Sequence([odd_ones_fail]), keep=["name"]), table(1, 3))
    assert only == [
        {"name": "n1", "_error": "0:FUNCTION: ValueError: 1 is odd"},
        {"name": "n3", "_error": "0:FUNCTION: ValueError: 3 is odd"},
    ]
    # That there were only failures settles nothing.
    f = mapper(Sequence([odd_ones_fail]))
    assert run(f, table(1))[0].keys() == {"_error"}
    assert run(f, table(2))[0]["y"] == 20
    with pytest.raises(StreamerError, match=r"first 64 batches failed.*1 is odd"):
        run(mapper(Sequence([odd_ones_fail])), *[table(1)] * 65)


def test_a_column_that_is_missing_ends_the_job_before_it_runs(records: Any) -> None:
    without = records.select(["id"])
    wrong = records.rename_columns(["id", "imagee"]).append_column("more", records.column("image"))
    with pytest.raises(StreamerError, match='needs the column "image"; there are id'):
        mapper(DIGITS).schema_for(without.schema)
    with pytest.raises(StreamerError, match='"image"; did you mean "imagee"'):
        list(mapper(DIGITS)([wrong]))
    # The only array is what a model with one input takes.
    assert len(run(mapper(DIGITS), wrong.select(["imagee"]).slice(0, 2))) == 2
    with pytest.raises(StreamerError, match='keep: there is no column "key"; there are id, image'):
        list(mapper(DIGITS, keep=["key"])([records]))
    with pytest.raises(StreamerError, match='a column "_error" already'):
        list(mapper(DIGITS)([records.append_column("_error", pa.nulls(records.num_rows))]))


def test_arrays_of_several_samples_are_not_what_is_stated(records: Any, images: Any) -> None:
    several = pa.record_batch({"image": pa.FixedShapeTensorArray.from_numpy_ndarray(images[:6].reshape(3, 2, 8, 8))})
    with pytest.raises(StreamerError, match="an axis for several samples"):
        mapper(DIGITS).schema_for(several.schema)
    (results,) = mapper(DIGITS)([several])
    assert [len(labels) for labels in results.column("label").to_pylist()] == [2, 2, 2]


@pytest.mark.parametrize("given", ["table", "record batch"])
def test_one_table_or_record_batch_gives_one(records: Any, given: str) -> None:
    f = mapper(DIGITS, keep=["id"], rows=100)
    if given == "table":
        results = f.batch(pa.Table.from_batches([records.slice(0, 150), records.slice(150)]))
        assert isinstance(results, pa.Table)
    else:
        results = f.batch(records)
        assert isinstance(results, pa.RecordBatch)
    assert results.num_rows == records.num_rows
    empty = f.batch(records.slice(0, 0))
    assert (empty.num_rows, empty.schema) == (0, results.schema)
    unknown = mapper(Sequence([double]), keep=["name"]).batch(table())
    assert (unknown.num_rows, unknown.schema.names) == (0, ["name", "_error"])


def test_records_without_rows_give_the_columns_of_others(records: Any) -> None:
    """Engines ask for nothing to see what comes out, and have parts without rows."""
    none = pa.Table.from_batches([records]).slice(0, 0)
    f = mapper(DIGITS, keep=["id"])
    assert f.batch(none).schema.names == ["id", "probabilities", "prob", "label", "_error"]
    assert f.frame(pl.from_arrow(none)).columns == ["id", "probabilities", "prob", "label", "_error"]
    with pytest.raises(StreamerError, match='keep: there is no column "idx"'):
        mapper(DIGITS, keep=["idx"]).batch(none)
    with pytest.raises(StreamerError, match='needs the column "image"'):
        mapper(DIGITS).batch(none.drop_columns(["image"]))


def test_what_is_not_of_arrow_is_refused_with_the_call_that_takes_it() -> None:
    f = mapper(Sequence([double]))
    with pytest.raises(
        StreamerError, match=r"a polars.*DataFrame is no pyarrow.RecordBatch or Table.*f\.frame\(frame\)"
    ):
        f.batch(pl.DataFrame({"x": [1]}))
    with pytest.raises(StreamerError, match=r"ChunkedArray is no .*: give f\(table.to_batches\(\)\)"):
        run(f, *table(1))


def test_a_mapper_is_pickled_without_its_models(records: Any) -> None:
    f = mapper(DIGITS, keep=["id"])
    (before,) = f([records])
    pickled = pickle.dumps(f)
    assert len(pickled) < 2000
    (after,) = pickle.loads(pickled)([records])
    assert after.equals(before)


def test_a_definition_is_pickled_as_its_text(records: Any) -> None:
    pipeline = Sequence([Onnx(model_uri="digits.onnx"), double], base=EXAMPLE)
    (results,) = pickle.loads(pickle.dumps(mapper(pipelines.load(DIGITS))))([records.slice(0, 1)])
    assert results.num_rows == 1
    assert len(pickle.dumps(mapper(pipeline))) < 2000
    local = mapper(Sequence([lambda data: data]))
    assert run(local, table(1))[0]["x"] == 1
    with pytest.raises(StreamerError, match="cannot be sent to other processes"):
        pickle.dumps(local)


def test_what_schema_for_said_holds_where_the_mapper_is_sent() -> None:
    f = mapper(Sequence([Map(select={"y": "x"})]), schema=pa.schema([("y", pa.float32())]))
    assert f.schema.field("y").type == pa.float32()
    assert pickle.loads(pickle.dumps(f)).schema == f.schema


def test_pipelines_of_code_that_cannot_be_written_are_not_taken_for_each_other() -> None:
    """Though Python uses the place of one that is gone again."""
    for number in range(20):
        f = mapper(Sequence([lambda data, number=number: Data({"y": number})]))
        assert [row["y"] for row in run(f, table(1))] == [number]
        del f


def test_models_are_opened_once_in_a_process(records: Any, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "digits")
    f = mapper(tmp_path / "digits" / "digits.pipeline.yaml")
    list(f([records.slice(0, 1)]))
    (tmp_path / "digits" / "digits.onnx").unlink()
    assert len(list(pickle.loads(pickle.dumps(f))([records.slice(0, 1)]))) == 1
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.extend(f([records.slice(0, 50)]))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [part.num_rows for part in results] == [50] * 4


def test_a_definition_or_model_that_is_not_on_a_worker_says_how_to_ship_it(
    tmp_path: Path, records: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    pickled = pickle.dumps(mapper("digits.pipeline.yaml"))
    (tmp_path / "worker").mkdir()
    monkeypatch.chdir(tmp_path / "worker")
    with pytest.raises(
        StreamerError, match=r"^digits.pipeline.yaml: there is no such file.*worker; .*spark.files.*runtime_env"
    ):
        list(pickle.loads(pickled)([records]))
    shutil.copy(tmp_path / "here" / "digits.pipeline.yaml", ".")
    with pytest.raises(StreamerError, match=r"digits.pipeline.yaml cannot be opened.*digits\.onnx.*spark.files"):
        list(pickle.loads(pickled)([records]))
    shutil.copy(tmp_path / "here" / "digits.onnx", ".")
    assert len(list(pickle.loads(pickled)([records]))) == 1


def test_another_definition_or_version_on_a_worker_is_refused(
    tmp_path: Path, records: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "digits")
    path = tmp_path / "digits" / "digits.pipeline.yaml"
    pickled = pickle.dumps(mapper(path))
    text = path.read_text()
    path.write_text(text.replace("# An image", "# Another comment: an image"))
    with pickle.loads(pickled) as same:
        assert same.schema.names
    other = pickle.loads(pickled)
    path.write_text(text.replace("return_index: false", "return_index: true"))
    with pytest.raises(StreamerError, match="is not the definition that this mapper was made of"):
        list(other([records]))
    path.write_text(text)
    monkeypatch.setattr("pipelines.arrow.definition._version", lambda: "0.0.1")
    with pytest.raises(StreamerError, match=r"and streamer 0\.0\.1 runs here"):
        list(other([records]))


def of_no_type(data: Data) -> Data:
    odd = [Data({"a": 1}), Data({"a": "text"})]
    return Data({"y": data["x"], "odd": odd}) if data["x"] < 3 else Data({"y": data["x"]})


def test_first_results_with_values_that_arrow_has_no_type_for_fail_alone() -> None:
    f = mapper(Sequence([of_no_type]))
    first, second, third, late = run(f, table(1, 2, 3), table(1))
    assert third == {"y": 3, "_error": None}
    for row in (first, second, late):
        assert row["y"] is None
        assert row["_error"].startswith('arrow: WrongTypeError: no type of Arrow fits the value of "odd"')
    assert [row["_error"] is None for row in run(mapper(Sequence([of_no_type])), table(1), table(3))] == [False, True]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[SequenceExecutor]:
    """The executors that have been closed since the test began."""
    executors: list[SequenceExecutor] = []
    close = SequenceExecutor.close

    def noted(executor: SequenceExecutor) -> None:
        executors.append(executor)
        close(executor)

    monkeypatch.setattr(SequenceExecutor, "close", noted)
    return executors


def test_models_are_released_by_close_and_opened_again_by_the_next_call(closed: list[SequenceExecutor]) -> None:
    double = Sequence([Map(keep=[], select={"y": "x * 2"})])
    with mapper(double) as f:
        other = mapper(double)
        assert run(f, table(1)) == run(other, table(1))
    assert len(closed) == 1, "both have the same"
    other.close()
    assert len(closed) == 1
    assert run(f, table(2)) == [{"y": 4, "_error": None}]
    f.close()
    assert len(closed) == 2


def test_calls_that_run_go_on_after_close(closed: list[SequenceExecutor]) -> None:
    f = mapper(Sequence([Map(select={"y": "x * 2"})]))
    running = f([table(1), table(2)])
    first = next(running)
    f.close()
    rest = list(running)
    assert [row["y"] for batch in (first, *rest) for row in batch.to_pylist()] == [2, 4]
    assert len(closed) == 1


def test_the_end_of_a_process_closes_what_mappers_opened_and_waits_for_no_thread() -> None:
    program = """
import os, threading
import pyarrow as pa
from pipelines import Sequence
from pipelines.arrow import mapper
from pipelines.executors.sequence import SequenceExecutor
from pipelines.executors.sequence import SequenceExecutor
from pipelines.steps import Map

close = SequenceExecutor.close
SequenceExecutor.close = lambda executor: (print("closed", os.getpid() == pid), close(executor))
pid, records = os.getpid(), pa.table({"x": [1]})
mapper(Sequence([Map(select={"y": "x"})])).batch(records)
mapper(Sequence([Map(select={"z": "x"})])).batch(records)

def stuck():
    yield records
    begun.set()
    threading.Event().wait()

begun = threading.Event()
threading.Thread(target=lambda: list(mapper(Sequence([Map(select={"z": "x"})]))(stuck())), daemon=True).start()
begun.wait()
if child := os.fork():
    os.waitpid(child, 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "closed True\n"), done.stderr


def test_a_worker_process_gives_the_same(records: Any) -> None:
    f = mapper(DIGITS, keep=["id"])
    (expected,) = f([records])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(f.batch, (records,)).equals(expected)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_process_that_was_forked_opens_models_of_its_own(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "digits")
    # In a process of its own, as forking one with threads is asking for trouble.
    script = f"""
import os, pathlib, numpy as np, pyarrow as pa
from pipelines.arrow import mapper
from pipelines.errors import StreamerError
folder = pathlib.Path({str(tmp_path / "digits")!r})
f = mapper(folder / "digits.pipeline.yaml")
records = pa.record_batch({{"image": pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((3, 8, 8), np.uint8))}})
(before,) = f([records])
child = os.fork()
if not child:
    (after,) = f([records])
    (folder / "digits.onnx").unlink()
    os._exit(0 if after.equals(before) else 1)
assert os.waitpid(child, 0)[1] == 0
child = os.fork()
if not child:
    try:
        list(f([records]))
    except StreamerError:
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
(after,) = f([records])
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_steps_that_remember_run_in_order_and_begin_anew_with_each_call() -> None:
    window = Window(by="name", size=2, values=["x"], output_name="xs")
    f = mapper(Sequence([window]))
    given = pa.record_batch({"x": [1.0, 2.0, 3.0, 4.0, 5.0], "name": ["a", "b", "a", "a", "b"]})
    parts = [given.slice(place, 1) for place in range(5)]
    for _ in range(2):
        assert [np.ravel(row["xs"]).tolist() for row in run(f, *parts)] == [[1, 3], [2, 5]]
    with pytest.raises(StreamerError, match=r"0:WINDOW: .*calls for single batches come in any order"):
        f.batch(given)
    with pytest.raises(StreamerError, match=r"0:WINDOW: .*a process that sees a part of them"):
        list(pickle.loads(pickle.dumps(f))([given]))


def test_what_steps_hold_at_the_end_comes_last() -> None:
    f = mapper(Sequence([Window(by="name", size=2, values=["x"], output_name="xs", short="emit")]))
    given = pa.record_batch({"x": [1.0, 2.0, 3.0], "name": ["a", "b", "a"], "id": [1, 2, 3]})
    assert [np.ravel(row["xs"]).tolist() for row in run(f, given)] == [[1, 3], [2]]
    f = mapper(Sequence([Window(by="name", size=2, values=["x"], output_name="xs", short="emit")]), keep=["id"])
    assert [row["id"] for row in run(f, given)] == [3, None]


def test_wrong_arguments_say_what_is_right() -> None:
    with pytest.raises(StreamerError, match='errors="rise" is none of column, drop, raise; did you mean "raise"'):
        mapper(DIGITS, errors="rise")  # type: ignore[arg-type]
    with pytest.raises(StreamerError, match="rows=0"):
        mapper(DIGITS, rows=0)
    with pytest.raises(DefinitionError, match=r"absent.yaml"):
        mapper("absent.yaml")
    assert repr(mapper(DIGITS, keep=["id"])) == f"mapper('{DIGITS}', keep=['id'], errors='column')"


def test_onnxruntime_has_one_thread_in_a_worker() -> None:
    step = pipelines.load(DIGITS).steps[0]
    assert step.session_options.intra_op_threads == 1
