"""`streamer replay`: dead letters go back where they came from, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafkatopics import IN_ORDER, read

from connectors.message import Message
from streamer.devbroker import Broker
from streamer.letters.replayed import MAX_METADATA, Replayed


class Letters:
    """Writes dead letters, and reads what is on the topics."""

    def __init__(self, bootstrap: str, topic: str, origin: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.origin = origin
        self._producer = Producer({"bootstrap.servers": bootstrap, **IN_ORDER})

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
        headers: list[tuple[str, str | bytes | None]] = [
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
        return [message.value for message in self.messages(topic)]

    def messages(self, topic: str | None = None) -> list[Message]:
        return read(self.bootstrap, topic or self.origin)


@pytest.fixture
def letters(kafka: Broker, topics: Any) -> Letters:
    return Letters(kafka.bootstrap, topics(prefix="dead"), topics(prefix="images"))


@pytest.fixture
def replay(cli: Any, letters: Letters, topic_name: Any) -> Any:
    """Runs the command in a group of the test's own; returns its report."""
    group = topic_name("replay")

    def run(*arguments: str, code: int = 0, to: tuple[str, ...] = (letters.origin,)) -> dict[str, Any]:
        allowed = [part for one in to for part in ("--to", one)]
        options = ("--group", group, "-b", letters.bootstrap, "--json", *allowed)
        ended = cli("replay", letters.topic, *options, *arguments)
        assert ended.code == code, ended.err
        found: dict[str, Any] = json.loads(ended.out)
        return found

    return run


def test_a_letter_goes_back_with_its_payload_key_and_own_headers(letters: Letters, replay: Any) -> None:
    letters.bury(b"a")
    assert replay()["sent"] == 1
    (message,) = letters.messages()
    assert (message.value, message.key, message.headers) == (b"a", b"key-a", (("trace", b"\x00\xff"),))


def test_a_replayed_letter_is_not_replayed_again_unless_asked(letters: Letters, replay: Any) -> None:
    letters.bury(b"a")
    letters.bury(b"b")
    assert replay()["sent"] == 2
    assert replay()["sent"] == 0
    letters.bury(b"c")
    assert replay()["sent"] == 1
    assert letters.back() == [b"a", b"b", b"c"]
    assert replay("--again")["sent"] == 3


def test_letters_that_a_filter_leaves_out_stay_for_later_and_none_goes_twice(letters: Letters, replay: Any) -> None:
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
    both = (letters.origin, other)
    assert replay("--error", "it is what", "--dry-run", to=both)["sent"] == 2
    assert replay("--since", "2100-01-01", "--dry-run")["sent"] == 0
    assert replay("--since", "2000-01-01", "--dry-run", to=both)["sent"] == 2
    assert replay("--topic", other, to=both)["sent"] == 1
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
    both = (letters.origin, "no-such-topic-any-more")
    report = replay(code=1, to=both)
    assert report["sent"] == 1
    assert sum(report["failed"].values()) == 1
    assert 'there is no topic "no-such-topic-any-more"' in next(iter(report["failed"]))
    assert letters.back() == [b"b"]
    assert sum(replay(code=1, to=both)["failed"].values()) == 1


def test_a_forged_letter_is_sent_nowhere_it_is_not_allowed_to(letters: Letters, replay: Any, topics: Any) -> None:
    payments = topics(prefix="payments")
    letters.bury(b"forged", origin=payments)
    letters.bury(b"a")
    dry, report = replay("--dry-run", code=1), replay(code=1)
    for one in (dry, report):
        assert (one["sent"], one["left"]) == (1, 0)
        assert one["failed"] == {f'"{payments}" is not among the topics of --to': 1}
    assert letters.back(payments) == []
    assert letters.back() == [b"a"]
    # It is kept for somebody who knows better.
    assert replay(to=(f"^{payments[:-3]}",))["sent"] == 1
    assert letters.back(payments) == [b"forged"]


def test_without_a_target_topic_no_letter_is_sent_and_the_error_suggests_one(
    letters: Letters, replay: Any, cli: Any, topic_name: Any
) -> None:
    letters.bury(b"a")
    report = replay(code=1, to=())
    assert report["sent"] == 0
    ended = cli("replay", letters.topic, "--group", topic_name(), "-b", letters.bootstrap)
    assert (ended.code, letters.back()) == (1, [])
    assert (
        f'error: 1 not sent: the letters say "{letters.origin}"; if that is right: --to {letters.origin}' in ended.err
    )
    assert replay("--topic", letters.origin, to=())["sent"] == 1
    assert letters.back() == [b"a"]


@pytest.fixture
def service(letters: Letters, tmp_path: Path) -> Path:
    """A service whose dead letters they are."""
    file = tmp_path / "images.yaml"
    file.write_text(
        f"source: {{type: kafka, bootstrap: '{letters.bootstrap}', topics: ['{letters.origin}', '^none-.*']}}\n"
        f"pipeline: []\nsink: {{type: kafka, topic: {letters.origin}-out}}\n"
        f"dead_letter: {{type: kafka, topic: {letters.topic}}}\n"
    )
    return file


def test_a_service_file_says_brokers_and_topics(letters: Letters, service: Path, cli: Any, topics: Any) -> None:
    payments = topics(prefix="payments")
    letters.bury(b"a")
    letters.bury(b"forged", origin=payments)
    options = ("-b", "localhost:1", "--group", f"{letters.topic}-group", "--json")
    ended = cli("replay", service, *options)
    assert ended.code == 1
    report = json.loads(ended.out)
    assert report["sent"] == 1
    assert report["failed"] == {f'"{payments}" is not among the topics of the service\'s source': 1}
    assert (letters.back(), letters.back(payments)) == ([b"a"], [])
    assert json.loads(cli("replay", service, *options, "--to", payments).out)["sent"] == 1
    assert letters.back(payments) == [b"forged"]


def test_a_service_without_dead_letters_on_kafka_is_wrong_use(service: Path, cli: Any) -> None:
    service.write_text(service.read_text().replace("dead_letter: {type: kafka", "dead_letter: {type: memory"))
    ended = cli("replay", service)
    assert ended.code == 2
    assert "has no dead_letter in a topic of a bus, or in a file" in ended.err
    service.write_text(service.read_text().partition("dead_letter")[0])
    assert cli("replay", service).code == 2
    assert "no such file" in cli("replay", service.with_name("none.yaml")).err


def test_headers_of_dead_letters_are_escaped_where_they_are_printed(
    letters: Letters, cli: Any, topic_name: Any
) -> None:
    evil = "\x1b]0;owned\x07\n\u202e\x9b31m"
    letters.bury(b"a", step=f"s{evil}", error=f"e{evil}", origin=f"t{evil}")
    letters.bury(b"b", step=f"s{evil}", error=f"e{evil}")
    options = ("--group", topic_name(), "-b", letters.bootstrap, "--to", letters.origin, "--dry-run")
    for arguments in ((), ("--json",)):
        ended = cli("replay", letters.topic, *options, *arguments)
        assert ended.code == 1
        for mark in ("\x1b", "\x07", "\u202e", "\x9b", "\nerror: \n"):
            assert mark not in ended.out + ended.err
    assert json.loads(ended.out)["letters"][0]["step"] == f"s{evil}"


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
    to = ("--to", letters.origin)
    ended = cli("replay", letters.topic, "--group", topic_name(), "-b", letters.bootstrap, "--dry-run", *to)
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
