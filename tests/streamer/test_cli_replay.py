"""`streamer replay`: dead letters go back where they came from, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streamer.broker import Broker
from streamer.cli.replayed import MAX_METADATA, Replayed


class Letters:
    """Writes dead letters, and reads what is on the topics."""

    def __init__(self, bootstrap: str, topic: str, origin: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.origin = origin
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def bury(
        self,
        value: bytes,
        *,
        step: str = "scale",
        error: str = "ValueError",
        origin: str | None = None,
        left_out: str | None = None,
    ) -> None:
        short = [("streamer-left-out", left_out.encode()), ("streamer-size", b"1048516")] if left_out else []
        headers = [
            *short,
            ("streamer-topic", (origin or self.origin).encode()),
            ("streamer-partition", b"0"),
            ("streamer-offset", b"7"),
            ("streamer-step", step.encode()),
            ("streamer-error", error.encode()),
            ("streamer-text", b"it is what it is"),
            ("trace", b"\x00\xff"),
        ]
        self._producer.produce(self.topic, value, b"key-" + value, headers=headers)
        assert self._producer.flush(60) == 0

    def stranger(self, value: bytes) -> None:
        self._producer.produce(self.topic, value)
        assert self._producer.flush(60) == 0

    def back(self, topic: str | None = None) -> list[bytes]:
        return [message.value() for message in self.messages(topic)]

    def messages(self, topic: str | None = None) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.partition.eof": True})
        consumer.assign([TopicPartition(topic or self.origin, 0, 0)])
        found = []
        while (message := consumer.poll(30.0)) is not None and message.error() is None:
            found.append(message)
        consumer.close()
        return found


@pytest.fixture
def letters(kafka: Broker, topics: Any) -> Letters:
    return Letters(kafka.bootstrap, topics(prefix="dead"), topics(prefix="images"))


@pytest.fixture
def replay(cli: Any, letters: Letters, topic_name: Any) -> Any:
    """Runs the command in a group of the test's own; returns its report."""
    group = topic_name("replay")

    def run(*arguments: str, code: int = 0) -> dict[str, Any]:
        ended = cli("replay", letters.topic, "--group", group, "-b", letters.bootstrap, "--json", *arguments)
        assert ended.code == code, ended.err
        found: dict[str, Any] = json.loads(ended.out)
        return found

    return run


def test_a_letter_goes_back_with_its_payload_key_and_own_headers(letters: Letters, replay: Any) -> None:
    letters.bury(b"a")
    assert replay()["sent"] == 1
    (message,) = letters.messages()
    assert (message.value(), message.key(), message.headers()) == (b"a", b"key-a", [("trace", b"\x00\xff")])


def test_what_was_replayed_is_not_replayed_again_unless_asked(letters: Letters, replay: Any) -> None:
    letters.bury(b"a")
    letters.bury(b"b")
    assert replay()["sent"] == 2
    assert replay()["sent"] == 0
    letters.bury(b"c")
    assert replay()["sent"] == 1
    assert letters.back() == [b"a", b"b", b"c"]
    assert replay("--again")["sent"] == 3


def test_what_a_filter_leaves_out_stays_for_later_and_nothing_goes_twice(letters: Letters, replay: Any) -> None:
    for number in range(6):
        letters.bury(b"%d" % number, step="decode" if number % 2 else "scale")
    first = replay("--step", "decode")
    assert (first["sent"], first["left"]) == (3, 3)
    assert letters.back() == [b"1", b"3", b"5"]
    second = replay()
    assert (second["sent"], second["before"]) == (3, 3)
    assert sorted(letters.back()) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert replay()["sent"] == 0


def test_filters_choose_by_error_origin_and_time(letters: Letters, replay: Any, topics: Any) -> None:
    other = topics(prefix="sounds")
    letters.bury(b"a", error="WireError")
    letters.bury(b"b", origin=other)
    assert replay("--error", "WireError", "--dry-run")["letters"] == [
        {"topic": letters.origin, "step": "scale", "error": "WireError", "count": 1}
    ]
    assert replay("--error", "it is what", "--dry-run")["sent"] == 2
    assert replay("--since", "2100-01-01", "--dry-run")["sent"] == 0
    assert replay("--since", "2000-01-01", "--dry-run")["sent"] == 2
    assert replay("--topic", other)["sent"] == 1
    assert letters.back(other) == [b"b"]
    assert letters.back() == []


