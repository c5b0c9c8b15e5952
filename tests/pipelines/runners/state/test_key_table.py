"""`KeyTable`: each key of a lane has a code of its own, however many there are."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import Batch, Data
from pipelines.data.columns import Rows
from pipelines.data.record import RecordContext
from pipelines.errors import StreamerError
from pipelines.runners.state import keytable
from pipelines.runners.state.keytable import NO_CODE, KeyTable


def table(by: tuple[str, ...] = ("id",), most: int = 1000) -> tuple[KeyTable, list[int], list[int]]:
    """A table, and the codes that it began and evicted."""
    began: list[int] = []
    evicted: list[int] = []

    def begin(codes: Rows) -> None:
        began.extend(codes.tolist())

    def evict(codes: Rows, rows: Rows) -> None:
        assert len(codes) == len(rows)
        evicted.extend(codes.tolist())

    return KeyTable(by, most, begin=begin, evict=evict), began, evicted


def batch(*rows: dict[str, Any], lanes: tuple[Hashable, ...] = ()) -> Batch:
    of = lanes or (None,) * len(rows)
    records = [RecordContext("s", "t", lane=lane) for lane in of]
    return Batch.of([Data(row, record=record) for row, record in zip(rows, records, strict=True)])


def ids(*values: Any, lanes: tuple[Hashable, ...] = ()) -> Batch:
    return batch(*({"id": value} for value in values), lanes=lanes)


def test_rows_of_the_same_key_have_the_same_code_in_later_batches_too() -> None:
    keys, began, _ = table()
    a, b, again = keys.coded(ids("a", "b", "a")).codes.tolist()
    assert (again == a, b != a, sorted(began)) == (True, True, sorted([a, b]))
    assert keys.coded(ids("b", "c")).codes[0] == b
    assert len(keys) == 3


def test_a_text_an_integer_and_a_boolean_are_different_keys() -> None:
    keys, _, _ = table()
    codes = [int(keys.coded(ids(value)).codes[0]) for value in ("1", 1, True, "true", False, 0)]
    assert len(set(codes)) == 6
    assert [keys.text(code) for code in codes] == ['"1"', "1", "true", '"true"', "false", "0"]


def test_keys_of_several_values_are_lists() -> None:
    keys, _, _ = table(("id", "seq"))
    coded = keys.coded(batch({"id": "a", "seq": 1}, {"id": "a", "seq": True}, {"id": "a"}))
    assert [keys.text(code) for code in coded.codes[:2].tolist()] == ['["a",1]', '["a",true]']
    assert keys.value(int(coded.codes[0])) == ("a", 1)
    assert str(coded.failed[2]) == 'there is no value "seq", which says whose record it is'


def test_a_missing_key_or_one_of_another_type_fails_its_row_alone() -> None:
    keys, _, _ = table()
    coded = keys.coded(batch({"id": "a"}, {}, {"id": 1.5}, {"id": "b"}))
    assert sorted(coded.failed) == [1, 2]
    assert "a float; what says whose record it is, is a text" in str(coded.failed[2])
    assert [code == NO_CODE for code in coded.codes.tolist()] == [False, True, True, False]


@pytest.mark.parametrize("others", [("a", "b"), (1, "b"), (True, 2)])
def test_a_text_of_more_than_4096_characters_fails_its_row_alone(others: tuple[Any, Any]) -> None:
    keys, _, _ = table()
    first, last = others
    coded = keys.coded(ids(first, "é" * 4097, "é" * 4096, last))
    assert [code == NO_CODE for code in coded.codes.tolist()] == [False, True, False, False]
    assert str(coded.failed[1]) == ('"id" has 4097 characters; what says whose record it is, has at most 4096')


def test_lanes_have_keys_of_their_own_and_are_forgotten_alone() -> None:
    keys, _, _ = table()
    codes = keys.coded(ids("a", "a", "b", lanes=("p0", "p1", "p0"))).codes.tolist()
    assert len(set(codes)) == 3
    assert sorted(keys.forget(["p0", "p9"]).tolist()) == sorted([codes[0], codes[2]])
    assert keys.coded(ids("a", lanes=("p1",))).codes.tolist() == [codes[1]]
    assert keys.lane(codes[1]) == "p1"


def test_a_saved_key_is_the_same_key() -> None:
    before, _, _ = table(("id", "seq"))
    code = int(before.coded(batch({"id": "\u00e4", "seq": False})).codes[0])
    after, _, _ = table(("id", "seq"))
    loaded = after.code(None, before.text(code))
    assert after.coded(batch({"id": "\u00e4", "seq": False})).codes.tolist() == [loaded]


@pytest.mark.parametrize("count", [1, 10, 30])
@pytest.mark.parametrize("together", [1, 7, 1000])
def test_keys_that_are_loaded_together_are_as_if_they_were_loaded_one_by_one(
    monkeypatch: pytest.MonkeyPatch, together: int, count: int
) -> None:
    monkeypatch.setattr(keytable, "TOGETHER", together)
    texts = [str(number) for number in range(count)]
    first, _, first_evicted = table(most=20)
    second, _, second_evicted = table(most=20)
    for keys in (first, second):
        keys.coded(ids(3, 100, 101))
    codes = [first.code(None, text) for text in texts]
    loaded = []
    for text, code in zip(texts, second.loaded(None, texts), strict=True):
        assert second.text(code) == text
        loaded.append(code)
    assert len(codes) == len(loaded)
    assert [first.value(code) for code in first.codes_of(None)] == [
        second.value(code) for code in second.codes_of(None)
    ]
    for key in range(200, 210):
        for keys in (first, second):
            keys.coded(ids(key))
    assert len(first_evicted) == len(second_evicted)
    assert {first.value(code) for code in first.codes_of(None)} == {
        second.value(code) for code in second.codes_of(None)
    }


def test_beyond_the_most_keys_those_go_that_were_silent_longest() -> None:
    keys, _, evicted = table(most=100)
    first = {key: int(keys.coded(ids(key)).codes[0]) for key in range(100)}
    keys.coded(ids(0))
    keys.coded(ids("new"))
    assert evicted == [first[1]]
    assert len(keys) == 100
    assert keys.coded(ids(0)).codes.tolist() == [first[0]]


def test_a_batch_with_more_keys_than_there_may_be_has_a_place_for_each() -> None:
    keys, _, _ = table(most=10)
    codes = keys.coded(ids(*range(50))).codes
    assert len(set(codes.tolist())) == 50
    keys.coded(ids("new"))
    assert len(keys) == 10


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 30)), max_size=20),
            st.sets(st.sampled_from("xyz"), max_size=1),
        ),
        max_size=20,
    )
)
def test_codes_are_what_a_dictionary_would_give(batches: list[tuple[list[tuple[str, int]], set[str]]]) -> None:
    keys, began, evicted = table(most=12)
    expected: dict[tuple[str, int], int] = {}
    for rows, forgotten in batches:
        evicted.clear()
        began.clear()
        codes = keys.coded(ids(*(key for _, key in rows), lanes=tuple(lane for lane, _ in rows))).codes.tolist()
        gone = set(evicted)
        expected = {key: code for key, code in expected.items() if code not in gone}
        for key, code in zip(rows, codes, strict=True):
            assert expected.setdefault(key, code) == code
        assert len(set(expected.values())) == len(expected) == len(keys)
        assert set(began) <= set(expected.values())
        assert all(json.loads(keys.text(code)) == key[1] for key, code in expected.items())
        assert max(expected.values(), default=0) < keys.capacity
        keys.forget(forgotten)
        expected = {key: code for key, code in expected.items() if key[0] not in forgotten}
    assert np.unique(keys.codes).tolist() == sorted(expected.values())


@pytest.mark.parametrize("looked_for", [1, 64], ids=["all-at-once", "each-alone"])
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 9)), max_size=4), max_size=20), st.integers(4, 6)
)
def test_the_key_goes_that_had_no_row_for_longest_and_it_is_told_for_which_row(
    looked_for: int, batches: list[list[tuple[str, int]]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keytable, "LOOKED_FOR", looked_for)
        _run_beside_a_model(batches, most)


def _run_beside_a_model(batches: list[list[tuple[str, int]]], most: int) -> None:
    gone: list[tuple[int, Any, int]] = []
    keys = KeyTable(
        ("id",),
        most,
        begin=lambda codes: None,
        evict=lambda codes, rows: gone.extend(
            (row, keys.lane(code), keys.value(code)) for code, row in zip(codes.tolist(), rows.tolist(), strict=True)
        ),
    )
    expected: dict[str, dict[int, None]] = {"x": {}, "y": {}}
    for rows in batches:
        gone.clear()
        due = []
        keys.coded(ids(*(key for _, key in rows), lanes=tuple(lane for lane, _ in rows)))
        for row, (lane, key) in enumerate(rows):
            known = expected[lane]
            if key not in known and len(known) == most:
                due.append((row, lane, next(iter(known))))
                del known[next(iter(known))]
            known.pop(key, None)
            known[key] = None
        assert sorted(gone) == sorted(due)
        assert {keys.value(code) for code in keys.codes_of("x").tolist()} == expected["x"].keys()


@pytest.mark.parametrize("text", ["{", '{"a":1}', "[[1]]", '["a",null]', "1.5", "null"])
def test_a_saved_key_that_no_record_can_have_is_refused(text: str) -> None:
    with pytest.raises(StreamerError, match="a saved key is damaged"):
        table()[0].code(None, text)
