"""Files of state: what is saved is loaded again, whole checkpoints or nothing, and errors that say what to do."""

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.databasefile import DiskFull
from examples import examples
from pipelines.errors import ConnectorError
from pipelines.runners.state.item import Change, Item
from streamer.state.filestore import FileStore
from streamer.state.store import Loaded, SavedStep, Scope

PUMPS = Scope("kafka", "pumps-0")
OTHERS = [PUMPS, Scope("kafka", "pumps-1"), Scope("mqtt", "0")]

Open = Callable[..., FileStore]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    stores = []

    def opened(service: str = "service", path: Path = tmp_path / "state.db") -> FileStore:
        store = FileStore(path, service)
        stores.append(store)
        store.open()
        return store

    yield opened
    for store in stores:
        store.close()


def put(
    key: str, value: bytes | None, scope: Scope = PUMPS, step: str = "WINDOW", part: int = 0
) -> tuple[Scope, str, Change]:
    return (scope, step, Change(None, key, part, value))


def test_what_is_saved_is_loaded_after_a_restart(opened: Open) -> None:
    store = opened()
    name = store.id
    changes = [put('"b"', b"2", part=1), put('"b"', b"1"), put('"a"', b""), put('"a"', b"9", step="DEDUP")]
    assert store.save(changes, {PUMPS: 17}, {PUMPS: 12}) == 1
    store.close()
    again = opened()
    items = {
        "WINDOW": [Item('"a"', 0, b""), Item('"b"', 0, b"1"), Item('"b"', 1, b"2")],
        "DEDUP": [Item('"a"', 0, b"9")],
    }
    assert again.load(PUMPS) == Loaded(17, items, 12)
    assert again.load(OTHERS[1]) == Loaded(None, {})
    assert (again.id, again.checkpoint, again.load(PUMPS).position) == (name, 1, 17)


def test_a_file_that_is_made_anew_has_another_id(opened: Open, tmp_path: Path) -> None:
    assert opened().id != opened(path=tmp_path / "other.db").id


Changes = st.lists(
    st.tuples(
        st.sampled_from(OTHERS),
        st.sampled_from(["WINDOW", "WINDOW-2", "DEDUP"]),
        st.builds(
            Change,
            lane=st.none(),
            key=st.sampled_from(['"a"', "1", '["a",true]', '"\U0001f600"', '""']),
            part=st.integers(0, 2),
            value=st.none() | st.binary(max_size=20),
        ),
    ),
    max_size=20,
)
Saves = st.lists(st.tuples(Changes, st.dictionaries(st.sampled_from(OTHERS), st.integers(0, 2**63 - 1))), max_size=6)


@settings(max_examples=examples(60), deadline=None)
@given(saves=Saves, reopened=st.sets(st.integers(0, 5)))
def test_a_store_has_what_a_dictionary_has_after_the_same_saves(
    tmp_path_factory: pytest.TempPathFactory,
    saves: list[tuple[list[tuple[Scope, str, Change]], dict[Scope, int]]],
    reopened: set[int],
) -> None:
    store = FileStore(tmp_path_factory.mktemp("state") / "state.db", "service")
    store.open()
    known: dict[tuple[Scope, str, str, int], bytes] = {}
    at: dict[Scope, int] = {}
    for number, (changes, positions) in enumerate(saves):
        assert store.save(changes, positions) == number + 1
        at.update(positions)
        for scope, step, change in changes:
            place = (scope, step, change.key, change.part)
            known.pop(place, None)
            if change.value is not None:
                known[place] = change.value
        if number in reopened:
            store.close()
            store.open()
    for scope in OTHERS:
        loaded = store.load(scope)
        held = [(step, item) for step, items in loaded.items.items() for item in items]
        assert loaded.position == at.get(scope)
        assert {(scope, step, item.key, item.part): item.value for step, item in held} == {
            place: value for place, value in known.items() if place[0] == scope
        }
        assert all(items == sorted(items) for items in loaded.items.values())
    store.close()


def test_a_save_that_fails_changes_nothing_and_can_be_made_again(opened: Open) -> None:
    store = opened()
    store.save([put("1", b"old")], {PUMPS: 1})

    def broken() -> Iterator[tuple[Scope, str, Change]]:
        yield put("1", b"new", step="NEW", scope=OTHERS[1])
        yield put("1", 7)  # type: ignore[arg-type]
        raise RuntimeError("a step")

    with pytest.raises(RuntimeError):
        store.save(broken(), {PUMPS: 2})
    with pytest.raises(ConnectorError):
        store.save([put("1", b"new"), put("2", object(), step="NEW")], {PUMPS: 2})  # type: ignore[arg-type]
    assert store.load(PUMPS) == Loaded(1, {"WINDOW": [Item("1", 0, b"old")]})
    assert store.checkpoint == 1
    assert store.save([put("2", b"new", step="NEW")], {PUMPS: 2}) == 2
    assert store.load(PUMPS).items["NEW"] == [Item("2", 0, b"new")]


