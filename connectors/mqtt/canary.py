"""`Canary`: a message to oneself, that tells a quiet bus from a session that gets nothing any more."""

from __future__ import annotations

import secrets
import time

from connectors.mqtt.protocol.packets import Publish


class Canary:
    """Says when to publish to a topic that the session is subscribed to, and whether that came back in time.

    A session gets nothing if nothing at all came for `every` seconds after it was published, while the connection was
    read: any other message shows as much as the canary does, and behind a long backlog it takes its time. It is
    published at QoS 0, as what is under way at QoS 1 may fill the broker's window.
    """

    def __init__(self, topic: str, every: float) -> None:
        self.topic = topic
        self.every = every
        self.sent = 0
        self.missed = 0
        """How often one did not come back."""
        self.seconds = 0.0
        """How long the last one took."""
        self.down: str | None = None
        """Why the session is believed to get nothing; `None`: it gets something, or that is not known yet."""
        self._payload = b""
        self._sent_at = 0.0
        self._silent_since = 0.0
        self._next_at = float("inf")

    def begun(self) -> None:
        """The broker has granted the subscriptions."""
        self._payload, self._next_at = b"", time.monotonic()

    def ended(self) -> None:
        """The connection is gone, and the messages under way with it."""
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
        """A message of its topic came, perhaps that of another process."""
        if self._payload and payload == self._payload:
            now = time.monotonic()
            self.seconds = now - self._sent_at
            self._payload, self._next_at = b"", now + self.every

    def heard(self) -> None:
        """Messages came, whichever."""
        self.down = None
        self._silent_since = time.monotonic()

    def not_reading(self) -> None:
        """What may have come is not seen."""
        self._silent_since = time.monotonic()

    def is_missed(self) -> bool:
        """Whether one has just been found not to come back; then `down` says so, and the next one is due later."""
        now = time.monotonic()
        if not self._payload or now - self._silent_since < self.every:
            return False
        self._payload, self._next_at = b"", now + self.every
        self.missed += 1
        self.down = (
            f'connected, but nothing comes: what was published to the canary topic "{self.topic}" has not come back '
            f"for {self.every:g} s; the broker has lost the subscriptions, or the client may not publish there"
        )
        return True
