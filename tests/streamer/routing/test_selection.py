"""What each sink gets: rows, values, topics and keys."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest

from connectors.codec import RecordsOrigin
from connectors.config import Addressing, SinkConfig
from connectors.records import Lane, Records, Span
from connectors.sink import Sink
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.data.data import Data
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DefinitionError, RowsFailed, StepError
from pipelines.values import BoundingBox
from streamer.routing.sinkroute import check_topics, select_all, selection
from streamer.routing.when import check_condition, condition


class BoxConfig(SinkConfig):
    """A sink that has everything a bus can have."""

    type: Literal["box"] = "box"
    topic: str | None = None
    topics: tuple[str, ...] = ()
    key: str | None = None

    @property
    def addressing(self) -> Addressing:
        return Addressing(self.topic or "box", self.topics, self.key)

    def build(self) -> Sink:
        raise NotImplementedError


def batch_of(**columns: list[Any]) -> Batch:
    size = len(next(iter(columns.values())))
    made = {key: Column.of(values) for key, values in columns.items()}
    return Batch(made, size, rows=np.arange(100, 100 + size, dtype=np.int64))


def recorded(batch: Batch, keys: list[bytes | None], headers: Any = None) -> Batch:
    lane = Lane("bus", "t-3", 0)
    records = Records(
        "bus",
        [b""] * batch.size,
        keys,
        np.arange(7, 7 + batch.size, dtype=np.int64),
        [Span(lane, 0, batch.size)],
        ["readings"],
        [3],
        0,
        headers=lambda: headers,
    )
    return Batch(batch.columns, batch.size, rows=batch.rows, origin=RecordsOrigin(records, 100))


def chosen(when: Any, **columns: list[Any]) -> list[int]:
    made = condition(when)
    assert made is not None
    mask, failures = made.rows(batch_of(**columns))
    assert failures == {}
    assert mask.dtype == np.bool_
    found: list[int] = np.flatnonzero(mask).tolist()
    return found


def sees_large(data: Data) -> bool:
    return bool(data["n"] > 1)


NO_FUNCTION = 3


# when


def test_without_when_there_is_no_condition() -> None:
    assert condition(None) is None


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ({"label": "cat"}, [0, 3]),
        ({"label": ["cat", "dog"]}, [0, 1, 3]),
        ({"label": {"ne": "cat"}}, [1, 2]),
        ({"label": {"in": []}}, []),
        ({"prob": {"gt": 0.5}}, [0, 3]),
        ({"prob": {"ge": 0.5}}, [0, 1, 3]),
        ({"prob": {"lt": 0.5}}, [2]),
        ({"prob": {"ge": 0.5, "lt": 0.9}}, [1, 3]),
        ({"prob": {"ge": "0.5"}}, [0, 1, 3]),
        ({"n": 2}, [1]),
        ({"n": [1, 4, "x"]}, [0, 3]),
        ({"n": {"le": 2.5}}, [0, 1]),
        ({"n": "2"}, []),
        ({"label": {"ge": "d"}}, [1, 2]),
        ({"sure": True}, [0, 2]),
        ({"label": "cat", "prob": {"gt": 0.8}}, [0]),
        ({}, [0, 1, 2, 3]),
    ],
)
def test_rows_are_chosen_by_their_values(when: Any, expected: list[int]) -> None:
    found = chosen(
        when,
        label=["cat", "dog", "emu", "cat"],
        prob=[0.9, 0.5, 0.1, 0.7],
        n=[1, 2, 3, 4],
        sure=[True, False, True, False],
    )
    assert found == expected


def test_an_array_of_one_number_counts_as_that_number() -> None:
    arrays = [np.array([value], np.float32) for value in (0.8, 0.79, 0.81)]
    assert chosen({"prob": {"ge": 0.8}}, prob=arrays) == [0, 2]
    ragged = [*arrays[:2], np.array(0.9, np.float32)]
    assert chosen({"prob": {"ge": 0.8}}, prob=ragged) == [0, 2]


@pytest.mark.parametrize("other", [[0.9], [[0.9]], 0.9, [0.9, 0.8], np.float64(0.9)], ids=str)
@pytest.mark.parametrize("test", [{"ge": 0.9}, {"lt": 0.9}, {"eq": 0.9}, {"ne": 0.9}, {"in": [0.9]}], ids=str)
def test_whether_a_row_is_chosen_does_not_depend_on_the_rows_beside_it(test: dict[str, Any], other: Any) -> None:
    # The nearest float32 is a little less than 0.9.
    value = np.array([0.9], np.float32)
    alone = condition({"p": test})
    assert alone is not None
    beside = other if isinstance(other, float) else np.array(other, np.float32)
    expected = alone.rows(batch_of(p=[value]))[0][0]
    assert expected == (next(iter(test)) in ("ge", "eq", "in"))
    assert alone.rows(batch_of(p=[value, beside]))[0][0] == expected
    assert alone.rows(batch_of(p=[value, MISSING, beside]))[0][0] == expected


@pytest.mark.parametrize("other", [1.5, 2, MISSING, "x"], ids=str)
@pytest.mark.parametrize("name", ["eq", "ne", "ge", "lt", "in"])
@pytest.mark.parametrize(
    ("value", "wanted"),
    [(2.0**53, 2**53 + 1), (2**53 + 1, 2.0**53 + 2), (2**63 - 1, 2.0**63), (2**53 + 1, 2**53 + 1)],
    ids=str,
)
def test_an_id_beyond_53_bits_is_compared_exactly_whatever_stands_beside_it(
    value: float, wanted: float, name: str, other: Any
) -> None:
    compared = {"eq": value == wanted, "ne": value != wanted, "ge": value >= wanted, "lt": value < wanted}
    when = condition({"id": {name: [wanted] if name == "in" else wanted}})
    assert when is not None
    expected = compared.get(name, value == wanted)
    assert when.rows(batch_of(id=[value]))[0][0] == expected
    assert when.rows(batch_of(id=[value, other]))[0][0] == expected


def test_an_id_from_the_environment_is_compared_with_all_its_digits() -> None:
    assert chosen({"id": {"gt": "9007199254740993"}}, id=[2**53, 2**53 + 1, 2**53 + 2]) == [2]


def test_a_row_without_the_value_is_chosen_by_exists_false_only() -> None:
    values = [1, MISSING, 3]
    assert chosen({"n": {"exists": False}}, n=values) == [1]
    assert chosen({"n": {"exists": True}}, n=values) == [0, 2]
    assert chosen({"n": {"ne": 1}}, n=values) == [2]
    assert chosen({"n": {"ge": 0}}, n=values) == [0, 2]
    assert chosen({"none": {"exists": False}}, n=values) == [0, 1, 2]
    assert chosen({"none": {"ne": 5}}, n=values) == []


def test_a_list_is_true_if_it_has_values() -> None:
    boxes: list[Any] = [[BoundingBox.corners(0, 1, 0, 1)], [], MISSING, [False]]
    assert chosen({"faces": True}, faces=boxes) == [0, 3]
    assert chosen({"faces": False}, faces=boxes) == [1]
    assert chosen({"faces": {"ne": False}}, faces=boxes) == [0, 3]
    # Of one type in every row, a column may be of another form.
    assert chosen({"faces": True}, faces=[["a"], ["b", "c"]]) == [0, 1]


def test_whether_a_value_exists_decodes_nothing() -> None:
    def never(entries: Sequence[bytes | None]) -> Column:
        raise AssertionError("decoded")

    batch = Batch({"image": WireColumn([b"x", None], never)}, 2)
    made = condition({"image": {"exists": True}})
    assert made is not None
    assert made.rows(batch)[0].tolist() == [True, False]


def test_a_row_that_cannot_be_decoded_fails_and_its_neighbours_do_not() -> None:
    def decode(entries: Sequence[bytes | None]) -> Column:
        bad: dict[int, Exception] = {row: ValueError("broken") for row, entry in enumerate(entries) if entry == b"bad"}
        if bad:
            raise RowsFailed(bad)
        return Column.of([float(entry or 0) for entry in entries])

    made = condition({"p": {"gt": 1}})
    assert made is not None
    mask, failures = made.rows(Batch({"p": WireColumn([b"2", b"bad", b"0.5"], decode)}, 3))
    assert mask.tolist() == [True, False, False]
    assert list(failures) == [1]


@pytest.mark.parametrize(
    ("when", "values", "text"),
    [
        ({"v": {"gt": 0.5}}, ["high", 0.7], "STRING and cannot be compared; text is compared with text"),
        ({"v": {"gt": "b"}}, [0.7, "c"], "DOUBLE and cannot be compared; text is compared with text"),
        ({"v": {"gt": 0.5}}, [np.zeros(3), np.ones(1)], r"NDARRAY of shape \[3\] and cannot be compared; use a funct"),
        ({"v": "cat"}, [["cat"], "cat"], "LIST and cannot be compared; write v: true for lists with values"),
        ({"v": {"gt": True}}, [["cat"], 2.0], "LIST and cannot be compared"),
    ],
)
def test_a_value_that_cannot_be_compared_fails_its_row(when: Any, values: list[Any], text: str) -> None:
    made = condition(when)
    assert made is not None
    mask, failures = made.rows(batch_of(v=values))
    assert mask.tolist() == [False, True]
    assert list(failures) == [0]
    with pytest.raises(Exception, match=text):
        raise failures[0]


def test_a_function_chooses_rows_and_one_that_raises_fails_its_row() -> None:
    sys.modules["rules_of_the_house"] = sys.modules[__name__]
    made = condition("rules_of_the_house:sees_large")
    assert made is not None
    mask, failures = made.rows(batch_of(n=[1, 2, MISSING]))
    assert mask.tolist() == [False, True, False]
    assert list(failures) == [2]
    assert "rules_of_the_house:sees_large: ValueNotFoundError" in str(failures[2])


@pytest.mark.parametrize(
    ("when", "text"),
    [
        ({"p": {"gte": 1}}, "p: gte: no such comparison; there are gt, ge, lt"),
        ({"p": {}}, "p: nothing to compare with"),
        ({"p": None}, "exists: false"),
        ({"p": {"in": "cat"}}, "p: in: a list of texts"),
        ({"p": {"exists": 1}}, "p: exists: true or false"),
        ({"p": [["a"]]}, "p: in: a list of texts"),
        ("no function", '"no function" is not a function; write module:function'),
    ],
)
def test_an_invalid_when_condition_is_refused_with_a_hint(when: Any, text: str) -> None:
    for check in (condition, check_condition):
        with pytest.raises(DefinitionError) as raised:
            check(when)
        assert text in str(raised.value)


def test_a_function_that_is_not_there_is_refused_when_it_is_needed_not_when_it_is_checked() -> None:
    check_condition("no_such_module_anywhere:f")
    with pytest.raises(DefinitionError, match="no module no_such_module_anywhere"):
        condition("no_such_module_anywhere:f")


# keys and drop


def test_a_sink_without_choices_gets_the_batch_itself() -> None:
    batch = batch_of(a=[1, 2])
    got = selection(BoxConfig(), "box").apply(batch)
    assert got.batch is batch
    assert (got.topics, got.keys, got.failed) == (None, None, {})


def test_keys_and_drop_choose_the_values_that_are_written() -> None:
    batch = batch_of(a=[1], b=[2], c=[3])
    assert selection(BoxConfig(keys=("c", "none", "a")), "box").apply(batch).batch.keys() == ["c", "a"]
    assert selection(BoxConfig(drop=("b", "none")), "box").apply(batch).batch.keys() == ["a", "c"]


def test_columns_that_are_written_are_shared_not_copied() -> None:
    batch = batch_of(a=[1.0, 2.0], b=[3, 4])
    got = selection(BoxConfig(keys=("a",)), "box").apply(batch).batch
    assert got.column("a") is batch.column("a")


def test_values_that_are_not_written_still_choose_rows_topics_and_keys() -> None:
    sink = BoxConfig(when={"p": {"gt": 1}}, keys=("x",), topic="out.{label}", topics=("^out",), key="id")
    got = selection(sink, "box").apply(batch_of(p=[1, 2, 3], label=["a", "b", "c"], id=[7, 8, 9], x=[0.1, 0.2, 0.3]))
    assert got.batch.keys() == ["x"]
    assert got.batch.rows.tolist() == [101, 102]
    assert got.topics == ["out.b", "out.c"]
    assert got.keys == [b"8", b"9"]


# topics


def test_a_topic_is_made_of_values_and_of_the_record() -> None:
    batch = recorded(batch_of(label=["cat", "dog"], n=[1, 2], ok=[True, False]), [b"k1", b"k2"])
    sink = BoxConfig(topic="{record.topic}.{record.partition}.{record.key}.{label}-{n}.{ok}", topics=("^readings",))
    got = selection(sink, "box").apply(batch)
    assert got.topics == ["readings.3.k1.cat-1.true", "readings.3.k2.dog-2.false"]


def test_a_topic_may_use_a_header_and_an_offset() -> None:
    headers = [[("trace", b"a"), ("trace", b"b")], [("trace", b"c")]]
    batch = recorded(batch_of(x=[1, 2]), [None, None], headers)
    sink = BoxConfig(topic="{record.headers.trace}.{record.offset}", topics=("^.*$",))
    assert selection(sink, "box").apply(batch).topics == ["b.7", "c.8"]


def test_a_plain_topic_is_the_sinks_own_affair() -> None:
    assert selection(BoxConfig(topic="out"), "box").apply(batch_of(a=[1])).topics is None


def test_a_topic_that_is_not_allowed_is_a_failed_record() -> None:
    sink = BoxConfig(topic="{label}", topics=("cat", "^dog-[0-9]+$"))
    labels = ["cat", "cats", "dog-1", "dog-1\n", "__consumer_offsets", "dog-x"]
    got = selection(sink, "box").apply(batch_of(label=labels))
    assert got.topics == ["cat", "dog-1"]
    assert got.batch.rows.tolist() == [100, 102]
    assert sorted(got.failed) == [101, 103, 104, 105]
    error = got.failed[104]
    assert isinstance(error, StepError)
    assert error.step == "box"
    assert "'__consumer_offsets' is not among the sink's `topics`" in str(error)
    assert r"'dog-1\n' holds U+000A, which cannot be seen" in str(got.failed[103])


def test_a_record_whose_topic_would_be_empty_fails_and_goes_to_no_other_topic() -> None:
    got = selection(BoxConfig(topic="{label}", topics=("^.*$",)), "box").apply(batch_of(label=["a", "", "b"]))
    assert got.topics == ["a", "b"]
    assert "the topic is empty, because the values" in str(got.failed[101])


def test_a_value_that_only_the_record_has_is_told_with_its_name() -> None:
    batch = recorded(batch_of(x=[1]), [b"m1"])
    for topic, words in (
        ("t/{key}", 'needs the value "key", which the result lacks; that of the record is {record.key}'),
        ("t/{other}", 'needs the value "other", which the result lacks'),
        ("t/{record.headers.trace}", 'needs the value "record.headers.trace", which the record lacks'),
    ):
        (error,) = selection(BoxConfig(topic=topic, topics=("^t/",)), "box").apply(batch).failed.values()
        assert str(error).endswith(words)


def test_a_missing_or_unfit_value_in_a_topic_is_a_failed_record() -> None:
    sink = BoxConfig(topic="t.{label}", topics=("^t",))
    got = selection(sink, "box").apply(batch_of(label=["a", MISSING, 0.5, np.zeros(2), np.array([3])]))
    assert got.topics == ["t.a", "t.3"]
    assert 'needs the value "label", which the result lacks' in str(got.failed[101])
    assert "to be text or an integer, not DOUBLE" in str(got.failed[102])
    assert r"not NDARRAY of shape [2]" in str(got.failed[103])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "t.{label}"}, "`topics` must list the allowed ones"),
        ({"topic": "t.{label", "topics": ("a",)}, "stray {"),
        ({"topic": "t.}", "topics": ("a",)}, "stray }"),
        ({"topic": "t.{}", "topics": ("a",)}, "empty name"),
        ({"topic": "{record.toppic}", "topics": ("a",)}, 'did you mean "topic"?'),
        ({"topic": "{record.headers.}", "topics": ("a",)}, 'a record has no "headers."'),
        ({"topic": "{a}", "topics": ("^(",)}, "is not a regular expression"),
        ({"when": {"p": {"greater": 1}}}, "no such comparison"),
    ],
)
def test_choices_that_make_no_sense_are_refused(options: Any, text: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        selection(BoxConfig(**options), "sink box")
    assert str(raised.value).startswith("sink box: ")
    assert text in str(raised.value)


def test_only_a_topic_made_from_values_is_a_template() -> None:
    assert check_topics(BoxConfig(topic="plain")) is None
    assert check_topics(BoxConfig()) is None
    made = check_topics(BoxConfig(topic="a.{b}", topics=("^a",)))
    assert made is not None
    assert made.pieces == ("a.", "b", "")


# keys of messages


def test_a_message_key_may_come_from_a_value() -> None:
    got = selection(BoxConfig(key="id"), "box").apply(batch_of(id=["é", 7, b"\xff", MISSING, True]))
    assert got.keys == ["é".encode(), b"7", b"\xff", None, b"true"]
    assert selection(BoxConfig(key="none"), "box").apply(batch_of(a=[1, 2])).keys == [None, None]


def test_a_value_that_can_be_no_key_is_a_failed_record() -> None:
    sink = BoxConfig(key="id", topic="{t}", topics=("^",))
    got = selection(sink, "box").apply(batch_of(id=[0.5, "a", [1]], t=["x", "y", "z"]))
    assert (got.keys, got.topics) == ([b"a"], ["y"])
    assert sorted(got.failed) == [100, 102]


# several sinks


def test_every_sink_gets_its_own_part() -> None:
    cats = selection(BoxConfig(when={"label": "cat"}), "cats")
    rest = selection(BoxConfig(), "rest")
    parts, failed = select_all([cats, rest], batch_of(label=["cat", "dog"]))
    assert [part.batch.rows.tolist() for part in parts] == [[100], [100, 101]]
    assert failed == {}


def test_a_record_that_fails_for_one_sink_goes_to_none() -> None:
    topic = selection(BoxConfig(topic="{label}", topics=("cat",)), "a")
    key = selection(BoxConfig(key="id"), "b")
    batch = batch_of(label=["cat", "dog", "cat"], id=[1, 2, 0.5])
    parts, failed = select_all([topic, key], batch)
    assert [part.batch.rows.tolist() for part in parts] == [[100], [100]]
    assert {row: error.step for row, error in failed.items() if isinstance(error, StepError)} == {101: "a", 102: "b"}


def test_a_record_with_several_results_fails_with_all_of_them() -> None:
    column = Column.of(["cat", "dog", "cat"])
    batch = Batch({"label": column}, 3, rows=np.array([5, 5, 6], np.int64))
    parts, failed = select_all([selection(BoxConfig(topic="{label}", topics=("cat",)), "a")], batch)
    assert parts[0].batch.rows.tolist() == [6]
    assert list(failed) == [5]


def test_a_window_that_fails_fails_all_its_records() -> None:
    column = DenseColumn(np.array([[0.5, 0.5], [1.0, 1.0]]))
    splits = np.array([0, 2, 4], np.int64)
    batch = Batch({"v": column, "k": Column.of([[1], "a"])}, 2, rows=np.array([1, 2, 3, 4], np.int64), splits=splits)
    parts, failed = select_all([selection(BoxConfig(key="k"), "a")], batch)
    assert sorted(failed) == [1, 2]
    assert parts[0].batch.parents(0).tolist() == [3, 4]
