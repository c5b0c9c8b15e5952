"""Outboxes beyond the contract of sinks: restarts, refusals, bounds, damaged files."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import until

from connectors.memory import MemorySink, MemoryTopic, memory_topic
from connectors.message import Message, block_of
from connectors.outbox import OutboxConfig
from connectors.outbox import store as store_module
from connectors.outbox.packing import PackedColumns
from connectors.outbox.refused import forget, refusals, resend
from connectors.outbox.sink import OutboxSink
from connectors.outbox.store import Owner, Store
from connectors.outbox.wrapping import contents
from connectors.records import Messages
from connectors.sink import Refused, Sink
from pipelines.errors import ConnectorError

MakeSink = Callable[..., OutboxSink]


class Place:
    """A topic in memory behind an outbox in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.topic = MemoryTopic("place")
        self.sinks: list[OutboxSink] = []

    def sink(self, *, service: str = "service", real: Sink | None = None, **fields: Any) -> OutboxSink:
        sink = OutboxSink(real or MemorySink(self.topic), OutboxConfig(path=self.path, **fields), service=service)
        self.sinks.append(sink)
        return sink

    def opened(self, **fields: Any) -> OutboxSink:
        sink = self.sink(**fields)
        sink.open()
        return sink

    def values(self, count: int) -> list[bytes | None]:
        until(lambda: len(self.topic) >= count)
        return [message.value for message in self.topic.messages()]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path / "results.outbox")
    yield place
    for sink in place.sinks:
        sink.close()


def failure(sink: OutboxSink | Place) -> str:
    """The error that a barrier raises soon, or `open` at once."""
    deadline = time.monotonic() + 20
    try:
        opened = sink if isinstance(sink, OutboxSink) else sink.opened()
        while time.monotonic() < deadline:
            opened.barrier(deadline)
            time.sleep(0.01)
    except ConnectorError as error:
        return str(error)
    return ""


def numbered(start: int, stop: int) -> list[Message]:
    return [Message(b"%06d" % number, b"key-%d" % number) for number in range(start, stop)]


def send(sink: OutboxSink, messages: list[Message], wait: float = 20, first: int = 0) -> Refused:
    return sink.send(block_of(messages, first), time.monotonic() + wait)


def values(start: int, stop: int) -> list[bytes]:
    return [b"%06d" % number for number in range(start, stop)]


def test_messages_left_in_the_outbox_are_sent_first_and_in_order_by_the_next_process(place: Place) -> None:
    place.topic.faults.cut()
    first = place.opened()
    for start in range(0, 1000, 100):
        assert send(first, numbered(start, start + 100)) == {}
        assert first.barrier(time.monotonic() + 1) == {}
    assert sum(map(len, first.confirmed())) == 1000
    assert first.messages_held == 1000
    first.close()
    assert len(place.topic) == 0
    place.topic.faults.mend()
    second = place.opened()
    assert send(second, numbered(1000, 1100)) == {}
    assert place.values(1100) == values(0, 1100)
    until(lambda: not second.messages_held)
    assert second.bytes_held == 0
    assert second.oldest_age == 0


def test_nothing_of_a_message_is_changed_by_the_wait(place: Place) -> None:
    draw = random.Random(5)
    other = f"other of {place.path}"

    def drawn(number: int) -> Message:
        names = [draw.choice(["a", "b", "\u00fc", ""]) for _ in range(draw.choice([0, 0, 1, 3]))]
        return Message(
            draw.choice([None, b"", b"%d" % number, bytes([number % 256]) * draw.randrange(3000)]),
            draw.choice([None, b"", b"\x00\xff", b"key-%d" % number]),
            tuple((name, draw.choice([None, b"", b"\xff\x00", b"value"])) for name in names),
            draw.choice([0, 1, 1_700_000_000_000]),
            None,
            draw.choice([None, other]),
        )

    sent = [drawn(number) for number in range(2000)]
    place.topic.faults.cut()
    first = place.opened()
    rest, start = list(sent), 0
    while rest:
        count = draw.randrange(1, 300)
        assert send(first, rest[:count], first=start) == {}
        rest, start = rest[count:], start + count
    first.close()
    place.topic.faults.mend()
    place.opened()
    for name, topic in ((None, place.topic), (other, memory_topic(other))):
        expected = [message[:4] for message in sent if message.topic == name]
        until(lambda: len(topic) == len(expected))  # noqa: B023
        assert [message[:4] for message in topic.messages()] == expected


