"""LOOKUP, run as a user's pipeline runs it: records get the values of their rows, and others fail alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from codecsupport import block
from hypothesis import given, settings
from hypothesis import strategies as st

import pipelines
from connectors.codecs.registry import codec_of
from examples import examples
from pipelines import Data, Lookup, StepError
from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn
from pipelines.errors import DefinitionError
from pipelines.executors.shared import Shared
from pipelines.hotpath import HotPath
from pipelines.runners.forms import ImageForm, ValueForm
from pipelines.runners.runner import OpenContext
from pipelines.runners.tables.lookup import LookupRunner
from pipelines.values import ValueType

MACHINES = "machine,line,floor,load,on\npump-1,north,1,0.5,true\npump-2,south,2,1.25,false\n007,,-3,2,true\n"


@pytest.fixture
def machines(tmp_path: Path) -> Path:
    path = tmp_path / "machines.csv"
    path.write_text(MACHINES)
    return path


def run(step: Lookup, *records: dict[str, Any]) -> list[Any]:
    """The values of each result, or the text of its error."""
    with pipelines.Sequence([step]).open() as executor:
        outcomes = executor.run_many([Data(record) for record in records])
    return [str(one) if isinstance(one, StepError) else dict(one) for one in outcomes]  # type: ignore[arg-type]


def error(step: Lookup, *records: dict[str, Any]) -> str:
    *_, last = run(step, *records)
    assert isinstance(last, str), last
    return last


def test_a_record_gets_the_values_of_its_row_and_keeps_its_others(machines: Path) -> None:
    step = Lookup(machines, by="machine", take=["line", "floor", "load", "on"])
    assert run(step, {"machine": "pump-2", "temp": 1.5}, {"machine": "pump-1"}, {"machine": "pump-2"}) == [
        {"machine": "pump-2", "temp": 1.5, "line": "south", "floor": 2, "load": 1.25, "on": False},
        {"machine": "pump-1", "line": "north", "floor": 1, "load": 0.5, "on": True},
        {"machine": "pump-2", "line": "south", "floor": 2, "load": 1.25, "on": False},
    ]


def test_a_value_that_its_row_does_not_have_is_absent(machines: Path) -> None:
    assert run(Lookup(machines, by="machine", take="line"), {"machine": "007"}) == [{"machine": "007"}]


def test_keys_may_be_called_otherwise_than_their_columns(machines: Path) -> None:
    step = Lookup(machines, by={"id": "machine"}, take={"hall": "line"})
    assert run(step, {"id": "pump-1"}) == [{"id": "pump-1", "hall": "north"}]


def test_a_value_of_the_record_under_the_same_key_is_replaced(machines: Path) -> None:
    step = Lookup(machines, by="machine", take={"machine": "line"}, missing="absent")
    assert run(step, {"machine": "pump-1"}, {"machine": "nobody"}) == [{"machine": "north"}, {}]


def test_several_keys_must_all_be_equal(tmp_path: Path) -> None:
    path = tmp_path / "parts.csv"
    path.write_text("site,slot,part\na,1,bolt\na,2,nut\nb,1,gear\n")
    step = Lookup(path, by={"site": "site", "place": "slot"}, take="part")
    assert run(step, {"site": "b", "place": 1}, {"site": "a", "place": 2.0}) == [
        {"site": "b", "place": 1, "part": "gear"},
        {"site": "a", "place": 2.0, "part": "nut"},
    ]
    assert "parts.csv has no row for site 'b', place 2" in error(step, {"site": "b", "place": 2})
    path.write_text("site,slot,part\na,1,bolt\na,1,nut\n")
    with pytest.raises(StepError, match='"site" \'a\', "slot" 1 is there twice, in line 2 and line 3'):
        run(step)


def test_a_record_without_a_row_fails_alone_and_is_told_the_nearest_key(machines: Path) -> None:
    step = Lookup(machines, by="machine", take="line")
    good, failed, again = run(step, {"machine": "pump-1"}, {"machine": "Pump-2 "}, {"machine": "pump-2"})
    assert (good["line"], again["line"]) == ("north", "south")
    assert failed.endswith("machines.csv has no row for machine 'Pump-2 '; did you mean \"pump-2\"?")
    far = error(Lookup(machines, by="floor", take="line"), {"floor": 9})
    assert far.endswith("machines.csv has no row for floor 9; the nearest is 2")


def test_a_record_without_a_row_passes_on_without_the_values_if_so_asked(machines: Path) -> None:
    step = Lookup(machines, by="machine", take=["line", "floor"], missing="absent")
    with pipelines.Sequence([step]).open() as executor:
        results = executor.run_many([{"machine": "x", "floor": 5}, {"machine": "pump-1"}, {"machine": "y"}])
        assert [dict(one) for one in results] == [  # type: ignore[arg-type]
            {"machine": "x"},
            {"machine": "pump-1", "line": "north", "floor": 1},
            {"machine": "y"},
        ]
        metrics = executor.metrics["0:LOOKUP"]
        assert {name: metrics[name].samples()[0][1] for name in metrics} == {
            "streamer_lookup_missing": 2,
            "streamer_lookup_rows": 3,
            "streamer_lookup_outdated": 0,
        }


def test_a_record_without_a_row_is_left_out_if_so_asked(machines: Path) -> None:
    step = Lookup(machines, by="machine", take="line", missing="drop")
    with pipelines.Sequence([step]).open() as executor:
        result = executor.run_batch(Batch.of([Data({"machine": name}) for name in ("x", "pump-1", "y", "pump-2")]))
        assert [data["line"] for data in result.batch.to_list()] == ["north", "south"]
        assert (result.rows.tolist(), result.dropped, result.failed) == ([1, 3], {0: "no row", 2: "no row"}, {})
        assert executor.run({"machine": "z"}) is None
        assert executor.metrics["0:LOOKUP"]["streamer_lookup_missing"].samples()[0][1] == 3


@pytest.mark.parametrize("missing", ["fail", "absent", "drop"])
def test_a_record_without_the_key_fails_alone(machines: Path, missing: str) -> None:
    step = Lookup(machines, by="machine", take="line", missing=missing)
    good, failed = run(step, {"machine": "pump-1"}, {"machin": "pump-1"})
    assert good["line"] == "north"
    assert 'Value not found for key "machine"; did you mean "machin"?' in failed


@pytest.mark.parametrize("missing", ["fail", "absent", "drop"])
@pytest.mark.parametrize(
    ("by", "value", "text"),
    [
        ("machine", 7, '"machine" is 7, and "machine" of machines.csv is of type STRING'),
        ("machine", True, '"machine" is True, and "machine" of machines.csv is of type STRING'),
        ("machine", ["pump-1"], '"machine" is of type LIST, and "machine" of machines.csv is of type STRING'),
        ("machine", b"pump-1", '"machine" is of type BYTES, and'),
        ("floor", "1", '"floor" is \'1\', and "floor" of machines.csv is of type INT64; types: {floor: text} of'),
        ("floor", True, '"floor" is True, and "floor" of machines.csv is of type INT64'),
        ("load", "x" * 1000, '"load" is \'xxx'),
        ("on", 1, '"on" is 1, and "on" of machines.csv is of type BOOLEAN'),
        ("floor", Data({"a": 1}), '"floor" is of type DATA, and'),
    ],
)
def test_a_key_of_another_type_fails_its_record_whatever_is_missing(
    machines: Path, by: str, value: Any, text: str, missing: str
) -> None:
    machines.write_text(MACHINES.partition("007")[0])
    good = {"machine": "pump-1", "floor": 1, "load": 0.5, "on": True}[by]
    step = Lookup(machines, by=by, take="line", missing=missing)
    first, failed, last = run(step, {by: good}, {by: value}, {by: good})
    assert first["line"] == last["line"] == "north"
    assert text in failed
    assert len(failed) < 300


def test_a_number_is_equal_to_the_same_number_of_the_other_type_and_exactly(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"id,x\n{2**53 + 1},big\n7,seven\n")
    step = Lookup(path, by="id", take="x", missing="absent")
    values = [7, 7.0, 7.5, 2**53 + 1, 2**53, float(2**53), math.nan, math.inf]
    seen = [result.get("x") for result in run(step, *({"id": value} for value in values))]
    assert seen == ["seven", "seven", None, "big", None, None, None, None]


def test_an_empty_table_has_a_row_for_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,x\n")
    step = Lookup(path, by="id", take="x", missing="absent")
    assert run(step, {"id": "a"}, {"id": 1}, {"id": [1]}) == [{"id": "a"}, {"id": 1}, {"id": [1]}]
    assert "a.csv has no row for id 'a'" in error(Lookup(path, by="id", take="x"), {"id": "a"})


KEYS = st.one_of(
    st.sampled_from(["pump-1", "pump-2", "007", "", "7", "pump-3", "x" * 200]),
    st.sampled_from([0, 1, 2, 7, 7.0, 0.5, -3, 2**60, math.inf]),
    st.booleans(),
    st.none(),
    st.just([1, 2]),
)


@pytest.mark.parametrize("missing", ["fail", "absent", "drop"])
@pytest.mark.parametrize("by", [["machine"], ["on"], ["machine", "floor"]])
@settings(max_examples=examples(10), deadline=None)
@given(data=st.data())
def test_what_becomes_of_a_record_does_not_depend_on_those_beside_it(
    tmp_path_factory: pytest.TempPathFactory, missing: str, by: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "same.csv"
    path.write_text("machine,floor,on,line,load\npump-1,1,true,north,0.5\n007,-3,false,,1.5\n")
    drawn = data.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(by, KEYS)), min_size=1, max_size=12))
    records = [{key: value for key, value in record.items() if value is not None} for record in drawn]
    step = Lookup(path, by=by, take=["line", "load"], missing=missing)
    with pipelines.Sequence([step]).open() as executor:

        def outcomes(size: int, count: int) -> list[Any]:
            given = [records[position % len(records)] for position in range(count)]
            parts = [given[start : start + size] for start in range(0, count, size)]
            ran = [one for part in parts for one in executor.run_many(part)]
            return [str(one) if isinstance(one, StepError) else one for one in ran]

        alone = outcomes(1, len(records))
        for size, count in ((2, 8), (64, 128), (512, 512)):
            assert outcomes(size, count) == [alone[position % len(records)] for position in range(count)]


def test_both_hot_paths_give_the_same(machines: Path, hot_path: HotPath) -> None:
    payloads = [b'{"machine":"pump-1","x":1.10}', b'{"machine":"pump-9"}', b'{"machine":7}', b'{"machine":"007"}']
    codec = codec_of("json")
    with pipelines.Sequence([Lookup(machines, by="machine", take=["line", "load"])]).open() as executor:
        result = executor.run_batch(codec.decode(block(payloads), executor.reads).batch)
    assert [bytes(value) for value in codec.encode(result.batch).values] == [
        b'{"machine":"pump-1","x":1.10,"line":"north","load":0.5}',
        b'{"machine":"007","load":2.0}',
    ]
    assert {row: str(error).partition(" machines.csv ")[2] for row, error in result.failed.items()} == {
        1: "has no row for machine 'pump-9'; did you mean \"pump-2\"?",
        2: "is of type STRING",
    }


def test_numbers_are_dense_columns(machines: Path) -> None:
    runner = LookupRunner(Lookup(machines, by="machine", take=["floor", "load", "on"]), OpenContext())
    batch = Batch.of([Data({"machine": name}) for name in ("pump-1", "007", "pump-1")])
    result = runner.run_batch(batch).batch
    runner.close()
    floor, load, on = (result[key] for key in ("floor", "load", "on"))
    assert all(isinstance(column, DenseColumn) and column.mask is None for column in (floor, load, on))
    assert floor.array.tolist() == [1, -3, 1]
    assert load.array.tolist() == [0.5, 2.0, 0.5]
    assert on.array.tolist() == [True, True, True]


def test_only_the_key_is_decoded(machines: Path) -> None:
    with pipelines.Sequence([Lookup(machines, by="machine", take="floor")]).open() as executor:
        assert executor.reads == frozenset(["machine"])


def test_check_knows_what_it_needs_and_gives(machines: Path) -> None:
    runner = LookupRunner(Lookup(machines, by="machine", take=["floor", "load"]), OpenContext())
    assert runner.needs == frozenset(["machine"])
    assert runner.gives == frozenset(["floor", "load"])
    assert runner.in_words == "3 rows, machine (text) -> floor (integer), load (number)"
    assert runner.forms({"machine": ValueForm(ValueType.STRING), "load": ImageForm()}) == {
        "machine": ValueForm(ValueType.STRING),
        "floor": ValueForm(ValueType.INT64),
        "load": ValueForm(ValueType.DOUBLE),
    }
    assert runner.misfit({"machine": ValueForm(ValueType.STRING)}, None) is None
    assert runner.misfit({"machine": ValueForm(ValueType.INT64)}, None) == (
        '"machine" is INT64, and "machine" of machines.csv is of type STRING'
    )
    assert "an image or array" in (runner.misfit({"machine": ImageForm()}, None) or "")
    runner.close()
    for step in (
        Lookup(machines, by="machine", take="line"),
        Lookup(machines, by="machine", take="floor", missing="absent"),
    ):
        runner = LookupRunner(step, OpenContext())
        assert runner.gives is None, "a row, or its value, may be missing"
        runner.close()


def test_executors_of_one_definition_share_the_table(machines: Path) -> None:
    shared = Shared()
    step = Lookup(machines, by="machine", take="line")
    runners = [LookupRunner(step, OpenContext(shared=shared)) for _ in range(3)]
    assert len(shared) == 1
    other = LookupRunner(Lookup(machines, by="machine", take="floor"), OpenContext(shared=shared))
    assert len(shared) == 2
    for runner in (*runners, other):
        runner.close()
    assert len(shared) == 0


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ('path: a.csv, by: a, take: []', "take"),
        ('path: a.csv, by: {}, take: b', "by"),
        ('path: a.csv, by: a, take: [b, b]', "names a column twice"),
        ('path: a.csv, by: {x: a, y: a}, take: b', '"by" names a column twice'),
        ('path: a.csv, by: a', "take"),
        ('by: a, take: b', "path"),
        ('path: "http://h/a.csv", by: a, take: b', "not the URL"),
        ('path: a.sqlite, by: a, take: b', 'add its table, "a.sqlite#machines"'),
        ('path: "a.sqlite#", by: a, take: b', 'add its table, "a.sqlite#machines"'),
        ('path: a.xlsx, by: a, take: b', "tables are read of .csv, .tsv, .json, .jsonl, .parquet and .pq files"),
        ('path: a.csv, by: a, take: b, types: {bb: text}', '"types" has the column "bb", which is not read; did you'),
        ('path: a.csv, by: a, take: b, types: {b: float}', "types"),
        ('path: a.parquet, by: a, take: b, delimiter: ";"', '"delimiter" is the character between fields of CSV'),
        ('path: a.csv, by: a, take: b, missing: null_', "missing"),
        ('path: a.csv, by: a, take: {"@type": b}', "@type"),
    ],
)  # fmt: skip
def test_a_wrong_definition_is_refused_when_it_is_loaded(fields: str, text: str) -> None:
    with pytest.raises(DefinitionError) as failed:
        pipelines.loads(f'steps: [{{"@type": LOOKUP, {fields}}}]')
    assert text in str(failed.value)


@pytest.mark.parametrize("name", ["nowhere.csv", "folder.csv"])
def test_a_file_that_is_not_there_is_named_with_the_folder_that_paths_start_at(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    pipeline = pipelines.loads(f'steps: [{{"@type": LOOKUP, path: {name}, by: a, take: b}}]', base=tmp_path)
    with pytest.raises(StepError, match=f"{name} is .*; relative paths start at {tmp_path}"):
        pipeline.open()


@pytest.mark.parametrize("path", ["machines.csv", "file:machines.csv"])
def test_paths_start_at_the_folder_of_the_definition(machines: Path, path: str) -> None:
    pipeline = pipelines.loads(
        f'steps: [{{"@type": LOOKUP, table: "{path}", by: machine, take: line}}]', base=machines.parent
    )
    with pipeline.open() as executor:
        assert executor.run({"machine": "pump-1"}) == Data({"machine": "pump-1", "line": "north"})


def test_a_definition_is_written_as_short_as_it_may_be() -> None:
    step = Lookup("a.csv", by="machine", take=["line", "floor"])
    written = step.to_dict()
    assert (written["by"], written["take"]) == ("machine", ["line", "floor"])
    assert Lookup("a.csv", by={"id": "machine"}, take="line").to_dict()["by"] == {"id": "machine"}
    assert step.files == step.data_files == ("a.csv",)
    assert Lookup("a.db#t", by="a", take="b").files == ("a.db",)
    assert Lookup("a#b.csv", by="a", take="b").files == ("a#b.csv",)
