"""`Admission`: which requests a listener answers at all: by their token, or by the host that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connectors.http.bearer import bears
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.request import Answer
from connectors.http.hosts import cannot_be_rebound, host_in

_MOST: Final = 100


class Admission:
    """Refuses requests without the token. Where there is none, it refuses those that name a host which a stranger can
    let point to this machine, as the web page of somebody else may send them."""

    def __init__(self, config: HttpSourceConfig) -> None:
        token = "" if config.token is None else config.token.get_secret_value()
        self.token: str | None = token or None
        self._listed = {host.lower() for host in config.hosts}
        self._good: set[bytes] = set()

    def refusal(self, headers: Mapping[bytes, bytes]) -> Answer | None:
        """The answer to a request with these headers that is not to be answered otherwise; `None` if it is."""
        if self.token is not None:
            return None if self.has_token(headers.get(b"authorization", b"")) else UNKNOWN
        host = headers.get(b"host", b"")
        if host in self._good:
            return None
        name = host_in(host.decode("latin-1")) if host else ""
        if name is None or not (name in self._listed or cannot_be_rebound(name)):
            return STRANGE
        if len(self._good) < _MOST:
            self._good.add(host)
        return None

    def has_token(self, authorization: bytes) -> bool:
        """Whether this is the value of `Authorization` with the token."""
        return bears(authorization.decode("latin-1"), self.token or "")


UNKNOWN: Final = Answer.refusal(
    401, "the token is missing or wrong: Authorization: Bearer TOKEN", (b"www-authenticate", b"Bearer")
)
STRANGE: Final = Answer.refusal(403, "this host is not listed: call it by an IP address, or add its name to hosts")