def test_a_topic_that_is_no_text_of_any_encoding_waits_like_any_other(place: Place) -> None:
    strange = f"\ud800 {place.path}"
    sink = place.opened()
    assert send(sink, [Message(b"x", topic=strange)]) == {}
    until(lambda: len(memory_topic(strange)) == 1)


def test_blocks_that_share_a_buffer_store_only_their_own(place: Place) -> None:
    from pipelines.data.spans import Spans

    payloads = Spans.of(values(0, 1000))
    sink = place.opened()
    rows = np.arange(0, 1000, 3)
    assert sink.send(Messages(rows, payloads.take(rows)), time.monotonic() + 20) == {}
    assert place.values(len(rows)) == [b"%06d" % row for row in rows.tolist()]


def test_a_message_that_the_sink_refuses_is_set_aside_and_the_others_go_on(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.topic.faults.refuse = lambda message: "poison" if (message.value or b"").endswith(b"7") else None
    sink = place.opened()
    for start in (0, 50):
        assert send(sink, numbered(start, start + 50)) == {}
    good = [value for value in values(0, 100) if not value.endswith(b"7")]
    assert place.values(90) == good
    until(lambda: not sink.messages_held)
    assert sink.refused == 10
    assert "poison" in caplog.text
    sink.close()
    assert contents(place.path) == "nothing waits; 10 were refused, the last one: memory: poison"
    with sqlite3.connect(place.path) as connection:
        rows = connection.execute("SELECT payloads, keys, reason FROM refused ORDER BY number").fetchall()
    assert rows == [(b"%06d" % n, b"key-%d" % n, "memory: poison") for n in range(7, 100, 10)]
    again = place.opened()
    assert again.refused == 10
    assert send(again, numbered(100, 101)) == {}
    assert place.values(91)[-1] == b"000100"


def refusing(place: Place) -> OutboxSink:
    """An outbox whose sink has refused 7, 17 and 27 of thirty messages."""
    place.topic.faults.refuse = lambda message: "poison" if (message.value or b"").endswith(b"7") else None
    sink = place.opened()
    send(sink, numbered(0, 30))
    until(lambda: sink.refused == 3 and not sink.messages_held)
    return sink


def test_refused_messages_are_listed_forgotten_or_sent_again_by_the_next_process(place: Place) -> None:
    sink = refusing(place)
    assert [one.number for one in refusals(place.path)] == [7, 17, 27], "a service may use it meanwhile"
    with pytest.raises(ConnectorError, match="while no service uses it"):
        resend(place.path)
    sink.close()
    seen = refusals(place.path)[1]
    assert (seen.reason, list(seen.message.values), list(seen.message.keys or ())) == (
        "memory: poison",
        [b"000017"],
        [b"key-17"],
    )
    assert forget(place.path, [17]) == 1
    assert resend(place.path, [27]) == 1
    assert contents(place.path).startswith("1 messages")
    assert resend(place.path) == 1
    assert refusals(place.path) == []
    place.topic.faults.refuse = None
    again = place.opened()
    assert place.values(29)[-2:] == [b"000027", b"000007"]
    assert again.refused == 0
    assert send(again, numbered(30, 31)) == {}
    assert place.values(30)[-1] == b"000030"


def test_a_message_that_is_refused_again_is_set_aside_again(place: Place) -> None:
    refusing(place).close()
    assert resend(place.path) == 3
    again = place.opened()
    until(lambda: again.refused == 3 and not again.messages_held)
    again.close()
    assert [list(one.message.values) for one in refusals(place.path)] == [[b"000007"], [b"000017"], [b"000027"]]


def test_a_refused_message_whose_block_is_still_there_is_not_sent_twice(place: Place) -> None:
    """As after a crash between the refusal and the removal of its block."""
    columns = PackedColumns.of(block_of(numbered(0, 3)))
    store = Store(place.path, Owner("sink memory of service", ""))
    store.open()
    store.add([(columns, 300)])
    store.refuse(1, block_of(numbered(1, 2)), "poison")
    store.close()
    assert resend(place.path) == 1
    place.opened()
    assert place.values(3) == values(0, 3)


@pytest.mark.parametrize("what", [refusals, resend, forget])
def test_a_missing_file_a_foreign_file_and_an_unknown_number_are_errors(
    what: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises(ConnectorError, match="no such file"):
        what(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text").write_text("no database, but long enough to be one" * 100)
    with pytest.raises(ConnectorError, match="not an outbox"):
        what(tmp_path / "text")
    refusing(Place(tmp_path / "good")).close()
    if what is not refusals:
        with pytest.raises(ConnectorError, match="no refused message has the number 8"):
            what(tmp_path / "good", [8])  # type: ignore[call-arg]


def test_with_on_refused_stop_a_refused_message_ends_the_service_and_is_sent_once_the_sink_takes_it(
    place: Place,
) -> None:
    place.topic.faults.refuse = lambda message: "poison" if message.value == b"000003" else None
    sink = place.opened(on_refused="stop")
    send(sink, numbered(0, 5))
    assert "on_refused: keep" in failure(sink)
    with pytest.raises(ConnectorError, match="refuses message 3") as raised:
        send(sink, numbered(5, 6))
    assert not raised.value.retriable
    sink.close()
    place.topic.faults.refuse = None
    place.opened()
    assert set(place.values(5)) == set(values(0, 5))


def test_a_message_that_the_sink_lost_is_sent_again(place: Place) -> None:
    losses = {b"000003": 2, b"000150": 1}

    def lose(message: Message) -> bool:
        left = losses.get(message.value or b"", 0)
        losses[message.value or b""] = left - 1
        return left > 0

    place.topic.faults.lose = lose
    sink = place.opened()
    assert send(sink, numbered(0, 100)) == {}
    assert send(sink, numbered(100, 200)) == {}
    until(lambda: not sink.messages_held)
    assert sorted(message.value for message in place.topic.messages()) == values(0, 200)


def test_a_sink_that_is_broken_for_good_ends_the_service_and_leaves_the_messages(place: Place) -> None:
    class Broken(MemorySink):
        def send(self, messages: Messages, deadline: float) -> Refused:
            raise ConnectorError("the client has failed")

    sink = place.opened(real=Broken(place.topic))
    send(sink, numbered(0, 10))
    assert failure(sink)
    with pytest.raises(ConnectorError, match="the client has failed"):
        send(sink, numbered(10, 11))
    sink.close()
    place.opened()
    assert place.values(10) == values(0, 10)


def test_a_sink_that_raises_anything_ends_the_service_too(place: Place) -> None:
    class Broken(MemorySink):
        def send(self, messages: Messages, deadline: float) -> Refused:
            raise KeyError("a plug-in's own")

    sink = place.opened(real=Broken(place.topic))
    send(sink, numbered(0, 1))
    assert "KeyError" in failure(sink)


def test_a_sink_that_cannot_open_is_told_as_without_an_outbox(place: Place) -> None:
    class Wrong(MemorySink):
        def open(self) -> None:
            raise ConnectorError("no such topic")

    with pytest.raises(ConnectorError, match="no such topic"):
        place.opened(real=Wrong(place.topic))
    assert send(place.opened(), numbered(0, 1)) == {}, "the file is free again"


def test_a_full_outbox_holds_the_service_back_and_says_so(place: Place) -> None:
    place.topic.faults.cut("the broker is away")
    sink = place.opened(max=100)
    assert send(sink, numbered(0, 60)) == {}
    assert sink.down() is None, "the peer is away, and nothing waits for it"
    refused = send(sink, numbered(60, 160), wait=0.3)
    assert sink.messages_held <= 100
    taken = 100 - len(refused)
    assert sorted(refused) == list(range(taken, 100))
    assert taken >= 20
    assert all(error.retriable and "max 100" in str(error) for error in refused.values())
    assert sink.down() is not None
    assert "the broker is away" in str(sink.down())
    place.topic.faults.mend()
    assert send(sink, numbered(60 + taken, 160)) == {}
    assert sink.down() is None
    assert place.values(160) == values(0, 160)


@pytest.mark.parametrize("max", [96, "9KiB"])
def test_the_oldest_messages_make_room_where_that_is_wanted(
    place: Place, max: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place.topic.faults.cut()
    sink = place.opened(max=max, when_full="drop_oldest")
    for start in range(0, 1000, 50):
        assert send(sink, numbered(start, start + 50), wait=0) == {}
    assert sink.messages_held <= 128
    assert sink.bytes_held <= 9 * 1024 or isinstance(max, int)
    assert sink.dropped == 1000 - sink.messages_held
    assert sum(map(len, sink.confirmed())) == 1000
    assert "the oldest ones, are dropped" in caplog.text
    assert sink.down() is not None
    left = sink.messages_held
    sink.close()
    place.topic = MemoryTopic("another")
    place.opened(max=max)
    assert place.values(left) == values(1000 - left, 1000)


def test_new_messages_are_dropped_where_that_is_wanted(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.topic.faults.cut()
    sink = place.opened(max=96, when_full="drop_newest")
    for start in range(0, 1000, 50):
        assert send(sink, numbered(start, start + 50), wait=0) == {}
    held = sink.messages_held
    assert 80 <= held <= 96
    assert sink.dropped == 1000 - held
    assert "the new ones, are dropped" in caplog.text
    place.topic.faults.mend()
    assert place.values(held) == values(0, 50) + values(50, held)


def test_refused_messages_take_room_and_make_room_last_of_all(place: Place) -> None:
    place.topic.faults.refuse = lambda message: "poison"
    sink = place.opened(max=80, when_full="drop_oldest")
    for start in range(0, 200, 50):
        assert send(sink, numbered(start, start + 50), wait=0) == {}
        until(lambda: not sink.messages_held)
    assert sink.refused + sink.messages_held <= 80 + 50
    assert sink.dropped + sink.refused == 200


def test_a_message_larger_than_all_of_it_is_refused_alone(place: Place) -> None:
    sink = place.opened(max="10KiB")
    refused = send(sink, [Message(b"a"), Message(bytes(10 * 1024)), Message(b"b")], wait=0.2, first=5)
    assert list(refused) == [1]
    assert not refused[1].retriable
    assert place.values(2) == [b"a", b"b"]
    assert [row for rows in sink.confirmed() for row in rows.tolist()] == [5, 7]


@pytest.mark.parametrize("when_full", ["wait", "drop_oldest", "drop_newest"])
def test_without_room_on_the_disk_the_service_waits_and_then_goes_on(place: Place, when_full: str) -> None:
    place.topic.faults.cut()
    sink = place.opened(when_full=when_full)
    assert send(sink, numbered(0, 100)) == {}
    connection = sink._store._file.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    large = [Message(bytes(50_000)) for _ in range(20)]
    refused = send(sink, large, wait=0.3)
    assert len(refused) == 20
    assert all(error.retriable and "no room on the disk" in str(error) for error in refused.values())
    assert "no room on the disk" in str(sink.down())
    assert sink.messages_held == 100
    connection.execute("PRAGMA max_page_count = 1000000")
    assert send(sink, large) == {}
    assert sink.down() is None
    place.topic.faults.mend()
    assert place.values(120)[:100] == values(0, 100)


def test_a_file_of_another_sink_with_messages_in_it_is_not_taken(place: Place) -> None:
    place.topic.faults.cut()
    first = place.opened(service="one")
    send(first, numbered(0, 3))
    first.close()
    with pytest.raises(ConnectorError, match=r"it holds 3 messages .* of sink memory of one .*path of its own"):
        place.opened(service="two")
    place.topic.faults.mend()
    place.opened(service="one").close()
    assert place.values(3) == values(0, 3)
    place.opened(service="two")


def test_two_processes_do_not_share_a_file(place: Place) -> None:
    first = place.opened()
    with pytest.raises(ConnectorError, match="being written by another sink"):
        place.opened()
    first.close()
    place.opened()


@pytest.mark.parametrize("content", [b"this is a text, and long enough for a header of SQLite" * 40, b"x"])
def test_a_file_that_is_no_outbox_is_left_alone(place: Place, content: bytes) -> None:
    place.path.write_bytes(content)
    with pytest.raises(ConnectorError, match=r"not an outbox.*move it away"):
        place.opened()
    assert place.path.read_bytes() == content
    with pytest.raises(ConnectorError, match="not an outbox"):
        contents(place.path)


def test_a_database_of_another_program_is_left_alone(place: Place) -> None:
    with sqlite3.connect(place.path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(ConnectorError, match="another program"):
        place.opened()


def test_a_file_of_a_later_release_is_left_alone(place: Place) -> None:
    place.opened().close()
    with sqlite3.connect(place.path) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(ConnectorError, match="version 2"):
        place.opened()


def test_a_damaged_file_ends_the_service_and_says_what_to_do(place: Place) -> None:
    place.topic.faults.cut()
    first = place.opened()
    for start in range(0, 500, 10):
        send(first, [Message(bytes(20_000)) for _ in range(start, start + 10)])
    first.close()
    content = bytearray(place.path.read_bytes())
    content[16384 : len(content) // 2] = random.Random(3).randbytes(len(content) // 2 - 16384)
    place.path.write_bytes(content)
    place.topic.faults.mend()
    told = failure(place)
    assert "damaged" in told
    assert "move it away" in told


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConnectorError, match="see to its folder"):
        Place(tmp_path / "file" / "x.outbox").opened()


def test_wherever_a_power_cut_tears_the_log_whole_blocks_are_left_in_order(tmp_path: Path) -> None:
    path = tmp_path / "torn"
    written = Store(tmp_path / "whole", Owner("a", "b"))
    written.open()
    ends = [0]
    log = tmp_path / "whole-wal"
    for start in range(0, 400, 20):
        columns = PackedColumns.of(block_of(numbered(start, start + 20)))
        written.add([(columns, int(columns.sizes().sum()))])
        ends.append(log.stat().st_size)
    whole, content = (tmp_path / "whole").read_bytes(), log.read_bytes()
    written.close()
    cuts = {0, 1, 31, 32, len(content), *ends, *(end - 1 for end in ends[1:]), *(end + 7 for end in ends)}
    cuts |= set(random.Random(1).sample(range(len(content)), 60))
    for cut in sorted(cuts):
        for suffix in ("", "-wal", "-shm"):
            path.with_name(f"torn{suffix}").unlink(missing_ok=True)
        path.write_bytes(whole)
        path.with_name("torn-wal").write_bytes(content[:cut])
        store = Store(path, Owner("a", "b"))
        store.open()
        blocks = sum(1 for end in ends[1:] if end <= cut)
        found: list[bytes | None] = []
        number = 0
        while (block := store.after(number)) is not None:
            found += list(block.values)
            number = int(block.rows[-1]) + 1
        assert found == values(0, 20 * blocks), cut
        store.close()


def test_a_log_that_is_cut_at_any_byte_of_its_last_block_has_all_blocks_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small pages, so that there are few bytes to try."""
    monkeypatch.setattr(store_module, "OUTBOX", replace(store_module.OUTBOX, page=512))
    written = Store(tmp_path / "whole", Owner("a", "b"))
    written.open()
    log = tmp_path / "whole-wal"
    edges: list[int] = []
    for start in range(0, 6, 2):
        columns = PackedColumns.of(block_of(numbered(start, start + 2)))
        written.add([(columns, int(columns.sizes().sum()))])
        edges.append(log.stat().st_size)
    whole, content = (tmp_path / "whole").read_bytes(), log.read_bytes()
    written.close()
    path = tmp_path / "torn"
    for cut in range(edges[1], edges[2] + 1):
        path.write_bytes(whole)
        path.with_name("torn-wal").write_bytes(content[:cut])
        with closing(sqlite3.connect(path)) as connection:
            (count,) = connection.execute("SELECT total(count) FROM blocks").fetchone()
        for suffix in ("-wal", "-shm"):
            path.with_name(f"torn{suffix}").unlink(missing_ok=True)
        assert count == (6 if cut == edges[2] else 4), cut


def test_an_empty_file_gives_its_room_back(place: Place) -> None:
    place.topic.max_bytes = 2**30
    place.topic.faults.cut()
    sink = place.opened()
    for _ in range(100):
        assert send(sink, [Message(bytes(1_000_000))]) == {}
    place.topic.faults.mend()
    until(lambda: not sink.messages_held)
    time.sleep(0.1)
    sink.close()
    assert place.path.stat().st_size < 1_000_000


def test_waiting_messages_are_counted_from_outside_while_the_outbox_is_in_use(place: Place) -> None:
    assert contents(place.path) == "nothing is in it yet"
    place.topic.faults.cut()
    sink = place.opened()
    send(sink, numbered(0, 3))
    assert contents(place.path).startswith(f"3 messages ({sink.bytes_held} bytes) wait to be sent, the oldest for 0 s")
    assert sink.oldest_age >= 0
