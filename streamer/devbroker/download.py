"""Why a download from a Maven repository failed, in a few words, and what to do about it."""

from __future__ import annotations

import errno
import os
import urllib.request
from typing import Final
from urllib.parse import urlsplit

LONGEST: Final = 160
"""The most characters of a reason that is none of those known here."""

_NETWORK: Final = "call again with a network"


def explained(error: Exception) -> tuple[str, str]:
    """What prevented a download, and what the user can do about it.

    Args:
        error: The exception of `jgo`, which is one of `requests`, of the file system, or its own.

    Returns:
        The reason ("the proxy 127.0.0.1:9 cannot be reached") and the remedy ("call again with a network").
    """
    import requests

    if isinstance(error, requests.RequestException):
        url = None if error.request is None else error.request.url
        return _of_network(error, urlsplit(str(url or "")).hostname or "the repository")
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full", "free some space"
    if isinstance(error, OSError) and error.filename is not None:
        place = os.fsdecode(error.filename)
        return f"{place} cannot be written ({error.strerror})", "make that folder writable"
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return (text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."), _NETWORK


def _of_network(error: Exception, host: str) -> tuple[str, str]:
    import requests

    # The order matters: the first and the second are kinds of the last.
    if isinstance(error, requests.exceptions.ProxyError):
        return f"the proxy {_proxy()} does not let it through to {host}", "correct HTTPS_PROXY"
    if isinstance(error, requests.exceptions.SSLError):
        return f"the certificate of {host} is not trusted", "name your authority's certificate in REQUESTS_CA_BUNDLE"
    if isinstance(error, requests.exceptions.Timeout):
        return f"{host} does not answer", _NETWORK
    return f"{host} cannot be reached", _NETWORK


def _proxy() -> str:
    """Address of the proxy for https, without the login that its URL may contain."""
    parts = urlsplit(urllib.request.getproxies().get("https", ""))
    try:
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        port = ""
    return f"{parts.hostname}{port}" if parts.hostname else "of HTTPS_PROXY"