def test_a_dry_run_sends_and_remembers_nothing(letters: Letters, replay: Any) -> None:
    letters.bury(b"a")
    assert replay("--dry-run")["sent"] == 1
    assert replay("--dry-run")["sent"] == 1
    assert letters.back() == []


def test_a_count_is_kept_and_the_rest_goes_next_time(letters: Letters, replay: Any) -> None:
    for number in range(5):
        letters.bury(b"%d" % number)
    assert replay("--count", "2")["sent"] == 2
    assert letters.back() == [b"0", b"1"]
    assert replay()["sent"] == 3
    assert letters.back() == [b"0", b"1", b"2", b"3", b"4"]


def test_records_that_are_no_dead_letters_are_counted_and_passed_over(letters: Letters, replay: Any) -> None:
    letters.stranger(b"who am I")
    letters.bury(b"a")
    report = replay()
    assert (report["sent"], report["foreign"]) == (1, 1)
    assert replay()["foreign"] == 0


def test_a_letter_whose_topic_is_gone_is_reported_and_kept(letters: Letters, replay: Any) -> None:
    letters.bury(b"a", origin="no-such-topic-any-more")
    letters.bury(b"b")
    report = replay(code=1)
    assert report["sent"] == 1
    assert sum(report["failed"].values()) == 1
    assert "no-such-topic-any-more" in next(iter(report["failed"]))
    assert letters.back() == [b"b"]
    assert sum(replay(code=1)["failed"].values()) == 1


def test_a_letter_without_its_payload_is_not_sent_but_told_of_once(
    letters: Letters, replay: Any, cli: Any, topic_name: Any
) -> None:
    letters.bury(b"{}", left_out="payload")
    letters.bury(b"a")
    letters.bury(b"{}", left_out="payload, key, headers", step="decode")
    place = f"{letters.origin}[0]@7"
    assert replay("--dry-run", code=1)["empty"] == [place, place]
    report = replay("--step", "scale", code=1)
    assert (report["sent"], report["empty"], report["left"]) == (1, [place], 1)
    report = replay(code=1)
    assert (report["sent"], report["empty"]) == (0, [place])
    assert replay()["empty"] == []
    assert letters.back() == [b"a"]
    ended = cli("replay", letters.topic, "--group", topic_name(), "-b", letters.bootstrap, "--dry-run")
    assert (
        ended.code,
        f"2 have no payload to send; the records are, as long as their topic keeps them, at {place}" in ended.err,
    ) == (1, True)
    shown = cli("tap", letters.topic, "-b", letters.bootstrap, "--from", "earliest", "--end")
    assert "payload, key, headers left out (1,048,516 bytes" in shown.out


def test_an_empty_topic_is_replayed_at_once(replay: Any) -> None:
    assert replay()["sent"] == 0


def test_people_get_a_table_and_a_sentence(cli: Any, letters: Letters, topic_name: Any) -> None:
    letters.bury(b"a")
    ended = cli("replay", letters.topic, "--group", topic_name(), "-b", letters.bootstrap, "--dry-run")
    assert ended.code == 0
    assert letters.origin in ended.out
    assert f"1 would be sent back from {letters.topic}" in ended.out


def test_a_since_that_is_no_time_is_wrong_use(cli: Any, tmp_path: Path) -> None:
    ended = cli("replay", "x", "--since", "earliest")
    assert ended.code == 2
    assert "--since takes a time" in ended.err


def test_marks_survive_the_way_to_the_brokers_and_back() -> None:
    marks = Replayed(10)
    marks.add([(12, 13), (20, 25), (13, 14)])
    text, complete = marks.metadata()
    assert (marks.position, text, complete) == (10, "2-3,10-14", True)
    again = Replayed(marks.position, text)
    assert [offset for offset in range(30) if offset in again] == [*range(10), 12, 13, *range(20, 25)]
    again.add([(10, 12)])
    assert (again.position, again.metadata()) == (14, ("6-10", True))


def test_marks_that_are_too_many_forget_the_last_ones_and_say_so() -> None:
    marks = Replayed(0)
    marks.add([(number, number + 1) for number in range(1, 4001, 2)])
    text, complete = marks.metadata()
    assert not complete
    assert len(text) <= MAX_METADATA
    again = Replayed(0, text)
    assert 1 in again
    assert 3999 not in again


def test_a_text_of_somebody_else_counts_as_no_marks() -> None:
    for text in ("hello", "1,x", "-", "5-", None):
        assert 6 not in Replayed(5, text)
        assert 4 in Replayed(5, text)