def test_without_room_on_the_disk_nothing_is_saved_until_there_is_some(opened: Open) -> None:
    store = opened()
    store.save([put("1", b"old")], {PUMPS: 1})
    connection = store._file.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    large = [put(str(key), bytes(2000), step="NEW") for key in range(50)]
    with pytest.raises(DiskFull, match="no room on the disk; make some") as raised:
        store.save(large, {PUMPS: 2})
    assert raised.value.retriable
    assert store.load(PUMPS) == Loaded(1, {"WINDOW": [Item("1", 0, b"old")]})
    connection.execute("PRAGMA max_page_count = 1000000")
    assert store.save(large, {PUMPS: 2}) == 2
    assert len(store.load(PUMPS).items["NEW"]) == 50


WRITER = """
import sys
from pathlib import Path
from pipelines.runners.state.item import Change
from streamer.state.filestore import FileStore
from streamer.state.store import Scope
store = FileStore(Path(sys.argv[1]), "service")
store.open()
scope, number = Scope("kafka", "pumps-0"), store.checkpoint
while True:
    number += 1
    value = number.to_bytes(8, "big") * 100
    changes = [(scope, "WINDOW", Change(None, str(key), 0, value)) for key in range(200)]
    assert store.save(changes, {scope: number}) == number
    print(number, flush=True)
"""


def test_a_process_that_is_killed_leaves_whole_checkpoints_and_loses_none_that_was_saved(
    opened: Open, tmp_path: Path
) -> None:
    path, chance = tmp_path / "state.db", random.Random(1)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        saved = [int(line) for line in process.stdout if line.endswith("\n")]
        process.wait()
        store = opened()
        position, items, _ = store.load(PUMPS)
        assert position == store.checkpoint
        assert store.checkpoint >= max(saved, default=1)
        assert {item.value for item in items["WINDOW"]} == {store.checkpoint.to_bytes(8, "big") * 100}
        assert len(items["WINDOW"]) == 200
        store.close()


def test_a_file_is_for_one_service_and_one_process_at_a_time(opened: Open) -> None:
    first = opened("pumps")
    with pytest.raises(ConnectorError, match="another service; give each process a file of its own"):
        opened("pumps")
    first.close()
    with pytest.raises(
        ConnectorError, match=r'the state of service "pumps", and this is "fans"; give each service a path'
    ):
        opened("fans")
    opened("pumps")


def test_a_file_of_a_later_release_and_a_foreign_one_are_left_alone(opened: Open, tmp_path: Path) -> None:
    opened().close()
    with sqlite3.connect(tmp_path / "state.db") as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(ConnectorError, match=r"version 2 .* start that release, or move it away"):
        opened()
    with sqlite3.connect(tmp_path / "theirs.db") as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(ConnectorError, match="another program"):
        opened(path=tmp_path / "theirs.db")


def test_a_damaged_file_is_told_and_says_what_to_do(opened: Open, tmp_path: Path) -> None:
    store = opened()
    store.save([put(str(key), bytes(1000)) for key in range(500)], {PUMPS: 1})
    store.close()
    path = tmp_path / "state.db"
    content = bytearray(path.read_bytes())
    content[40000:] = random.Random(3).randbytes(len(content) - 40000)
    path.write_bytes(content)
    with pytest.raises(ConnectorError, match=r"damaged.*move it away"):
        opened().load(PUMPS)


def test_steps_are_remembered_as_they_were_defined_until_they_have_no_state(opened: Open) -> None:
    store = opened()
    window, dedup = SavedStep("WINDOW", {"size": 4, "by": ["a"]}), SavedStep("DEDUP", {"by": "a"})
    store.define({"WINDOW": window, "DEDUP": dedup})
    store.save([put("1", b"x")], {})
    store.close()
    store = opened()
    assert store.steps() == {"WINDOW": window, "DEDUP": dedup}
    larger = SavedStep("WINDOW", {"size": 8})
    store.define({"WINDOW-2": larger})
    assert store.steps() == {"WINDOW": window, "WINDOW-2": larger}
