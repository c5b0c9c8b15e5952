"""Which names a client may call a server without a token by."""

from __future__ import annotations

from email.message import Message

import pytest

from connectors.http.exchange import HttpRequest
from connectors.http.hosts import cannot_be_rebound, host_of, is_loopback


def request(*hosts: str) -> HttpRequest:
    headers = Message()
    for host in hosts:
        headers["Host"] = host
    return HttpRequest("/", headers)


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:9464", "localhost"),
        ("10.0.0.7:80", "10.0.0.7"),
        ("[::1]:80", "::1"),
        ("digits.ml.svc:9464", "digits.ml.svc"),
        ("localhost:evil.com", None),
        ("localhost:80@evil.com", None),
        ("evil.com@localhost", None),
        ("localhost:", None),
        ("local host", None),
        ("", None),
    ],
)
def test_a_host_is_a_name_and_a_port_or_nothing(given: str, host: str | None) -> None:
    assert host_of(request(given)) == host


def test_several_hosts_are_no_host_and_none_is_no_name() -> None:
    assert host_of(request("localhost", "evil.com")) is None
    assert host_of(request("localhost", "localhost")) is None
    assert host_of(request()) == ""
    assert not is_loopback("")


def test_this_machine_is_named_by_its_own_addresses_only() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.0.0.2", "::1"))
    assert not any(is_loopback(host) for host in ("digits", "localhost.evil.com", "0.0.0.0", "10.0.0.7"))


def test_a_stranger_can_take_names_with_a_dot_only() -> None:
    assert all(cannot_be_rebound(host) for host in ("localhost", "digits", "10.0.0.7", "::1"))
    assert not any(cannot_be_rebound(host) for host in ("evil.com", "127.0.0.1.evil.com", "digits.ml.svc"))
