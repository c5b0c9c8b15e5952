"""Answers by topic: each topic is asked about once, however its records come."""

from __future__ import annotations

import numpy as np
import pytest

from connectors.coded import Coded
from connectors.records import Lane, Records, Span
from pipelines.data.columns import Mask
from streamer.agent import bytopic
from streamer.agent.bytopic import ByTopic


class Asking:
    """Topics that begin with "a" fit; of one that is "?" nothing can be said."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, records: Records) -> Mask | None:
        topics = records.topics_of()
        self.asked.append(topics)
        return None if "?" in topics else np.array([topic.startswith("a") for topic in topics])


def coded(*topics: str) -> Records:
    count = len(topics)
    return Records(
        "bus", [b""] * count, None, np.arange(count), [Span(Lane("bus", "0", 0), 0, count)], Coded.of(topics), [0], 0
    )


def of_spans(*topics: tuple[str, int]) -> Records:
    edges = np.cumsum([0, *(count for _, count in topics)]).tolist()
    spans = [Span(Lane("bus", str(at), 0), *edges[at : at + 2]) for at in range(len(topics))]
    names, numbers = [topic for topic, _ in topics], list(range(len(topics)))
    return Records("bus", [b""] * edges[-1], None, np.arange(edges[-1]), spans, names, numbers, 0)


def fitting(by_topic: ByTopic, records: Records) -> list[bool] | None:
    mask = by_topic.fitting(records)
    return None if mask is None else mask.tolist()


def test_each_topic_is_asked_about_once() -> None:
    asking = Asking()
    by_topic = ByTopic(asking)
    assert fitting(by_topic, coded("b", "a/1", "b", "a/2", "a/1")) == [False, True, False, True, True]
    assert fitting(by_topic, coded("c", "a/2", "b")) == [False, True, False]
    assert fitting(by_topic, of_spans(("a/1", 2), ("b", 1), ("a/3", 1))) == [True, True, False, True]
    assert asking.asked == [["b", "a/1", "a/2"], ["c"], ["a/3"]]


def test_nothing_is_said_of_a_block_with_a_topic_that_cannot_be_compared_and_the_next_is_asked_again() -> None:
    asking = Asking()
    by_topic = ByTopic(asking)
    assert fitting(by_topic, coded("a", "?")) is None
    assert fitting(by_topic, coded("a")) == [True]
    assert asking.asked == [["a", "?"], ["a"]]


def test_topics_that_somebody_makes_up_take_no_more_than_so_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytopic, "MOST_TEXT", 10)
    asking = Asking()
    by_topic = ByTopic(asking)
    for _ in range(2):
        assert fitting(by_topic, coded("a" * 11, "b")) == [True, False]
    assert len(asking.asked) == 2
