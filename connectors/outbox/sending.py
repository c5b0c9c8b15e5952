"""The thread of an outbox that sends stored messages through the real sink."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Iterable

import numpy as np

from connectors.databasefile import DiskFull
from connectors.outbox.store import Store
from connectors.records import Ints, Messages
from connectors.sink import Sink
from pipelines.errors import ConnectorError, without_traceback

SEND_TRY = 1.0
"""Seconds of one attempt to hand messages to a full sink."""
CONFIRM_TRY = 0.5
"""Seconds of one wait for confirmations."""
CONFIRM_INTERVAL = 1.0
"""Seconds between two barriers while messages flow, unless the sink returns confirmations without one."""
IDLE_WAIT = 0.5
"""Seconds of one wait for messages to send."""
SHORT_PAUSE = 0.1
"""Seconds before the second attempt, and between all while closing."""
LONGEST_PAUSE = 1.0
"""The longest time between two attempts, in seconds."""
LAST_WAIT = 5.0
"""Seconds that closing waits for stored messages to be sent, as long as some are confirmed each `LAST_PROGRESS`."""
LAST_PROGRESS = 1.0
"""Seconds without a confirmation after which closing gives up."""
MOST_PENDING = 1000
"""The most unconfirmed blocks."""
TELL_INTERVAL = 10.0
"""Seconds between two lines of the log about refused messages."""

_log = logging.getLogger(__name__)


class Sending:
    """Sends the blocks of a store in their order, and removes those that the sink has confirmed.

    Only its thread uses the sink. Messages that the sink loses are sent again; messages that it refuses for good are
    set aside in the store. `changed` guards the store, and is notified when messages are added or removed.
    """

    def __init__(
        self, name: str, sink: Sink, store: Store, changed: threading.Condition, *, stop_if_refused: bool
    ) -> None:
        self.failure: ConnectorError | None = None
        """Why sending has ended; `None` if it has not."""
        self._name = name
        self._sink = sink
        self._store = store
        self._changed = changed
        self._stop_if_refused = stop_if_refused
        self._opened = threading.Event()
        self._unopened: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"outbox {name}", daemon=True)
        self._closing: float | None = None
        self._progress = 0.0
        self._next = 0
        self._pending: dict[int, int] = {}
        self._done: list[int] = []
        self._again: deque[tuple[int, Ints]] = deque()
        self._losses = 0
        self._confirmed_at = 0.0
        self._waits = False
        self._refusals = 0
        self._reported_at = float("-inf")

    def start(self) -> None:
        """Open the sink in the thread that will use it, and begin. Raises the errors of `open`."""
        self._thread.start()
        self._opened.wait()
        if self._unopened is not None:
            self._thread.join()
            raise self._unopened

    def close(self) -> None:
        """Send stored messages as long as some are confirmed, `LAST_WAIT` seconds at most, and close the sink."""
        with self._changed:
            self._progress = self._closing = time.monotonic()
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._sink.open()
        except BaseException as error:  # noqa: BLE001 - raised by `start`
            self._unopened = error
            self._opened.set()
            return
        self._opened.set()
        try:
            while not self._ended():
                self._round()
        except ConnectorError as error:
            self.failure = without_traceback(error)
        except Exception as error:  # noqa: BLE001 - a plug-in's sink may raise anything; the service raises it as `failure`
            self.failure = ConnectorError(f"sink {self._name}: {type(error).__name__}: {error}")
        finally:
            with self._changed:
                self._changed.notify_all()
            self._sink.close()

    def _round(self) -> None:
        """Hand one block to the sink, and collect its confirmations."""
        block = self._next_block()
        if block is not None:
            first, messages = block
            self._pending[first] = len(messages)
            self._hand_over(first, messages)
        self._collect()
        if not self._pending:
            return
        overdue = time.monotonic() - self._confirmed_at > CONFIRM_INTERVAL
        tells = 0 < self._sink.behind() < CONFIRM_INTERVAL
        if block is None or len(self._pending) >= MOST_PENDING or (overdue and not tells):
            self._confirm()

    def _next_block(self) -> tuple[int, Messages] | None:
        """The lost messages, if there are any, else the next stored block, and the first number of that block.

        Waits if there is nothing to send and nothing unconfirmed.
        """
        while self._again:
            first, index = self._again.popleft()
            with self._changed:
                block = self._store.block(first)
            if block is not None:
                return first, block.take(index)
            self._pending.pop(first, None)
        with self._changed:
            messages = self._store.after(self._next)
            if messages is None and not self._pending:
                self._store.give_back_room()
                if self._closing is None:
                    self._changed.wait(IDLE_WAIT)
                    messages = self._store.after(self._next)
        if messages is None:
            return None
        self._next = int(messages.rows[-1]) + 1
        return int(messages.rows[0]), messages

    def _hand_over(self, first: int, messages: Messages) -> None:
        """Send the messages of the block that begins at `first`; waits while the sink is full."""
        tries = 0
        while True:
            refused = self._sink.send(messages, time.monotonic() + SEND_TRY)
            final = {int(messages.rows[at]): error for at, error in refused.items() if not error.retriable}
            self._set_aside(first, messages, final)
            again = np.array(sorted(at for at, error in refused.items() if error.retriable), np.int64)
            if not len(again):
                self._says_it_waits(None)
                return
            self._says_it_waits(refused[int(again[0])])
            messages = messages.take(again)
            self._collect()
            if self._ended():
                return
            self._pause(tries)
            tries += 1

    def _confirm(self) -> None:
        """Wait a while until all sent messages are confirmed or lost."""
        try:
            lost = self._sink.barrier(time.monotonic() + CONFIRM_TRY)
        except ConnectorError as error:
            if not error.retriable:
                raise
            self._says_it_waits(error)
            self._collect()
            return
        self._says_it_waits(None)
        self._confirmed_at = time.monotonic()
        # After the barrier all but the lost messages are confirmed; a sink may be unable to name them.
        self._sink.confirmed()
        pending, self._pending = self._pending, {}
        blocks = self._blocks_of(pending, lost)
        for first in pending:
            if first not in blocks:
                self._done.append(first)
        for first, numbers in blocks.items():
            self._pending[first] = len(numbers)
            self._send_again(first, numbers, {number: lost[number] for number in numbers})
        self._losses = self._losses + 1 if blocks else 0
        self._remove_done()
        if blocks:
            self._pause(self._losses - 1)

    def _send_again(self, first: int, numbers: list[int], errors: dict[int, ConnectorError]) -> None:
        again = np.array([number - first for number in numbers if errors[number].retriable], np.int64)
        with self._changed:
            block = self._store.block(first)
        if block is None:
            self._pending.pop(first)
            return
        self._set_aside(first, block, {number: error for number, error in errors.items() if not error.retriable})
        if len(again):
            _log.warning(
                "sink %s lost %d messages: %s; they are sent again", self._name, len(again), next(iter(errors.values()))
            )
            self._again.append((first, again))

    def _blocks_of(self, pending: dict[int, int], numbers: Iterable[int]) -> dict[int, list[int]]:
        """These message numbers by the first number of their block."""
        wanted = sorted(numbers)
        if not wanted:
            return {}
        firsts = sorted(pending)
        places: dict[int, list[int]] = {}
        for number, at in zip(wanted, np.searchsorted(firsts, wanted, side="right") - 1, strict=True):
            if at >= 0:
                places.setdefault(firsts[at], []).append(number)
        return places

    def _collect(self) -> None:
        """Collect confirmations that the sink returns without a barrier."""
        confirmed = self._sink.confirmed()
        if confirmed and self._pending:
            firsts = sorted(self._pending)
            places = np.searchsorted(firsts, np.concatenate(confirmed), side="right") - 1
            counts = np.bincount(places[places >= 0], minlength=len(firsts)).tolist()
            for first, count in zip(firsts, counts, strict=True):
                if count:
                    self._less(first, count)
        self._remove_done()

    def _less(self, first: int, count: int) -> None:
        """Note that `count` messages of this block are done."""
        left = self._pending[first] - count
        if left > 0:
            self._pending[first] = left
        else:
            del self._pending[first]
            self._done.append(first)

    def _remove_done(self) -> None:
        if not self._done:
            return
        with self._changed:
            try:
                self._store.remove(self._done)
            except DiskFull:
                # Removing needs room on the disk, too: it is tried again later.
                return
            self._done = []
            self._progress = time.monotonic()
            self._changed.notify_all()

    def _set_aside(self, first: int, messages: Messages, refused: dict[int, ConnectorError]) -> None:
        if not refused:
            return
        base = messages.rows.tolist()
        for number, error in refused.items():
            if self._stop_if_refused:
                raise ConnectorError(
                    f"sink {self._name} refuses message {number} of the outbox {self._store.path}: {error}; mend it "
                    "and start again, or set on_refused: keep to have such messages set aside"
                )
            message = messages.take(np.array([base.index(number)], np.int64))
            while True:
                with self._changed:
                    try:
                        self._store.refuse(number, message, str(error))
                        break
                    except DiskFull:
                        self._changed.wait(IDLE_WAIT)
                if self._ended():
                    # The message is still in its block, and will be refused again.
                    return
            self._refusals += 1
            self._less(first, 1)
        self._remove_done()
        now = time.monotonic()
        if now - self._reported_at > TELL_INTERVAL:
            self._reported_at = now
            _log.warning(
                "sink %s refused %d messages for good, they are set aside in the outbox %s: %s",
                self._name,
                self._refusals,
                self._store.path,
                next(iter(refused.values())),
            )
            self._refusals = 0

    def _says_it_waits(self, why: ConnectorError | None) -> None:
        if why is None and self._waits:
            _log.info("sink %s accepts messages again", self._name)
        elif why is not None and not self._waits:
            _log.warning(
                "sink %s accepts no messages, they wait in the outbox %s: %s", self._name, self._store.path, why
            )
        self._waits = why is not None

    def _pause(self, tries: int) -> None:
        longest = min(SHORT_PAUSE * 2.0 ** min(tries, 10), LONGEST_PAUSE)
        with self._changed:
            longest = longest if self._closing is None else SHORT_PAUSE
            self._changed.wait(random.uniform(0.5, 1.0) * longest)  # noqa: S311

    def _ended(self) -> bool:
        """Whether to stop: when closing, as soon as all is sent, or sending makes no progress."""
        if self._closing is None:
            return False
        now = time.monotonic()
        with self._changed:
            left = self._store.held.messages
        return not left or now - self._closing > LAST_WAIT or now - self._progress > LAST_PROGRESS
