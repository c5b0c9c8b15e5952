"""`Complaints`: log messages about clients that are sent away or refused."""

from __future__ import annotations

import logging
import time

_PERIOD = 60.0
"""Seconds in which each reason is logged once for each client."""
_MOST = 20
"""The most reasons that are logged in that time: thousands of devices may be wrong in the same way."""

_log = logging.getLogger(__name__)


class Complaints:
    """Warnings about clients, few enough to be read. Used by the server's thread alone."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logged: set[tuple[str, str]] = set()
        self._left_out = 0
        self._until = 0.0

    def tell(self, client_id: str, address: str, reason: str) -> None:
        """Log this once in a while. Clients are known by their ids, or by their host before they have sent an id."""
        now = time.monotonic()
        if now >= self._until:
            if self._left_out:
                _log.warning("source %s: %d more such warnings about clients before", self._name, self._left_out)
            self._until = now + _PERIOD
            self._left_out = 0
            self._logged.clear()
        once = (client_id or address.rpartition(":")[0], reason)
        if once in self._logged or len(self._logged) >= _MOST:
            self._left_out += 1
            return
        self._logged.add(once)
        client = f"client {client_id[:100]!r} at {address}" if client_id else f"a client at {address}"
        _log.warning("source %s: %s: %s", self._name, client, reason)
