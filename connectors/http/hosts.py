"""The name that a client calls this server by.

A web page of somebody else can let its own name point to this machine (DNS rebinding), and then reads what a server
without a token answers. Its browser still sends that name, as `Host`.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from connectors.http.exchange import HttpRequest

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?", re.IGNORECASE)


def host_of(request: HttpRequest) -> str | None:
    """The host that a request names, in lower case and without port and brackets; an empty text if it names none, as
    none of a browser does; `None` if it names several, or something else."""
    given = request.headers.get_all("Host")
    if given is None:
        return ""
    return host_in(str(given[0]).strip()) if len(given) == 1 else None


def host_in(value: str) -> str | None:
    """The host in the value of a header `Host`, in lower case and without port and brackets; `None` if it has none."""
    match = _HOST.fullmatch(value)
    return None if match is None else match[1].strip("[]").lower()


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, and no other can reach it by that."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def cannot_be_rebound(host: str) -> bool:
    """Whether no stranger can let this name point to this machine: none, an IP address, and a name without a dot, which
    is one of this machine or network, as those of Docker Compose."""
    return _address(host) is not None or "." not in host


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
