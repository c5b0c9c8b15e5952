"""`InFlight`: the unconfirmed messages of a sink and their packet ids."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.mqtt.protocol.bulk import PacketIds
from connectors.mqtt.publishing.block import Block
from connectors.records import Ints

IDS = 65_533
"""The largest packet id of messages; the two above it are for SUBSCRIBE and for the birth message."""
CAPACITY = 1 << 17
"""The most messages that are held: a power of two."""
_MASK: Final = CAPACITY - 1


# States of messages. Plain numbers, so that arrays are compared with them at once.
NEW: Final = 0
"""To be published; it has no packet id yet."""
AGAIN: Final = 1
"""To be published again, with its packet id."""
SENT: Final = 2
"""Published on this connection."""
RELEASED: Final = 3
"""Received by the broker (QoS 2): its PUBREC was answered by PUBREL."""
DONE: Final = 4


class Portion(NamedTuple):
    """Messages of one block to be written now."""

    block: Block
    numbers: Ints
    """The numbers of the messages, rising."""
    packet_ids: PacketIds | None
    again: npt.NDArray[np.bool_]
    """Whether each was published before, with the same packet id."""


class InFlight:
    """Messages in the order in which they were sent, numbered from 0. Used by one thread.

    All work is on arrays: states, ids and rows are ring buffers, indexed by number, and a table by packet id finds the
    message of an acknowledgement without a search.
    """

    def __init__(self) -> None:
        self.first = 0
        """Number of the oldest unconfirmed message."""
        self.end = 0
        """Number of the next message to be added."""
        self.on_wire = 0
        """Messages that were published on this connection and are unacknowledged."""
        self._next = 0
        self._next_id = 1
        self._state = np.full(CAPACITY, DONE, np.uint8)
        self._ids = np.zeros(CAPACITY, np.uint16)
        self._rows = np.zeros(CAPACITY, np.int64)
        self._number_of_id = np.full(1 << 16, -1, np.int64)
        self._blocks: deque[Block] = deque()
        self._writing: deque[Block] = deque()
        self._again = np.zeros(0, np.int64)

    @property
    def room(self) -> int:
        """The number of messages that can be added."""
        return CAPACITY - (self.end - self.first)

    @property
    def waiting(self) -> bool:
        """Whether a message waits to be published."""
        return self._next < self.end or len(self._again) > 0

    @property
    def sent(self) -> Ints:
        """The messages that were published on this connection and that the broker has not received, by its answers."""
        numbers = np.arange(self.first, self._next)
        sent: Ints = numbers[self._state[numbers & _MASK] == SENT]
        return sent

    def block_of(self, number: int) -> Block:
        """The block of an unconfirmed message."""
        # Mostly the oldest ones are looked up.
        return next(block for block in self._blocks if number < block.first + len(block))

    def add(self, block: Block) -> None:
        """Add these messages at the end. There must be `room`."""
        block.first = self.end
        slots = np.arange(self.end, self.end + len(block)) & _MASK
        self._state[slots] = NEW
        self._rows[slots] = -1 if block.rows is None else block.rows
        self.end += len(block)
        self._blocks.append(block)
        self._writing.append(block)

    def take(self, most: int, *, numbered: bool) -> Portion | None:
        """Up to `most` messages of one block to be published next, in order; they count as published.

        `numbered`: with packet ids. `None` if there is nothing, or `most` is 0.
        """
        if most <= 0:
            return None
        if len(self._again):
            block = self.block_of(int(self._again[0]))
            stop = int(np.searchsorted(self._again, block.first + len(block)))
            numbers = self._again[: min(stop, most)]
            self._again = self._again[len(numbers) :]
        elif self._next < self.end:
            block = self._writing[0]
            stop = block.first + len(block)
            numbers = np.arange(self._next, min(stop, self._next + most))
            self._next = int(numbers[-1]) + 1
            if self._next == stop:
                self._writing.popleft()
        else:
            return None
        slots = numbers & _MASK
        again = self._state[slots] == AGAIN
        ids = None
        if numbered:
            if not again.all():
                self._ids[slots[~again]] = self._new_ids(numbers[~again])
            ids = self._ids[slots]
        self._state[slots] = SENT
        self.on_wire += len(numbers)
        return Portion(block, numbers, ids, again)

    def of_ids(self, packet_ids: PacketIds, state: int) -> Ints:
        """The messages that have these packet ids and are in this state; unknown ids are ignored."""
        numbers = self._number_of_id[packet_ids]
        right = (numbers >= 0) & (self._state[numbers & _MASK] == state)
        return numbers if right.all() else numbers[right]

    def release(self, numbers: Ints) -> PacketIds:
        """The broker has received these messages (PUBREC): returns their packet ids, for PUBREL."""
        slots = numbers & _MASK
        self._state[slots] = RELEASED
        ids: PacketIds = self._ids[slots]
        return ids

    def done(self, numbers: Ints) -> Ints:
        """These messages are confirmed, or lost for good; returns the rows that they answer."""
        slots = numbers & _MASK
        self._forget_ids(numbers)
        self._state[slots] = DONE
        rows: Ints = self._rows[slots]
        if len(rows) and rows.min() < 0:
            # Some messages answer several rows, or none.
            parts = [
                rows[at : at + 1] if rows[at] >= 0 else self._parents(number)
                for at, number in enumerate(numbers.tolist())
            ]
            rows = np.concatenate(parts)
        self._advance()
        answered: Ints = rows
        return answered

    def return_(self, numbers: Ints) -> None:
        """The broker did not accept these messages: they are published again, as new ones, before all later ones."""
        self._forget_ids(numbers)
        self._state[numbers & _MASK] = NEW
        self._again = np.union1d(self._again, numbers)

    def resume(self, *, session_present: bool) -> PacketIds:
        """A connection begins. Unconfirmed messages that were published will be published again: with the same packet
        ids if the broker has kept the session, else as new ones. Returns the ids of messages whose PUBREL is to be sent
        again.
        """
        numbers = np.arange(self.first, self._next)
        states = self._state[numbers & _MASK]
        if not session_present:
            self.return_(numbers[states != DONE])
            self.on_wire = 0
            return np.zeros(0, np.uint16)
        sent = numbers[states == SENT]
        self._state[sent & _MASK] = AGAIN
        self._again = np.union1d(self._again, sent)
        released = numbers[states == RELEASED]
        self.on_wire = len(released)
        ids: PacketIds = self._ids[released & _MASK]
        return ids

    def _new_ids(self, numbers: Ints) -> PacketIds:
        """Packet ids that no other message has; after the largest one they begin again at 1."""
        wanted = np.arange(self._next_id, self._next_id + len(numbers)) - 1
        ids = wanted % IDS + 1
        if (self._number_of_id[ids] >= 0).any():
            free = np.flatnonzero(self._number_of_id[1 : IDS + 1] < 0) + 1
            ids = np.roll(free, -int(np.searchsorted(free, self._next_id)))[: len(numbers)]
        self._next_id = int(ids[-1]) % IDS + 1
        self._number_of_id[ids] = numbers
        return ids.astype(np.uint16)

    def _forget_ids(self, numbers: Ints) -> None:
        slots = numbers & _MASK
        states = self._state[slots]
        self.on_wire -= int(np.count_nonzero((states == SENT) | (states == RELEASED)))
        # Messages without a packet id have id 0, which belongs to no message.
        self._number_of_id[self._ids[slots]] = -1
        self._ids[slots] = 0

    def _advance(self) -> None:
        """Drop the oldest messages as far as they are done."""
        while self.first < self._next:
            numbers = np.arange(self.first, min(self.first + 1024, self._next))
            left = self._state[numbers & _MASK] != DONE
            if not left.any():
                self.first += len(numbers)
                continue
            self.first += int(left.argmax())
            break
        while self._blocks and self._blocks[0].first + len(self._blocks[0]) <= self.first:
            self._blocks.popleft()

    def _parents(self, number: int) -> Ints:
        block = self.block_of(number)
        return block.parents(number - block.first)
