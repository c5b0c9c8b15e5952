"""`Retrying`: the backoff between connections."""

from __future__ import annotations

import logging
import time

from connectors.backoff import Backoff
from connectors.mqtt.session.settings import Settings

_HOLDS_AFTER = 5.0
"""Seconds that a connection has to last before waits after the next loss are short again."""

_log = logging.getLogger(__name__)


class Retrying:
    """Decides how long a client waits before the next attempt, and logs that connections end at once."""

    def __init__(self, settings: Settings) -> None:
        self.at = time.monotonic()
        """When the next attempt is due, on `time.monotonic`."""
        self.unproven = False
        """Whether attempts have failed since a connection has lasted: then `holds` is to be called."""
        self._settings = settings
        self._backoff = Backoff()
        self._up_at = 0.0
        self._short_lived = 0

    def connected(self) -> None:
        """Reset the backoff: the broker has accepted the connection."""
        self._up_at = time.monotonic()

    def holds(self, now: float) -> None:
        """There is a connection: once it has lasted for some seconds, waits after the next loss are short again."""
        if now - self._up_at >= _HOLDS_AFTER:
            self._backoff.reset()
            self._short_lived = 0
            self.unproven = False

    def failed(self, reason: str, *, at_once: bool, was_up: bool) -> None:
        """The connection is gone, or could not be made. `at_once`: the next attempt is due now."""
        wait = 0.0
        if not at_once:
            self.unproven = True
            wait = self._backoff.wait()
            if was_up:
                self._warn_of_short_life(reason)
        self.at = time.monotonic() + wait

    def _warn_of_short_life(self, reason: str) -> None:
        # MQTT 3.1.1 has no packet that would tell of a session that was taken over.
        if time.monotonic() - self._up_at >= _HOLDS_AFTER:
            self._short_lived = 0
            return
        self._short_lived += 1
        if self._short_lived == 3:
            _log.warning(
                '%s: three connections in a row ended at once (%s); perhaps another client has the client id "%s", '
                "too, or the broker refuses what it is sent and does not say so: a topic that is not allowed, a "
                "message that is too large",
                self._settings.name,
                reason,
                self._settings.client_id,
            )
