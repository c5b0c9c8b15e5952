"""Which requests to a control port get more than health without reasons."""

from __future__ import annotations

from collections.abc import Collection

from connectors.http.bearer import bears
from connectors.http.exchange import Answer, HttpRequest
from connectors.http.hosts import cannot_be_rebound, host_of


def admitted(request: HttpRequest, token: str | None, hosts: Collection[str]) -> bool:
    """Whether a request has the token; where there is none, whether it names a host that no stranger can use for it.

    `hosts` are names that are listed, so that they count too.
    """
    if token is None:
        host = host_of(request)
        return host is not None and (host in hosts or cannot_be_rebound(host))
    return bears(str(request.headers.get("Authorization", "")), token)


def refusal(token: str | None) -> Answer:
    """The answer to a request that is not admitted."""
    if token is None:
        wrong = b'{"error": "this host is not listed: use an IP address, or add the name to control.hosts"}'
        return Answer(403, wrong)
    missing = b'{"error": "the token of the control port is missing: Authorization: Bearer TOKEN"}'
    return Answer(401, missing, headers={"WWW-Authenticate": "Bearer"})
