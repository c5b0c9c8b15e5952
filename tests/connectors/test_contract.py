"""The connector contract catches connectors that break it: each of these has one fault, and one test that sees it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import pytest
from memorybuses import MemorySinkBus, MemorySourceBus

from connectors.contract import RoundTripContract, SinkContract, SourceContract, needs
from connectors.memory import MemorySink, MemorySource, MemoryTopic
from connectors.message import block_of, messages_of_block, messages_of_records
from connectors.records import Ints, Lane, Messages, Records
from connectors.sink import Lost, Refused
from connectors.source import Event, SourceEnded
from pipelines.errors import ConnectorError


class AcknowledgesWhenItCloses(MemorySource):
    def close(self) -> None:
        for lane in self._lanes.values():
            self.acknowledge({lane: self._next[int(lane.partition)]})
        super().close()


class AcknowledgesWhatItDelivers(MemorySource):
    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        records = super().poll(max_records, max_bytes, timeout)
        self.acknowledge({lane: int(records.positions[stop - 1]) + 1 for lane, _, stop in records.spans})
        return records


class ForgetsAcknowledgements(MemorySource):
    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        return


class AcknowledgesOneTooFar(MemorySource):
    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        super().acknowledge({lane: position + 1 for lane, position in positions.items()})


class AcknowledgesEndedLanes(MemorySource):
    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        for lane, position in positions.items():
            self.group.acknowledge(int(lane.partition), position)


class RewindsInTheSameLane(MemorySource):
    def rewind(self, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            self._next[int(lane.partition)] = self.acknowledged[int(lane.partition)]


class RewindsEverything(MemorySource):
    def rewind(self, lanes: Iterable[Lane]) -> None:
        super().rewind(list(self._lanes.values()))


class DoesNotRewind(MemorySource):
    def rewind(self, lanes: Iterable[Lane]) -> None:
        return


class RenumbersWhatItRewinds(MemorySource):
    def rewind(self, lanes: Iterable[Lane]) -> None:
        super().rewind(lanes)
        self._rewound = True

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        records = super().poll(max_records, max_bytes, timeout)
        if getattr(self, "_rewound", False):
            records.positions = records.positions + 10
        return records


class IsAlwaysStarved(MemorySource):
    def starved(self) -> bool:
        return True


class DoesNotSettle(MemorySource):
    def open(self, settle: Any = None, *, commits: bool = True) -> None:
        super().open(None)


class WaitsForTheWholeTimeout(MemorySource):
    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        time.sleep(timeout)
        return super().poll(max_records, max_bytes, 0)


class Spins(MemorySource):
    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        return super().poll(max_records, max_bytes, 0)


class GivesMoreThanAsked(MemorySource):
    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        return super().poll(max_records + 5, 10 * max_bytes, timeout)


class DoesNotWake(MemorySource):
    def wake(self) -> None:
        return


class SaysNothingOfItsLanes(MemorySource):
    def events(self) -> list[Event]:
        return [event for event in super().events() if isinstance(event, SourceEnded)]


class HasAlwaysCaughtUp(MemorySource):
    def caught_up(self, emptied_at: float) -> float:
        return time.monotonic()


class NeverCatchesUp(MemorySource):
    def caught_up(self, emptied_at: float) -> float:
        return -math.inf


class RepeatsItsEvents(MemorySource):
    def events(self) -> list[Event]:
        return list(self._events)


class EndsTooSoon(MemorySource):
    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        records = super().poll(max_records, max_bytes, timeout)
        if len(records):
            self._events.append(SourceEnded(self.name))
        return records


class Changed(MemorySource):
    """Delivers each record with one thing changed."""

    change: ClassVar[Mapping[str, Any]] = {}

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        records = super().poll(max_records, max_bytes, timeout)
        changed = block_of([message._replace(**self.change) for message in messages_of_records(records)])
        records._cache.clear()
        if "headers" in self.change:
            records.headers = lambda: changed.headers
        if "timestamp" in self.change:
            records.timestamps = None
        records.keys = changed.keys
        return records


class DropsKeys(Changed):
    change: ClassVar[Mapping[str, Any]] = {"key": None}


class DropsHeaders(Changed):
    change: ClassVar[Mapping[str, Any]] = {"headers": ()}


class DropsTimestamps(Changed):
    change: ClassVar[Mapping[str, Any]] = {"timestamp": None}


class MakesTombstonesEmpty(MemorySource):
    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        records = super().poll(max_records, max_bytes, timeout)
        records.values = [value or b"" for value in records.values]
        return records


class SkipsEmptyPayloads(MemorySource):
    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        records = super().poll(max_records, max_bytes, timeout)
        records.values = [value or None for value in records.values]
        return records


SOURCES = [
    (AcknowledgesWhenItCloses, "test_closing_acknowledges_nothing"),
    (AcknowledgesWhatItDelivers, "test_unacknowledged_records_come_again_in_order_after_a_restart"),
    (AcknowledgesWhatItDelivers, "test_every_record_arrives_when_some_are_delivered_again"),
    (AcknowledgesWhatItDelivers, "test_every_record_arrives_through_restarts"),
    (ForgetsAcknowledgements, "test_acknowledged_records_never_come_again_after_a_restart"),
    (ForgetsAcknowledgements, "test_an_acknowledgement_without_waiting_arrives_with_a_later_one"),
    (ForgetsAcknowledgements, "test_lanes_are_settled_before_they_are_taken_away"),
    (AcknowledgesOneTooFar, "test_a_rewind_delivers_again_from_the_last_acknowledged_position"),
    (AcknowledgesEndedLanes, "test_acknowledging_an_ended_lane_is_ignored"),
    (AcknowledgesEndedLanes, "test_a_lane_that_was_taken_away_acknowledges_nothing"),
    (RewindsInTheSameLane, "test_a_rewind_delivers_again_from_the_last_acknowledged_position"),
    (RewindsEverything, "test_a_rewind_leaves_other_lanes_alone"),
    (DoesNotRewind, "test_every_record_arrives_when_some_are_delivered_again"),
    (RenumbersWhatItRewinds, "test_a_record_has_the_same_position_after_a_rewind"),
    (IsAlwaysStarved, "test_a_starved_source_goes_on_when_something_is_acknowledged"),
    (DoesNotSettle, "test_lanes_are_settled_before_they_are_taken_away"),
    (WaitsForTheWholeTimeout, "test_a_poll_for_one_record_returns_as_soon_as_it_is_there"),
    (Spins, "test_a_poll_of_a_silent_bus_waits_for_its_timeout_and_gives_nothing"),
    (GivesMoreThanAsked, "test_a_poll_gives_no_more_records_than_asked"),
    (GivesMoreThanAsked, "test_a_poll_gives_about_as_many_bytes_as_asked"),
    (DoesNotWake, "test_wake_ends_a_waiting_poll"),
    (SaysNothingOfItsLanes, "test_records_from_before_it_opened_arrive"),
    (HasAlwaysCaughtUp, "test_it_has_caught_up_once_all_that_had_come_was_polled"),
    (NeverCatchesUp, "test_it_has_caught_up_once_all_that_had_come_was_polled"),
    (RepeatsItsEvents, "test_events_are_told_once"),
    (EndsTooSoon, "test_it_says_once_that_it_has_ended_after_the_last_record"),
    (DropsKeys, "test_keys_arrive"),
    (DropsHeaders, "test_headers_arrive"),
    (DropsHeaders, "test_headers_may_be_any_bytes_or_nothing"),
    (DropsTimestamps, "test_timestamps_arrive"),
    (MakesTombstonesEmpty, "test_a_tombstone_is_none"),
    (SkipsEmptyPayloads, "test_an_empty_payload_is_not_none"),
]


IMPATIENT = 1.2
"""Seconds after which a broken connector has failed; a sound one gets more."""


@pytest.mark.parametrize(("kind", "test"), SOURCES, ids=[f"{kind.__name__}-{test}" for kind, test in SOURCES])
@pytest.mark.slow
def test_a_source_with_this_fault_is_caught(kind: type[MemorySource], test: str) -> None:
    getattr(SourceContract(), test)(MemorySourceBus())
    bus = MemorySourceBus(kind=kind)
    bus.patience = IMPATIENT
    with pytest.raises(AssertionError):
        getattr(SourceContract(), test)(bus)


class LosesWithoutAWord(MemorySink):
    def send(self, messages: Messages, deadline: float) -> Refused:
        return super().send(block_of(messages_of_block(messages)[:-1]), deadline)


class Doubles(MemorySink):
    def send(self, messages: Messages, deadline: float) -> Refused:
        super().send(messages, deadline)
        return super().send(messages, deadline)


class TurnsBlocksRound(MemorySink):
    def send(self, messages: Messages, deadline: float) -> Refused:
        return super().send(block_of(messages_of_block(messages)[::-1]), deadline)


class ConfirmsBeforeItArrives(MemorySink):
    def send(self, messages: Messages, deadline: float) -> Refused:
        self._early = [messages.rows]
        return super().send(messages, deadline)

    def confirmed(self) -> list[Ints]:
        early, self._early = getattr(self, "_early", []), []
        return early


class NeverConfirms(MemorySink):
    def confirmed(self) -> list[Ints]:
        return []


class KeepsLossesToItself(MemorySink):
    def barrier(self, deadline: float) -> Lost:
        super().barrier(deadline)
        return {}


class PassesEveryBarrier(MemorySink):
    def barrier(self, deadline: float) -> Lost:
        try:
            return super().barrier(deadline)
        except ConnectorError:
            return {}


class RefusesForGood(MemorySink):
    def send(self, messages: Messages, deadline: float) -> Refused:
        refused = super().send(messages, deadline)
        return {index: ConnectorError(str(error)) for index, error in refused.items()}


class BlamesTheMessages(MemorySink):
    def send(self, messages: Messages, deadline: float) -> Refused:
        if self.topic.faults.away:
            return dict.fromkeys(range(len(messages)), ConnectorError("there is no such topic"))
        return super().send(messages, deadline)


class TakesNoText(MemorySink):
    def send(self, messages: Messages, deadline: float) -> Refused:
        if any((value or b"").startswith(b"{") for value in messages.values):
            return dict.fromkeys(range(len(messages)), ConnectorError("this is no picture"))
        return super().send(messages, deadline)


class RefusesTheWholeBlock(MemorySink):
    def send(self, messages: Messages, deadline: float) -> Refused:
        refused = super().send(messages, deadline)
        return {index: error for error in refused.values() for index in range(len(messages))}


class HoldsWithoutBound(MemorySink):
    def __init__(self, topic: MemoryTopic, max_in_flight: int) -> None:
        super().__init__(topic, max_in_flight=2**40)


class IsNeverDown(MemorySink):
    def down(self) -> str | None:
        return None


class IgnoresTopics(MemorySink):
    def send(self, messages: Messages, deadline: float) -> Refused:
        messages.topics = None
        return super().send(messages, deadline)


SINKS = [
    (LosesWithoutAWord, "test_a_batch_arrives_complete"),
    (Doubles, "test_a_batch_arrives_complete"),
    (TurnsBlocksRound, "test_messages_arrive_in_order"),
    (ConfirmsBeforeItArrives, "test_confirmed_messages_have_arrived"),
    (NeverConfirms, "test_every_row_is_confirmed_once"),
    (NeverConfirms, "test_a_message_confirms_all_rows_that_it_answers"),
    (KeepsLossesToItself, "test_the_next_barrier_names_the_rows_of_lost_messages_once"),
    (PassesEveryBarrier, "test_a_barrier_that_cannot_be_passed_raises_at_its_deadline"),
    (RefusesForGood, "test_a_full_sink_holds_back_and_then_refuses_to_be_tried_again"),
    (HoldsWithoutBound, "test_a_full_sink_holds_back_and_then_refuses_to_be_tried_again"),
    (RefusesTheWholeBlock, "test_a_message_that_cannot_be_taken_is_refused_alone"),
    (IsNeverDown, "test_a_sink_says_why_its_peer_is_away_until_it_is_back"),
    (BlamesTheMessages, "test_a_place_that_is_gone_is_no_fault_of_the_messages"),
    (TakesNoText, "test_a_shortened_dead_letter_is_always_accepted"),
    (IgnoresTopics, "test_a_message_goes_to_the_topic_that_it_names"),
]


class BrokenSinkBus(MemorySinkBus):
    def __init__(self, kind: type[MemorySink] = MemorySink) -> None:
        super().__init__(kind)
        if kind is ConfirmsBeforeItArrives:
            # Only messages that arrive late can be confirmed too early.
            self.cut()

    def vanish(self) -> None:
        self.cut()

    def restore(self) -> None:
        self.mend()


@pytest.mark.parametrize(("kind", "test"), SINKS, ids=[f"{kind.__name__}-{test}" for kind, test in SINKS])
@pytest.mark.slow
def test_a_sink_with_this_fault_is_caught(kind: type[MemorySink], test: str) -> None:
    getattr(SinkContract(), test)(BrokenSinkBus())
    bus = BrokenSinkBus(kind)
    bus.patience = IMPATIENT if kind is IsNeverDown else bus.patience
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(SinkContract(), test)(bus)


def test_a_connector_leaves_out_what_its_bus_cannot_do_with_a_reason() -> None:
    class Keyless(RoundTripContract):
        cannot: ClassVar[Mapping[str, str]] = {"keys": "the bus has none"}

    assert Keyless.test_metadata_survives_the_trip is None
    assert RoundTripContract.test_metadata_survives_the_trip is not None
    assert Keyless.test_timestamps_survive_the_trip is not None


@pytest.mark.parametrize("cannot", [{"flying": "it has no wings"}, {"keys": ""}])
def test_an_unknown_capability_or_one_without_a_reason_is_an_error(cannot: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="is unknown or has no reason"):
        type("Wrong", (SourceContract,), {"cannot": cannot})
    with pytest.raises(TypeError, match="unknown capability flying"):
        needs("flying")
