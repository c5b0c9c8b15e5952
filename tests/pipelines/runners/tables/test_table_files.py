"""Tables in CSV, SQLite, Parquet and JSON: the same rows from each; what is wrong in a file is named with its place."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pytest

import pipelines
from pipelines import Lookup, StepError
from pipelines.values.native import INT64_MAX

Rows = Sequence[Mapping[str, Any]]


def csv_file(folder: Path, rows: Rows) -> str:
    shown: dict[Any, str] = {None: "", True: "true", False: "false"}
    lines = [",".join(rows[0])]
    for row in rows:
        lines.append(",".join(shown[v] if v is None or v is True or v is False else str(v) for v in row.values()))
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    return "t.csv"


def sqlite_file(folder: Path, rows: Rows) -> str:
    path = folder / "t.sqlite"
    path.unlink(missing_ok=True)
    names = ", ".join(f'"{name}"' for name in rows[0])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE machines ({names})")
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO machines VALUES ({marks})", [tuple(row.values()) for row in rows])
        connection.commit()
    return "t.sqlite#machines"


def parquet_file(folder: Path, rows: Rows) -> str:
    polars.DataFrame(rows).write_parquet(folder / "t.parquet")
    return "t.parquet"


def json_file(folder: Path, rows: Rows) -> str:
    (folder / "t.json").write_text(json.dumps(rows))
    return "t.json"


def json_lines_file(folder: Path, rows: Rows) -> str:
    (folder / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return "t.jsonl"


FORMATS = [csv_file, sqlite_file, parquet_file, json_file, json_lines_file]
each_format = pytest.mark.parametrize("write", FORMATS)
Write = Callable[[Path, Rows], str]


def values(
    folder: Path, path: str, by: str = "id", take: Any = "x", keys: Sequence[Any] = (), **more: Any
) -> list[Any]:
    """What the records with these keys get."""
    step = Lookup(path, by=by, take=take, **more)
    with pipelines.Sequence([step], base=folder).open() as executor:
        results = [executor.run({by: key}) for key in keys]
    names = [take] if isinstance(take, str) else list(take)
    got = [[result.get(name) for name in names] for result in results]  # type: ignore[union-attr]
    return [row[0] for row in got] if isinstance(take, str) else got


def refusal(folder: Path, path: str, **fields: Any) -> str:
    """The error of opening."""
    with pytest.raises(StepError) as failed:
        values(folder, path, **fields)
    return str(failed.value)


@each_format
def test_the_same_table_gives_the_same_values_in_each_format(write: Write, tmp_path: Path) -> None:
    rows = [
        {"id": "a", "n": 1, "f": 1.5, "t": "x", "empty": None},
        {"id": "007", "n": INT64_MAX, "f": 2.0, "t": None, "empty": None},
        {"id": "\u00fc", "n": -5, "f": None, "t": "z", "empty": None},
    ]
    take = ["n", "f", "t", "empty"]
    assert values(tmp_path, write(tmp_path, rows), take=take, keys=["007", "a", "\u00fc"]) == [
        [INT64_MAX, 2.0, None, None],
        [1, 1.5, "x", None],
        [-5, None, "z", None],
    ]


@each_format
def test_integers_beside_numbers_are_numbers(write: Write, tmp_path: Path) -> None:
    if write is parquet_file:
        pytest.skip("a column of Parquet has one type")
    got = values(tmp_path, write(tmp_path, [{"id": "a", "x": 1}, {"id": "b", "x": 0.5}]), keys=["a", "b"])
    assert got == [1.0, 0.5]
    assert [type(value) for value in got] == [float, float]


@each_format
def test_types_may_be_stated(write: Write, tmp_path: Path) -> None:
    path = write(tmp_path, [{"id": 7, "x": 1, "y": "2"}, {"id": 8, "x": 0, "y": " 3 "}])
    types = {"id": "text", "x": "boolean", "y": "number"}
    assert values(tmp_path, path, take=["x", "y"], keys=["7", "8"], types=types) == [[True, 2.0], [False, 3.0]]
    assert values(tmp_path, path, keys=[7], types={"x": "number"}) == [1.0]


@each_format
def test_a_value_that_is_not_of_its_stated_type_is_named_with_its_row(write: Write, tmp_path: Path) -> None:
    path = write(tmp_path, [{"id": "a", "x": "1"}, {"id": "b", "x": "on"}])
    places: dict[Write, str] = {csv_file: "line 3", json_lines_file: "line 2"}
    place = places.get(write, "row 2")
    assert f'{place}: x: "on" is no number' in refusal(tmp_path, path, types={"x": "number"})
    assert f'{place}: x: "on" is no integer' in refusal(tmp_path, path, types={"x": "integer"})
    assert f'{place}: x: "on" is no boolean: true, false, 1 or 0' in refusal(tmp_path, path, types={"x": "boolean"})


@each_format
def test_a_key_that_is_there_twice_or_missing_is_refused_with_its_places(write: Write, tmp_path: Path) -> None:
    lines: dict[Write, tuple[str, str]] = {csv_file: ("line 2", "line 4"), json_lines_file: ("line 1", "line 3")}
    first, third = lines.get(write, ("row 1", "row 3"))
    path = write(tmp_path, [{"id": "a", "x": 1}, {"id": "b", "x": 2}, {"id": "a", "x": 3}])
    assert f"\"id\" 'a' is there twice, in {first} and {third}" in refusal(tmp_path, path)
    path = write(tmp_path, [{"id": "a", "x": 1}, {"id": "b", "x": 2}, {"id": None, "x": 3}])
    assert f'{third}: "id" is missing, by which rows are looked up' in refusal(tmp_path, path)


@each_format
def test_a_column_that_is_not_there_is_named_with_the_nearest(write: Write, tmp_path: Path) -> None:
    path = write(tmp_path, [{"id": "a", "hall": 1}])
    text = refusal(tmp_path, path, take="hal")
    assert 'has no column "hal"; did you mean "hall"?; it has id, hall' in text


@each_format
def test_a_table_that_is_too_large_is_refused(write: Write, tmp_path: Path) -> None:
    path = write(tmp_path, [{"id": f"machine {number}", "x": number} for number in range(100)])
    assert "has more than 99 rows; raise maxRows of the step" in refusal(tmp_path, path, max_rows=99)
    assert "has more than 500 bytes; raise maxBytes of the step" in refusal(tmp_path, path, max_bytes=500)
    assert values(tmp_path, path, keys=["machine 99"], max_rows=100) == [99]


@each_format
def test_a_file_that_is_cut_off_or_of_another_kind_is_refused(write: Write, tmp_path: Path) -> None:
    path = write(tmp_path, [{"id": f"machine {number}", "x": "y" * 50} for number in range(1000)])
    file = tmp_path / path.partition("#")[0]
    whole = file.read_bytes()
    # What is left of CSV is CSV.
    parts = () if write is csv_file else (whole[:100], whole[: len(whole) // 2 + 7], whole[50:])
    for content in (b"", b"\0" * 5000, b"SQLite format 3\0" * 99, b"PAR1" * 99, *parts):
        file.write_bytes(content)
        assert "0:LOOKUP: " in refusal(tmp_path, path)


@each_format
def test_a_number_that_is_nan_is_no_value(write: Write, tmp_path: Path) -> None:
    if write in (json_file, json_lines_file):
        pytest.skip("JSON has no NaN")
    path = write(tmp_path, [{"id": "a", "x": float("nan")}, {"id": "b", "x": 1.5}])
    types = {"x": "number"} if write is csv_file else {}
    assert values(tmp_path, path, keys=["a", "b"], types=types) == [None, 1.5]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (["1", "-2", "0"], [1, -2, 0]),
        (["7", "007"], ["7", "007"]),
        (["+7", "8"], ["+7", "8"]),
        (["1.5", "2", "-0.25"], [1.5, 2.0, -0.25]),
        (["1e-05", "2.5e3"], [1e-05, 2500.0]),
        (["12e4", "13e4"], ["12e4", "13e4"]),
        (["1e+999", "1.5"], ["1e+999", "1.5"]),
        (["9223372036854775807", "1"], [INT64_MAX, 1]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        (["1234567890123456789", "1.5"], ["1234567890123456789", "1.5"]),
        (["True", "FALSE", "true"], [True, False, True]),
        (["true", "yes"], ["true", "yes"]),
        (["0x1F", "1"], ["0x1F", "1"]),
        (["1_000", "1"], ["1_000", "1"]),
        (["21,5", "1"], ["21,5", "1"]),
        (["\u0661", "\u0662"], ["\u0661", "\u0662"]),
        ([" 7", "8"], [" 7", "8"]),
        (["nan", "1.5"], ["nan", "1.5"]),
        (["", "3"], [None, 3]),
    ],
)
def test_a_column_of_csv_has_the_type_that_all_of_its_fields_look_like(
    fields: list[str], expected: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("id,x\n" + "".join(f'k{row},"{field}"\n' for row, field in enumerate(fields)))
    got = values(tmp_path, "t.csv", keys=[f"k{row}" for row in range(len(fields))])
    assert got == expected
    assert list(map(type, got)) == list(map(type, expected))


def test_csv_may_have_a_mark_quotes_and_line_ends_in_fields_empty_lines_and_crlf(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'\xef\xbb\xbfid,x\r\n\r\n"a,1","say ""hi""\r\nthere"\r\n\r\nb,2\r\n')
    assert values(tmp_path, "t.csv", keys=["a,1", "b"]) == ['say "hi"\r\nthere', "2"]


def test_csv_may_have_other_delimiters_which_are_named_if_they_are_not_stated(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id;x\na;1\n")
    assert values(tmp_path, "t.csv", keys=["a"], delimiter=";") == [1]
    assert "t.csv has ';' between its fields; write delimiter: ';'" in refusal(tmp_path, "t.csv")
    (tmp_path / "t.tsv").write_text("id\tx\na\t1\n")
    assert values(tmp_path, "t.tsv", keys=["a"]) == [1]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "t.csv is empty; its first line has to name the columns"),
        (b"\n\n", "t.csv is empty"),
        (b"id,x\na,1\nb\n", "t.csv, line 3: the row has 1 fields, and the header 2"),
        (b"id,x\na,1,2\n", "t.csv, line 2: the row has 3 fields, and the header 2"),
        (b'id,x\na,"1\n', "t.csv, line 2: a quotation mark is never closed"),
        (b'id,x\na,"1"2\n', "t.csv, line 2: "),
        (b"id,x\na,\xff\n", "t.csv is no text in UTF-8 (byte 7); save it in UTF-8"),
        (b"id,x,x\na,1,2\n", 't.csv has two columns that are called "x"; rename one'),
        (b"id" + b",c" * 50_000, 't.csv has no column "x"'),
    ],
)
def test_a_broken_csv_file_is_refused_with_its_line(content: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    said = refusal(tmp_path, "t.csv")
    assert text in said
    assert len(said) < 1000


def test_a_field_of_a_csv_file_may_be_as_long_as_the_file(tmp_path: Path) -> None:
    limit = csv.field_size_limit(1000)
    try:
        outline = "POLYGON " + "1" * 200_000
        (tmp_path / "t.csv").write_text(f"id,x\na,{outline}\n")
        assert values(tmp_path, "t.csv", keys=["a"]) == [outline]
    finally:
        csv.field_size_limit(limit)


def test_a_table_of_sqlite_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    sqlite_file(tmp_path, [{"id": "a", "x": 1}])
    text = refusal(tmp_path, "t.sqlite#machine")
    assert 't.sqlite has no table "machine"; did you mean "machines"?; it has machines' in text
    assert 'has no table "x; DROP TABLE machines"' in refusal(tmp_path, "t.sqlite#x; DROP TABLE machines")


def test_names_in_sqlite_are_no_sql(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:
        connection.execute('CREATE TABLE "a""; DROP TABLE b; --" ("id", "x""y")')
        connection.execute('INSERT INTO "a""; DROP TABLE b; --" VALUES (1, 2)')
        connection.commit()
    assert values(tmp_path, 't.db#a"; DROP TABLE b; --', take='x"y', keys=[1]) == [2]


def test_an_sqlite_file_is_not_written_to(tmp_path: Path) -> None:
    path = sqlite_file(tmp_path, [{"id": "a", "x": 1}])
    before = (tmp_path / "t.sqlite").read_bytes()
    (tmp_path / "t.sqlite").chmod(0o444)
    assert values(tmp_path, path, keys=["a"]) == [1]
    assert (tmp_path / "t.sqlite").read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == {"t.sqlite"}


def test_an_sqlite_table_that_its_writer_has_open_is_read_with_its_last_commit(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE machines (id, x)")
        writer.execute("INSERT INTO machines VALUES ('a', 1)")
        writer.commit()
        writer.execute("INSERT INTO machines VALUES ('b', 2)")
        assert values(tmp_path, "t.sqlite#machines", keys=["a"]) == [1]
        assert "has no row for id 'b'" in failed_record(tmp_path, "t.sqlite#machines", "b")
        writer.commit()
        assert values(tmp_path, "t.sqlite#machines", keys=["b"]) == [2]


def failed_record(folder: Path, path: str, key: Any) -> str:
    with pytest.raises(StepError) as failed:
        values(folder, path, keys=[key])
    return str(failed.value)


def test_a_column_of_sqlite_with_several_types_needs_one_that_is_stated(tmp_path: Path) -> None:
    path = sqlite_file(tmp_path, [{"id": "a", "x": 1}, {"id": "b", "x": "two"}])
    assert "it has integers and texts; say what they are to be (types)" in refusal(tmp_path, path)
    assert values(tmp_path, path, keys=["a", "b"], types={"x": "text"}) == ["1", "two"]
    path = sqlite_file(tmp_path, [{"id": "a", "x": b"\0"}])
    assert "it has values of bytes; texts, numbers and booleans can be looked up" in refusal(tmp_path, path)


def test_a_huge_text_of_sqlite_is_not_read(tmp_path: Path) -> None:
    path = sqlite_file(tmp_path, [{"id": "a", "x": "y" * 100_000}])
    assert "t.sqlite#machines cannot be read: " in refusal(tmp_path, path, max_bytes=50_000)


def test_parquet_has_its_own_types(tmp_path: Path) -> None:
    frame = polars.DataFrame(
        {
            "id": polars.Series(["a", "b"], dtype=polars.Categorical),
            "small": polars.Series([1, None], dtype=polars.UInt8),
            "half": polars.Series([0.5, 0.25], dtype=polars.Float32),
            "exact": polars.Series([Decimal("1.10"), None], dtype=polars.Decimal(10, 2)),
            "on": [True, None],
            "nothing": polars.Series([None, None], dtype=polars.Null),
        }
    )
    frame.write_parquet(tmp_path / "t.parquet")
    take = ["small", "half", "exact", "on", "nothing"]
    assert values(tmp_path, "t.parquet", take=take, keys=["a", "b"]) == [
        [1, 0.5, 1.1, True, None],
        [None, 0.25, None, None, None],
    ]


@pytest.mark.parametrize("column", [[[1], [2]], [date(2026, 1, 2)] * 2, [{"a": 1}] * 2, [b"a", b"b"]])
def test_values_of_parquet_that_cannot_be_looked_up_are_refused(column: list[Any], tmp_path: Path) -> None:
    polars.DataFrame({"id": ["a", "b"], "x": column}).write_parquet(tmp_path / "t.parquet")
    assert 'the column "x" has values of' in refusal(tmp_path, "t.parquet")


def test_an_integer_of_parquet_beyond_64_bits_is_refused(tmp_path: Path) -> None:
    polars.DataFrame({"id": ["a"], "x": polars.Series([2**64 - 1], dtype=polars.UInt64)}).write_parquet(
        tmp_path / "t.parquet"
    )
    assert 'row 1: x: "18446744073709551615" is no integer: it does not fit in 64 bits' in refusal(
        tmp_path, "t.parquet"
    )


def test_a_small_parquet_file_with_very_many_or_very_long_values_is_refused(tmp_path: Path) -> None:
    polars.DataFrame({"id": range(300_000), "x": ["y"] * 300_000}).write_parquet(tmp_path / "t.parquet")
    assert "has more than 200,000 rows" in refusal(tmp_path, "t.parquet", max_rows=200_000)
    polars.DataFrame({"id": range(200), "x": ["y" * 100_000] * 200}).write_parquet(tmp_path / "t.parquet")
    assert (tmp_path / "t.parquet").stat().st_size < 1 << 20
    assert "has more than 1,048,576 bytes" in refusal(tmp_path, "t.parquet", max_bytes=1 << 20)


def test_values_inside_of_objects_of_json_are_reached_by_dots(tmp_path: Path) -> None:
    rows: Rows = [{"id": "a", "limits": {"max": 7}, "n.x": 1}, {"id": "b", "limits": {}}, {"id": "c", "limits": 3}]
    for path in (json_file(tmp_path, rows), json_lines_file(tmp_path, rows)):
        got = values(tmp_path, path, take=["limits.max", "n.x"], keys=["a", "b", "c"])
        assert got == [[7, 1], [None, None], [None, None]]
        assert 'has no column "limits.min"' in refusal(tmp_path, path, take="limits.min")
        assert "it has values of dict and integers" in refusal(tmp_path, path, take="limits")


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("t.jsonl", b"", "t.jsonl is empty; a row is a line"),
        ("t.json", b" ", "t.json is empty; no rows are []"),
        ("t.jsonl", b'{"id": "a", "x": 1}\n\n{"id": ', "t.jsonl, line 3: no JSON: "),
        ("t.jsonl", b'{"id": "a", "x": 1}\n[]\n', "t.jsonl, line 2: a row is an object"),
        ("t.json", b'[{"id": "a", "x": 1}, 7]', "t.json, row 2: a row is an object"),
        ("t.json", b'{"id": "a", "x": 1}', "t.json is no list of objects"),
        ("t.json", b'[{"id": "a", "x": NaN}]', "t.json: no JSON: "),
        ("t.json", b'[{"id": "\xff", "x": 1}]', "t.json: no JSON: "),
        ("t.json", b"[" * 100_000, "t.json: no JSON: "),
        ("t.json", b'[{"id": "a", "x": [1]}]', "it has values of list; texts, numbers and booleans can be looked up"),
        ("t.json", b'[{"id": "a", "x": 99999999999999999999}]', "x"),
    ],
)
def test_a_broken_json_file_is_refused_with_its_place(name: str, content: bytes, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    said = refusal(tmp_path, name)
    assert text in said
    assert len(said) < 1000


def test_a_table_of_json_may_have_no_rows(tmp_path: Path) -> None:
    assert "t.json has no row for id 'a'" in failed_record(tmp_path, json_file(tmp_path, []), "a")
