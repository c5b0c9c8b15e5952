"""`OutboxSink`: store and forward in front of any sink."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

import numpy as np

from connectors.databasefile import DiskFull
from connectors.measures import Measure
from connectors.outbox.config import OutboxConfig
from connectors.outbox.packing import PackedColumns, pieces
from connectors.outbox.sending import Sending
from connectors.outbox.store import Owner, Store
from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from connectors.source import Source
from pipelines.errors import ConnectorError
from pipelines.hotpath import HotPathReport

PIECE_BYTES = 2**20
"""The most bytes of one block of the file, unless a single message has more."""
PIECE_MESSAGES = 512
"""The most messages of one block of the file."""
SHARE = 8
"""The largest part of the outbox that one block may take, so that it fills and empties gradually."""
LOOK = 0.2
"""Seconds of one wait for room."""
TELL_INTERVAL = 10.0
"""Seconds between two lines of the log about dropped messages."""

_log = logging.getLogger(__name__)


class OutboxSink(Sink):
    """Messages are confirmed when they are in the file; a thread sends them, in their order, through the real sink.

    Messages that the real sink has confirmed are removed from the file. If the process ends, even by a crash, the next
    one first sends the messages that are left. Some messages may be sent twice then, none is lost except those that
    `when_full` drops.

    When the real sink refuses a message (too large, a wrong topic), its record has long been acknowledged: such a
    message is set aside in the file with the reason, or ends the service (`on_refused`). A real sink that is broken for
    good ends the service; its messages stay in the file.

    The service does not wait for an absent peer: the sink is `down` only while the outbox is full.
    """

    def __init__(self, sink: Sink, config: OutboxConfig, *, service: str = "service", destination: str = "") -> None:
        self.name = sink.name
        self.dropped = 0
        """Messages that were dropped since the start, by `when_full`. A few of them may have been sent already."""
        self._sink = sink
        self._config = config
        self._changed = threading.Condition()
        self._store = Store(config.path, Owner(f"sink {sink.name} of {service}", destination), sync=config.sync)
        self._sending: Sending | None = None
        self._confirmed: list[Ints] = []
        self._full: str | None = None
        self._reported_at = float("-inf")
        most_bytes, most = config.max_bytes, config.max_messages
        self._piece_bytes = PIECE_BYTES if most_bytes is None else max(1, min(PIECE_BYTES, most_bytes // SHARE))
        self._piece_messages = PIECE_MESSAGES if most is None else max(1, min(PIECE_MESSAGES, most // SHARE))

    def attach(self, sources: Sequence[Source]) -> None:
        """As `Sink.attach`, for the real sink."""
        self._sink.attach(sources)

    @property
    def hot_path(self) -> HotPathReport:
        """The hot path of the real sink."""
        return self._sink.hot_path

    @property
    def messages_held(self) -> int:
        """Messages in the file that wait to be sent or confirmed."""
        return self._store.held.messages

    @property
    def bytes_held(self) -> int:
        """Bytes of waiting and of refused messages."""
        return self._store.held.bytes + self._store.held.refused_bytes

    @property
    def refused(self) -> int:
        """Messages in the file that the real sink has refused."""
        return self._store.held.refused

    @property
    def oldest_age(self) -> float:
        """Seconds since the oldest waiting message was stored; 0 if the outbox is empty."""
        stored = self._store.oldest
        return 0.0 if stored is None else max(0.0, time.time() - stored)

    def metrics(self) -> Sequence[Measure]:
        """See `Sink.metrics`: those of the outbox, and those of the real sink."""
        return (
            Measure("outbox_messages", "Messages in the outbox that wait to be sent.", self.messages_held, "gauge"),
            Measure("outbox_bytes", "Bytes in the outbox, of refused messages too.", self.bytes_held, "gauge"),
            Measure("outbox_oldest_seconds", "Age of the oldest message that waits.", self.oldest_age, "gauge"),
            Measure("outbox_refused", "Messages in the outbox that the sink has refused.", self.refused, "gauge"),
            Measure("outbox_dropped", "Messages that a full outbox has dropped.", self.dropped),
            *self._sink.metrics(),
        )

    def open(self) -> None:
        """Open the file and the real sink, which begins with the messages that the last process left.

        Raises the errors of the real sink's `open`, and `ConnectorError` for a file that cannot be used.
        """
        self._store.open()
        if self._store.held.messages:
            held = self._store.held.messages
            _log.info("outbox %s: %d messages of the last run are sent first", self._config.path, held)
        sending = Sending(
            self.name, self._sink, self._store, self._changed, stop_if_refused=self._config.on_refused == "stop"
        )
        try:
            sending.start()
        except BaseException:
            self._store.close()
            raise
        self._sending = sending

    def send(self, messages: Messages, deadline: float) -> Refused:
        """As `Sink.send`: stores the messages. Only a message larger than the whole outbox is refused for good.

        Raises `ConnectorError` when the real sink is broken for good.
        """
        self._raise_failure()
        if not len(messages):
            return {}
        columns = PackedColumns.of(messages)
        sizes = columns.sizes()
        refused = self._too_large(sizes)
        kept = np.array([at for at in range(len(sizes)) if at not in refused], np.int64) if refused else None
        if kept is not None:
            columns, sizes = columns.take(kept), sizes[kept]
        stored, full = self._stored(columns, sizes, deadline)
        index = np.arange(len(messages), dtype=np.int64) if kept is None else kept
        self._confirm(messages, index[:stored])
        if stored < len(index):
            refused |= dict.fromkeys(index[stored:].tolist(), full)
        return refused

    def barrier(self, deadline: float) -> Lost:
        """As `Sink.barrier`: messages in the file are confirmed already. Raises as `send` does."""
        self._raise_failure()
        return {}

    def confirmed(self) -> list[Ints]:
        """As `Sink.confirmed`."""
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def behind(self) -> float:
        """Always 0: messages are confirmed once they are stored."""
        return 0.0

    def down(self) -> str | None:
        """Why the real sink cannot reach its peer, once the outbox is full; `None` before."""
        if self._full is None:
            return None
        why = self._sink.down()
        return self._full if why is None else f"{self._full}; {why}"

    def close(self) -> None:
        """Send the messages that are left, for five seconds at most, and close the real sink and the file."""
        if self._sending is None:
            return
        self._sending.close()
        self._sending = None
        if self._store.held.messages:
            _log.warning(
                "outbox %s: %d messages are left, the next start sends them first",
                self._config.path,
                self._store.held.messages,
            )
        self._store.close()

    def _too_large(self, sizes: Ints) -> dict[int, ConnectorError]:
        most = self._config.max_bytes
        if most is None or int(sizes.max()) <= most:
            return {}
        return {
            at: ConnectorError(
                f"outbox {self._config.path}: a message of {int(sizes[at])} bytes is larger than all of it; raise max "
                f"({self._config.max})"
            )
            for at in np.flatnonzero(sizes > most).tolist()
        }

    def _stored(self, columns: PackedColumns, sizes: Ints, deadline: float) -> tuple[int, ConnectorError]:
        """Store these messages. Returns how many are stored, or dropped by `when_full`, and the error of the rest."""
        dropped = self.dropped
        waiting = [
            (columns.take(np.arange(start, stop)), int(sizes[start:stop].sum()))
            for start, stop in pieces(sizes, self._piece_bytes, self._piece_messages)
        ]
        stored = 0
        with self._changed:
            while True:
                error = self._store_some(waiting)
                if error is None:
                    self._full = None if self.dropped == dropped else str(self._no_room())
                    return len(sizes), self._no_room()
                self._full = str(error)
                stored = len(sizes) - sum(len(piece.values) for piece, _ in waiting)
                left = deadline - time.monotonic()
                if left <= 0:
                    return stored, error
                self._changed.wait(min(left, LOOK))
                self._raise_failure()

    def _store_some(self, waiting: list[tuple[PackedColumns, int]]) -> ConnectorError | None:
        """Store as many messages as there is room for, and remove them from `waiting`. Returns why there is no room for
        the rest."""
        fitting = self._fitting(waiting)
        try:
            if self._config.when_full == "drop_oldest" and len(fitting) < len(waiting):
                self._store_instead_of_oldest(waiting)
                return None
            self._store.add(fitting)
            del waiting[: len(fitting)]
            if fitting:
                self._changed.notify_all()
        except DiskFull as error:
            return error
        if waiting and self._config.when_full == "drop_newest":
            self._drop(sum(len(piece.values) for piece, _ in waiting), "new")
            waiting.clear()
        return self._no_room() if waiting else None

    def _fitting(self, waiting: list[tuple[PackedColumns, int]]) -> list[tuple[PackedColumns, int]]:
        """The first messages, as many as there is room for."""
        messages = size = 0
        for at, (piece, more) in enumerate(waiting):
            messages, size = messages + len(piece.values), size + more
            if max(self._missing(messages, size)) > 0:
                return waiting[:at]
        return waiting

    def _missing(self, messages: int, size: int) -> tuple[int, int]:
        """How many messages and bytes have to go before so many more fit; 0 or less if they do."""
        held = self._store.held
        most_messages, most_bytes = self._config.max_messages, self._config.max_bytes
        return (
            0 if most_messages is None else held.messages + held.refused + messages - most_messages,
            0 if most_bytes is None else held.bytes + held.refused_bytes + size - most_bytes,
        )

    def _store_instead_of_oldest(self, waiting: list[tuple[PackedColumns, int]]) -> None:
        while waiting:
            piece, size = waiting[0]
            if self._store.held.refused and max(self._missing(len(piece.values), size)) > 0:
                self._drop(self._store.drop_refused(), "refused")
            blocks, messages = self._store.oldest_holding(*self._missing(len(piece.values), size))
            self._store.add([(piece, size)], without_oldest=blocks)
            self._changed.notify_all()
            del waiting[0]
            if messages:
                self._drop(messages, "oldest")

    def _drop(self, count: int, which: str) -> None:
        self.dropped += count
        now = time.monotonic()
        if now - self._reported_at > TELL_INTERVAL:
            self._reported_at = now
            _log.warning(
                "outbox %s is full: %d messages, the %s ones, are dropped; %d since the start",
                self._config.path,
                count,
                which,
                self.dropped,
            )

    def _no_room(self) -> ConnectorError:
        held = self._store.held
        refused = f", {held.refused} of them refused" if held.refused else ""
        return ConnectorError(
            f"outbox {self._config.path} is full (max {self._config.max}): {held.messages + held.refused} messages, "
            f"{self.bytes_held} bytes{refused}",
            retriable=True,
        )

    def _confirm(self, messages: Messages, index: Ints) -> None:
        if messages.splits is None:
            self._confirmed.append(messages.rows if len(index) == len(messages) else messages.rows[index])
        elif len(index):
            self._confirmed.append(np.concatenate([messages.parents(at) for at in index.tolist()]))

    def _raise_failure(self) -> None:
        if self._sending is None:
            raise ConnectorError(f"{self.name} is not open")
        if self._sending.failure is not None:
            raise self._sending.failure
