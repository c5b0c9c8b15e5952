"""`Canary`: a message that the source publishes to itself, to tell a quiet bus from a session that has lost its
subscriptions."""

from __future__ import annotations

import secrets
import time

from connectors.mqtt.protocol.packets import Publish


class Canary:
    """Decides when to publish to a topic that the session is subscribed to, and whether the message came back in time.

    It is missed if no message at all came for `every` seconds after it was published, while the connection was read:
    any other message proves as much, and after a long backlog the canary may be late. It is published at QoS 0, as
    unacknowledged messages of QoS 1 may fill the broker's window.
    """

    def __init__(self, topic: str, every: float) -> None:
        self.topic = topic
        self.every = every
        self.sent = 0
        self.missed = 0
        """How many did not come back."""
        self.seconds = 0.0
        """Seconds that the last one took."""
        self.down: str | None = None
        """Why the session is believed to get no messages; `None`: it gets some, or that is not known yet."""
        self._payload = b""
        self._sent_at = 0.0
        self._silent_since = 0.0
        self._next_at = float("inf")

    def begun(self) -> None:
        """Start the cycle: the broker has granted the subscriptions."""
        self._payload, self._next_at = b"", time.monotonic()

    def ended(self) -> None:
        """The connection is gone, and with it the canary in flight."""
        self._payload, self._next_at = b"", float("inf")

    def next(self) -> Publish | None:
        """The message to publish now; none if it is not time yet."""
        now = time.monotonic()
        if self._payload or now < self._next_at:
            return None
        self._payload = secrets.token_hex(16).encode()
        self._sent_at = self._silent_since = now
        self.sent += 1
        return Publish(self.topic, self._payload)

    def came(self, payload: bytes | None) -> None:
        """A message on its topic came, perhaps from another process."""
        if self._payload and payload == self._payload:
            now = time.monotonic()
            self.seconds = now - self._sent_at
            self._payload, self._next_at = b"", now + self.every

    def heard(self) -> None:
        """Note the arrival of messages, of any topic."""
        self.down = None
        self._silent_since = time.monotonic()

    def not_reading(self) -> None:
        """The connection is not read at present, so silence does not count."""
        self._silent_since = time.monotonic()

    def is_missed(self) -> bool:
        """Check for a missing canary. If it is missing, `down` is set, and the next check is due later."""
        now = time.monotonic()
        if not self._payload or now - self._silent_since < self.every:
            return False
        self._payload, self._next_at = b"", now + self.every
        self.missed += 1
        self.down = (
            f'connected, but no messages arrive: the message published to the canary topic "{self.topic}" has not come '
            f"back for {self.every:g} s; the broker has lost the subscriptions, or the client may not publish there"
        )
        return True
