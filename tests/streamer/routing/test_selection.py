"""What each sink gets: rows, values, topics and keys."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from connectors.codec import RecordsOrigin
from connectors.config import Addressing, SinkConfig
from connectors.records import Lane, Records, Span
from connectors.sink import Sink
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn
from pipelines.errors import DefinitionError, StepError
from streamer.routing.sinkroute import check_topics, select_all, selection


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
