"""State in a topic: what is loaded is what was saved, and nothing else is taken for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from connectors.records import Lane
from connectors.sink import TransactionalSink
from connectors.source import TransactionToken
from connectors.statetopic import StateRecord, StateTopic
from pipelines.errors import ConnectorError, DefinitionError, StreamerError
from pipelines.runners.state.item import Change, Item
from pipelines.steps.keyed.window import Window
from streamer.delivery.failures import ServiceStopped
from streamer.state.agreement import check_saved
from streamer.state.store import Loaded, SavedStep, Scope
from streamer.state.topiccontents import TopicContents
from streamer.state.topicstore import TopicStore

LANE = Lane("kafka", "pumps-1", 3)
SCOPE = Scope("kafka", "pumps-1")
STEP = SavedStep("WINDOW", {"size": 4})


class KeptTopic(StateTopic):
    """A topic in memory."""

    name, id, longest = "pumps.state", "T1", 1000
    partitions = ("pumps-0", "pumps-1")

    def __init__(self) -> None:
        self.records: list[StateRecord] = []
        self.committed: dict[Lane, int] = {}
        self.written = 0
        self.refuses = False
        self.user: str | None = None

    def open(self) -> None: ...

    def look(self) -> None: ...

    def checked(self) -> str:
        return ""

    def close(self) -> None: ...

    def number(self, partition: str) -> int:
        return int(partition.rpartition("-")[2])

    def read(self, partition: int, tell: Callable[[], None]) -> dict[bytes, bytes]:
        tell()
        last = {record.key: record.value for record in self.records if record.partition == partition}
        return {key: value for key, value in last.items() if value is not None}

    def share(self, first: TransactionalSink) -> None: ...

    def sending(self, records: Sequence[StateRecord]) -> Callable[[float], None]:
        return lambda deadline: self.records.extend(records)

    def forget(self) -> None: ...

    def write(
        self,
        records: Sequence[StateRecord],
        positions: Mapping[Lane, int],
        token: TransactionToken,
        wait: Callable[[], None],
    ) -> None:
        wait()
        if self.refuses:
            raise ConnectorError("the partition is another's", retriable=True)
        self.records += records
        self.committed |= positions
        self.written += 1

    def each(self, partition: int) -> Iterator[tuple[bytes, bytes | None]]:
        yield from [(record.key, record.value) for record in self.records if record.partition == partition]

    def check_unused(self) -> None:
        if self.user is not None:
            raise ConnectorError(f"it is in use: {self.user}")

    def clear(self, partition: int, keys: Sequence[bytes]) -> None:
        self.check_unused()
        self.records += [StateRecord(partition, key, None) for key in keys]


class Sources:
    """The sources of a service."""

    def __init__(self, *lanes: Lane) -> None:
        self.lanes, self.served = lanes, 0
        self.left = 1.0

    def rewind(self, lanes: Iterable[Lane], marks: Mapping[Lane, int]) -> None: ...

    def token(self) -> TransactionToken | None:
        return TransactionToken(frozenset(self.lanes), None, {LANE: 9})

    def serve(self) -> None:
        self.served += 1

    def patience(self) -> float:
        return self.left


@pytest.fixture
def topic() -> KeptTopic:
    return KeptTopic()


def store_on(topic: KeptTopic, *lanes: Lane, service: str = "pumps", check: Any = lambda saved: None) -> TopicStore:
    store = TopicStore(topic, service)
    store.open()
    store.attach(Sources(*(lanes or (LANE,))), check)
    store.define({"WINDOW": STEP})
    return store


def saved(store: TopicStore, position: int, *changes: tuple[str, int, bytes | None]) -> int:
    assert store.ready() is not None
    return store.save([(SCOPE, "WINDOW", Change(LANE, *change)) for change in changes], {SCOPE: position})


def test_another_process_loads_what_was_saved_last(topic: KeptTopic) -> None:
    store = store_on(topic)
    assert store.load(SCOPE) == Loaded(None, {})
    saved(store, 4, ('"a"', 0, b"\x01x"), ('"a"', 1, b"\x01y"), ('"b"', 0, b"\x01z"))
    saved(store, 7, ('"a"', 1, None), ('"b"', 0, b"\x01w"))
    loaded = store_on(topic).load(SCOPE)
    assert loaded == Loaded(7, {"WINDOW": [Item('"a"', 0, b"\x01x"), Item('"b"', 0, b"\x01w")]})
    assert topic.committed == {LANE: 7}
    assert {record.partition for record in topic.records} == {1}


def test_the_remedy_for_state_that_does_not_fit_is_one_for_topics(topic: KeptTopic) -> None:
    store = store_on(topic)
    steps = {"0:WINDOW": Window.model_validate({"by": "a", "size": 8, "values": "x", "outputName": "y"})}
    with pytest.raises(DefinitionError, match=r"let it begin anew: streamer state forget SERVICE.yaml --step WINDOW"):
        check_saved(store, {"WINDOW": STEP}, steps)


def test_a_transaction_without_a_new_position_still_names_the_one_before(topic: KeptTopic) -> None:
    store = store_on(topic)
    store.load(SCOPE)
    saved(store, 4, ('"a"', 0, b"\x01x"))
    topic.committed.clear()
    assert store.ready() == {LANE: 9}
    store.save([(SCOPE, "WINDOW", Change(LANE, '"a"', 0, None))], {})
    assert topic.committed == {LANE: 4}
    assert store_on(topic).load(SCOPE) == Loaded(4, {})


def test_nothing_to_save_is_no_transaction(topic: KeptTopic) -> None:
    store = store_on(topic)
    assert store.ready() is not None
    store.save([], {}, {SCOPE: 3})
    assert topic.written == 0


def test_a_partition_that_was_just_taken_away_or_given_saves_nothing(topic: KeptTopic) -> None:
    store = store_on(topic, Lane("kafka", "pumps-0", 3))
    store.load(SCOPE)
    with pytest.raises(ConnectorError, match="just been given") as caught:
        saved(store, 4)
    assert caught.value.retriable
    assert topic.written == 0


def test_what_brokers_refuse_is_saved_by_the_next_call(topic: KeptTopic) -> None:
    store = store_on(topic)
    store.load(SCOPE)
    topic.refuses = True
    with pytest.raises(ConnectorError):
        saved(store, 4, ('"a"', 0, b"\x01x"))
    topic.refuses = False
    assert saved(store, 4, ('"a"', 0, b"\x01x")) == 1
    assert store_on(topic).load(SCOPE).position == 4


def test_a_piece_that_is_too_large_is_named_with_the_remedy_and_nothing_is_written(topic: KeptTopic) -> None:
    store = store_on(topic)
    store.load(SCOPE)
    text = (
        'what step WINDOW remembers for the key "b" has 1,027 bytes in one piece, and topic pumps.state takes at most'
    )
    with pytest.raises(ConnectorError, match=text) as caught:
        saved(store, 4, ('"a"', 0, b"x"), ('"b"', 0, b"x" * 1000))
    assert "raise its max.message.bytes" in str(caught.value)
    assert not caught.value.retriable
    assert topic.records == []
    saved(store, 4, ('"b"', 0, b"x" * 973))
    assert store_on(topic).load(SCOPE).items["WINDOW"] == [Item('"b"', 0, b"x" * 973)]


def test_reading_what_was_saved_ends_when_the_service_has_no_time_left(topic: KeptTopic) -> None:
    sources = Sources(LANE)
    store = TopicStore(topic, "pumps")
    store.attach(sources, lambda saved: None)
    assert store.load(SCOPE) == Loaded(None, {})
    sources.left = 0.0
    with pytest.raises(ServiceStopped, match="no time left"):
        store.load(SCOPE)


def test_the_steps_are_described_in_each_partition_once(topic: KeptTopic) -> None:
    store = store_on(topic)
    store.load(SCOPE)
    saved(store, 4)
    saved(store, 5)
    seen: list[Mapping[str, SavedStep]] = []
    again = store_on(topic, check=seen.append)
    again.load(SCOPE)
    saved(again, 6)
    assert seen == [{"WINDOW": STEP}]
    assert sum(b"step" in record.key for record in topic.records) == 1


def test_the_state_of_another_service_is_refused(topic: KeptTopic) -> None:
    store = store_on(topic)
    store.load(SCOPE)
    saved(store, 4)
    with pytest.raises(DefinitionError, match='has the state of service "pumps", and this is "fans"'):
        store_on(topic, service="fans").load(SCOPE)


def test_the_state_of_another_topic_is_refused(topic: KeptTopic) -> None:
    store = store_on(topic)
    store.load(SCOPE)
    saved(store, 4)
    with pytest.raises(DefinitionError, match=r"has the state of pumps-1 where that of fans-1 belongs.* Name another"):
        store_on(topic).load(Scope("kafka", "fans-1"))


def shown(topic: KeptTopic) -> list[tuple[str, int | None, list[tuple[str, str, int]]]]:
    """Partition, position, and step, key and bytes of each key."""
    return [
        (part.partition, part.position, [(each.step, each.key, each.bytes) for each in part.keys])
        for part in TopicContents(topic, "pumps", "kafka").partitions()
    ]


def test_steps_and_keys_of_each_partition_are_shown_as_they_were_saved_last(topic: KeptTopic) -> None:
    store = store_on(topic)
    store.load(SCOPE)
    saved(store, 4, ('"a"', 0, b"\x01x"), ('"a"', 1, b"\x01yy"), ('"b"', 0, b"\x01z"))
    saved(store, 7, ('"b"', 0, None), ('"a"', 0, b"\x01xxx"))
    assert shown(topic) == [("pumps-0", None, []), ("pumps-1", 7, [("WINDOW", '"a"', 7)])]
    topic.user = "one on this host"
    assert len(shown(topic)) == 2
    with pytest.raises(ConnectorError, match='has the state of service "pumps", and this is "fans"'):
        list(TopicContents(topic, "fans", "kafka").partitions())


def test_a_key_that_is_forgotten_begins_anew_and_positions_stay(topic: KeptTopic) -> None:
    store = store_on(topic)
    store.load(SCOPE)
    saved(store, 4, ('"a"', 0, b"x"), ('"a"', 1, b"y"), ('"b"', 0, b"z"))
    contents = TopicContents(topic, "pumps", "kafka")
    before = len(topic.records)
    for step, key, why in [
        (None, "c", 'no key "c"'),
        ("WINDOWS", None, 'no step "WINDOWS"; did you mean "WINDOW"'),
        ("WINDOWS", "a", "no step"),
    ]:
        with pytest.raises(ConnectorError, match=why):
            contents.forget(step, key)
    topic.user = "one on this host"
    for key in ("a", "c"):
        with pytest.raises(ConnectorError, match="in use: one on this host"):
            contents.forget(None, key)
    assert len(topic.records) == before
    topic.user = None
    assert contents.forget(None, "a") == 1
    assert store_on(topic).load(SCOPE) == Loaded(4, {"WINDOW": [Item('"b"', 0, b"z")]})


def test_a_step_that_is_forgotten_may_have_other_fields(topic: KeptTopic) -> None:
    store = store_on(topic)
    store.define({"WINDOW": STEP, "DEDUP": SavedStep("DEDUP", {})})
    store.load(SCOPE)
    saved(store, 4, ('"a"', 0, b"x"))
    contents = TopicContents(topic, "pumps", "kafka")
    seen: list[Mapping[str, SavedStep]] = []
    assert contents.forget("WINDOW", None) == 1
    assert store_on(topic, check=seen.append).load(SCOPE) == Loaded(4, {})
    # A step without state, too.
    assert contents.forget("DEDUP", None) == 0
    store_on(topic, check=seen.append).load(SCOPE)
    assert seen == [{"DEDUP": SavedStep("DEDUP", {})}, {}]
    assert contents.forget(None, None) == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"plain", b"x"),
        (b"7", b"x"),
        (b'["item","WINDOW"]', b"x"),
        (b'["position"]', b"{}"),
        (b'["position"]', b'{"service": "pumps", "partition": "pumps-1", "position": "far"}'),
        (b'["position"]', b'{"service": "pumps", "position": 4}'),
        (b'["step","WINDOW"]', b"[]"),
        (b"\xff", b""),
    ],
)
def test_records_of_other_programs_are_not_taken_for_state(topic: KeptTopic, key: bytes, value: bytes) -> None:
    topic.records.append(StateRecord(1, key, value))
    with pytest.raises(StreamerError, match="was not written by this program"):
        store_on(topic).load(SCOPE)
    with pytest.raises(StreamerError, match="was not written by this program"):
        shown(topic)
