"""Opens models on web servers.

fsspec's client for HTTP is not used: it shows no redirect before it follows it, and unpacks what a server compresses.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

import httpx2

from connectors.models.cache import FetchError, RemoteModel
from connectors.models.content import Content, PassingError
from pipelines.plugins.modelfiles import shortened

SCHEMES: Final = ("http", "https")

_SILENCE: Final = 30.0
"""Seconds without a byte after which a server is given up."""
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which a retry may succeed."""
_REDIRECTS: Final = 10
"""The most redirects."""

# httpx2 logs every URL with its query, which may be secret.
logging.getLogger("httpx2").setLevel(logging.WARNING)


@asynccontextmanager
async def opened(model: RemoteModel) -> AsyncIterator[Content]:
    """The content behind a URL. User and password of the URL are sent as basic authentication, to its host only.

    Redirects are followed to `http:` and `https:` only, and not from `https:` to `http:`. An answer that is a web page
    or compressed is no model.
    """
    said = sender = ""

    async def look(answer: httpx2.Response) -> None:
        nonlocal said, sender
        # The standard phrase of the status: the server's text may hold anything.
        said = f"{answer.status_code} {httpx2.codes.get_reason_phrase(answer.status_code)}".strip()
        if answer.has_redirect_location:
            target = urljoin(str(answer.request.url), answer.headers["Location"])
            _check_redirect(model, str(answer.request.url), target)
            sender = f"from {shortened(target)}, to which its server sends: "
            # Credentials are for the first server only.
            answer.request.headers.pop("Authorization", None)

    client = httpx2.AsyncClient(
        headers={"User-Agent": "streamer", "Accept-Encoding": "identity"},
        timeout=_SILENCE,
        follow_redirects=True,
        max_redirects=_REDIRECTS,
        event_hooks={"response": [look]},
    )
    user, _, password = model.login.partition(":")
    auth = (unquote(user), unquote(password)) if model.login else None
    try:
        async with client, client.stream("GET", model.url, auth=auth) as answer:
            if not answer.is_success:
                kind = PassingError if answer.status_code in _PASSING else FetchError
                raise kind(f'{model}: the server says {said}; check "modelUri"')
            _check_kind(model, answer.headers)
            length = answer.headers.get("Content-Length", "")
            size = int(length) if length.isdecimal() else None
            yield Content(size, _blocks(answer, size))
    except httpx2.TooManyRedirects:
        raise FetchError(f'{model}: the server says {said} again and again; check "modelUri"') from None
    except httpx2.InvalidURL as error:
        raise FetchError(f'{model}: this is not a URL ({error}); check "modelUri"') from None
    except httpx2.TransportError as error:
        reason = str(error) or type(error).__name__
        raise PassingError(f"{model} cannot be fetched: {sender}{reason}; check the address and the network") from error


async def _blocks(answer: httpx2.Response, size: int | None) -> AsyncIterator[bytes]:
    try:
        async for block in answer.aiter_raw():
            yield block
    except httpx2.RemoteProtocolError:
        # Of a known size the bytes that are missing are counted.
        if size is None:
            raise


def _check_redirect(model: RemoteModel, before: str, target: str) -> None:
    schemes = before.partition(":")[0], target.partition(":")[0].lower()
    if schemes[1] not in SCHEMES or schemes == ("https", "http") or "@" in urlsplit(target).netloc:
        raise FetchError(
            f"{model}: the server sends to {shortened(target)}; redirects are followed to http and https, not from "
            'https to http, and without a password; check "modelUri"'
        )


def _check_kind(model: RemoteModel, headers: httpx2.Headers) -> None:
    packed = headers.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise FetchError(f"{model}: the server compresses it ({packed}), which is not read here; serve it as it is")
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() == "text/html" and model.digest is None:
        raise FetchError(
            f"{model}: the server sends a web page instead, perhaps a login page; check the address and its "
            "credentials (a model that is served as text/html needs #sha256=...)"
        )
