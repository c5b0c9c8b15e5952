"""Where a backfill reads and writes: patterns, and the files of this machine."""

from pathlib import Path

import pytest

from pipelines.errors import DefinitionError, StreamerError
from streamer.backfill.localfiles import LocalFiles
from streamer.backfill.locations import place_of
from streamer.backfill.patterns import Pattern
from streamer.backfill.plans.listing import listed


def files(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def matching(folder: Path, pattern: str) -> list[str]:
    place = LocalFiles()
    return [file.relative for file in place.matching(Pattern.of(place.absolute(f"{folder}/{pattern}")))]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("day=*/*.parquet", ["day=1/a.parquet", "day=2/b.parquet"]),
        ("**/*.parquet", ["day=1/a.parquet", "day=1/deep/c.parquet", "day=2/b.parquet"]),
        ("day=1/*.parquet", ["a.parquet"]),
        ("day={1,3}/*.{parquet,jsonl}", ["day=1/a.parquet", "day=1/x.jsonl"]),
        ("day=[2-9]/?.parquet", ["day=2/b.parquet"]),
        ("day=1/a.parquet", ["a.parquet"]),
        ("day=9/*", []),
    ],
)
def test_files_keep_their_path_below_the_fixed_part_of_a_pattern(
    pattern: str, expected: list[str], tmp_path: Path
) -> None:
    files(tmp_path, "day=1/a.parquet", "day=1/x.jsonl", "day=1/deep/c.parquet", "day=2/b.parquet")
    assert matching(tmp_path, pattern) == expected


def test_what_engines_name_as_no_data_is_passed_over_unless_it_is_named(tmp_path: Path) -> None:
    files(tmp_path, "a.parquet", "_SUCCESS", ".hidden", "_errors/a.parquet", "_errors/_b.parquet")
    assert matching(tmp_path, "**/*") == ["a.parquet"]
    assert matching(tmp_path, "_errors/*") == ["a.parquet"]
    assert matching(tmp_path, "*/_b.parquet") == []


def test_a_name_with_the_signs_of_a_pattern_is_found_by_its_letters(tmp_path: Path) -> None:
    files(tmp_path, "a[1].parquet", "a1.parquet", "{x}.parquet", "day[1]/b.parquet", "day1/c.parquet")
    assert matching(tmp_path, "a[1].parquet") == ["a[1].parquet"]
    assert matching(tmp_path, "{x}.parquet") == ["{x}.parquet"]
    assert matching(tmp_path, "day[1]/b.parquet") == ["day[1]/b.parquet"]
    assert matching(tmp_path, "day[1]/c.parquet") == ["day1/c.parquet"]
    assert matching(tmp_path, "b.parquet") == []


def test_a_folder_with_the_signs_of_a_pattern_is_a_folder(tmp_path: Path) -> None:
    files(tmp_path, "day[1]/b.parquet", "day1/c.parquet")
    inputs = listed([f"{tmp_path}/day[1]"], f"{tmp_path}/out", lambda count: None)
    assert [entry.file.relative for entry in inputs] == ["b.parquet"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("day=1/a.parqet", 'no such file or folder; did you mean "a.parquet"?'),
        ("day=2", "no such file or folder"),
        ("day=*", "no file matches; if it is of folders, name their files: '{}/day=*/*'"),
        ("day=*/*.jsonl", "no file matches"),
        ("notes", "no file of it has a known format; files end with .parquet, "),
    ],
)
def test_an_input_without_files_is_an_error_that_says_what_to_write(text: str, said: str, tmp_path: Path) -> None:
    files(tmp_path, "day=1/a.parquet", "notes/readme.txt")
    with pytest.raises(DefinitionError) as error:
        listed([f"{tmp_path}/{text}"], f"{tmp_path}/out", lambda count: None)
    message = str(error.value)
    expected = f"--input {tmp_path}/{text}: {said.format(tmp_path)}"
    assert message.startswith(expected) if said.endswith(" ") else message == expected


def test_too_many_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 1000"):
        Pattern.of("/".join(["{a,b}"] * 11)).plain()


@pytest.mark.parametrize(
    ("pattern", "folder", "below"),
    [
        ("*.parquet", "", True),
        ("*.parquet", "out", False),
        ("*/*.parquet", "out", True),
        ("day=*/*.parquet", "out", False),
        ("**/*.parquet", "out/deep", True),
        ("{in,out}/*.parquet", "out", True),
        ("a.parquet", "", True),
    ],
)
def test_an_output_below_an_input_is_seen(pattern: str, folder: str, below: bool) -> None:
    assert Pattern.of(f"/data/{pattern}" if "*" in pattern or "{" in pattern else pattern).may_match_below(folder) is (
        below
    )


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    place, path = LocalFiles(), f"{tmp_path}/deep/er/a"

    def fail() -> None:
        with place.create(path) as file:
            file.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list((tmp_path / "deep/er").iterdir()) == []
    with place.create(path) as file:
        file.write(b"whole")
        file.flush()
        assert place.names(f"{tmp_path}/deep/er") != ["a"]
    assert place.read(path) == b"whole"
    with pytest.raises(ZeroDivisionError):
        fail()
    assert place.read(path) == b"whole"


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    place = LocalFiles()
    left = place.create(f"{tmp_path}/deep/a")
    with left:
        (hidden,) = (tmp_path / "deep").iterdir()
        files(tmp_path, "deep/.mine", "b")
        place.clean(str(tmp_path))
        assert not hidden.exists()
        hidden.touch()
    assert place.names(f"{tmp_path}/deep") == [".mine", "a"]


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    place = LocalFiles()
    refused = pytest.raises(StreamerError, match="another backfill is writing there")
    with place.lock(f"{tmp_path}/out"), refused, LocalFiles().lock(f"{tmp_path}/out"):
        pass
    with place.lock(f"{tmp_path}/out"):
        pass


def test_errors_name_the_path_and_what_to_do(tmp_path: Path) -> None:
    place = LocalFiles()
    files(tmp_path, "a")
    with pytest.raises(StreamerError, match=r"a/b cannot be written: .*choose another folder"):
        place.write(f"{tmp_path}/a/b", b"")
    with pytest.raises(StreamerError, match=r"missing cannot be read: No such file"):
        place.read(f"{tmp_path}/missing")
    with pytest.raises(StreamerError, match=r"a/out cannot be written"), place.lock(f"{tmp_path}/a/out"):
        pass


def test_a_scheme_that_is_of_no_place_is_refused() -> None:
    assert isinstance(place_of("/data/*.parquet"), LocalFiles)
    with pytest.raises(DefinitionError, match="ftp://"):
        place_of("ftp://host/a")
