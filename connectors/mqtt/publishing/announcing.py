"""What a sink publishes besides its messages: `Birth`; and what it asks by pings: `ConfirmedByPing`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from connectors.mqtt.protocol.bulk import PacketIds
from connectors.mqtt.protocol.packets import V5, Publish
from connectors.mqtt.protocol.properties import NONE
from connectors.mqtt.publishing.inflight import IDS
from connectors.mqtt.session.session import Session
from connectors.records import Ints

BIRTH_ID = IDS + 1
"""The packet id of birth messages."""


class Birth:
    """Publishes birth and last messages. The loss of one is not reported: the next connection publishes it again."""

    def __init__(self, session: Session) -> None:
        self.unanswered = False
        """Whether the broker has to acknowledge one."""
        self._session = session

    def publish(self, message: Publish | None) -> None:
        """Publish this message, unless it is `None` or there is no connection."""
        granted = self._session.granted
        if message is None or granted is None or not self._session.connected:
            return
        qos = min(message.qos, granted.max_qos)
        self.unanswered = qos > 0
        properties = message.properties if granted.version == V5 else NONE
        retain = message.retain and granted.retain
        self._session.send(
            replace(message, qos=qos, packet_id=BIRTH_ID if qos else 0, properties=properties, retain=retain)
        )

    def expects(self, ids: PacketIds) -> bool:
        """Whether an acknowledgement of these packet ids is that of a birth message."""
        return self.unanswered and BIRTH_ID in ids

    def done(self, ids: PacketIds) -> bool:
        """The last acknowledgement of these packet ids came. Returns whether that of a birth message is among them."""
        if not self.expects(ids):
            return False
        self.unanswered = False
        return True


class ConfirmedByPing:
    """Confirms messages of QoS 0: those that were written before a ping have arrived once the ping is answered."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._written: list[Ints] = []
        self._asked: tuple[int, Ints] | None = None

    def begin(self) -> None:
        """Reset for a new connection: pings of the previous one are not answered."""
        self._asked = None
        self._written.clear()

    def wrote(self, numbers: Ints) -> None:
        """Note messages that were written."""
        self._written.append(numbers)

    def confirmed(self) -> Ints | None:
        """The messages confirmed since the last call; sends a ping for the next ones."""
        numbers = None
        if self._asked is not None and self._session.answered(self._asked[0]):
            numbers, self._asked = self._asked[1], None
        if self._asked is None and self._written:
            self._asked = self._session.ping(), np.concatenate(self._written)
            self._written.clear()
        return numbers
