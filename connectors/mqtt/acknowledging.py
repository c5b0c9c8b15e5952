"""`Acknowledging`: tells the broker which messages are done, and waits until it knows."""

from __future__ import annotations

import time

from connectors.mqtt.incoming import MOST_HELD, Incoming
from connectors.mqtt.protocol.bulk import encode_acks
from connectors.mqtt.protocol.packets import PacketType
from connectors.mqtt.session.session import Session
from connectors.mqtt.window import Window
from pipelines.errors import ConnectorError

_WAIT = 10.0
"""Seconds within which the broker has to confirm that it has the acknowledgements."""


class Acknowledging:
    """Sends the acknowledgements of one session: PUBACK, and PUBREC for messages of QoS 2."""

    def __init__(self, name: str, session: Session, window: Window, incoming: Incoming) -> None:
        """`name`: the name of the source, for messages."""
        self._name = name
        self._session = session
        self._window = window
        self._incoming = incoming
        self._waiting = False
        self._known = 0

    def send(self, *, keep: bool = False) -> None:
        """Acknowledge the messages that are done. `keep`: `wait` will be called."""
        done = self._window.take(keep=keep or self._waiting)
        count = len(done.qos_1) + len(done.qos_2)
        if not count:
            return
        if len(done.qos_1):
            self._session.write(encode_acks(PacketType.PUBACK, done.qos_1))
        if len(done.qos_2):
            self._session.write(encode_acks(PacketType.PUBREC, done.qos_2))
        self._incoming.counts.acknowledged += count
        self._incoming.starvation.acknowledged(self._session.rtt)

    def wait(self) -> None:
        """Return when the broker has the acknowledgements of all messages that are done.

        Its answer follows messages: those for which there is no room are dropped, and delivered again after a
        reconnect. Raises `ConnectorError` without an answer in 10 s.
        """
        if self._sent == self._known and not self._window.is_unsure:
            return
        self._waiting, self._incoming.left_out, self._incoming.limit = True, False, MOST_HELD
        try:
            self._wait_for_answer()
        finally:
            self._waiting, self._incoming.limit = False, None
        self._window.confirmed()
        self._known = self._sent
        if self._incoming.left_out:
            self._session.restart("more messages came than there was room for")

    @property
    def _sent(self) -> int:
        return self._incoming.counts.acknowledged

    def _wait_for_answer(self) -> None:
        session = self._session
        deadline = time.monotonic() + _WAIT
        asked: tuple[int, int, int] | None = None
        while True:
            if session.connected and asked is not None and asked[:2] == (session.connection, self._sent):
                if session.answered(asked[2]):
                    return
            elif session.connected:
                # Sent again after a reconnect, and after acknowledgements of messages that came again.
                asked = session.connection, self._sent, session.ping()
            if time.monotonic() >= deadline:
                raise ConnectorError(
                    f"source {self._name}: the broker does not answer, so the last acknowledgements may be lost; their "
                    "messages will be delivered again",
                    retriable=True,
                )
            session.turn(min(0.1, deadline - time.monotonic()))
