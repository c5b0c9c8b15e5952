"""A client without TLS on a port with it, and the other way round: an error that says so, and no waiting for ever."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.kafka.client.mismatch import Mismatch, address_of
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.source import SourceDown
from pipelines.errors import ConnectorError
from streamer.devbroker import Broker

pytestmark = pytest.mark.slow

Serve = Callable[[Callable[[socket.socket], object]], str]
TLS_CLIENT = {"security.protocol": "SSL"}
OPENSSL = shutil.which("openssl")


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Opens ports whose connections are all given to a function; closed at the end."""
    listening: list[socket.socket] = []

    def begin(talk: Callable[[socket.socket], object]) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def accept() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(client,), daemon=True).start()

        def one(client: socket.socket) -> None:
            with client:
                try:
                    talk(client)
                except OSError:
                    pass

        threading.Thread(target=accept, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield begin
    for server in listening:
        # It wakes `accept`, which closing alone does not.
        server.shutdown(socket.SHUT_RDWR)
        server.close()


@pytest.fixture(params=["a certificate", "no cipher in common"])
def tls_port(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> str:
    """A port that speaks TLS and nothing else; or one that speaks it, but not with us."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if request.param == "a certificate":
        if OPENSSL is None:
            pytest.skip("openssl makes the certificate, and is not here")
        key, certificate = str(tmp_path / "key"), str(tmp_path / "certificate")
        made = ["-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost"]
        subprocess.run([OPENSSL, "req", "-x509", "-newkey", "rsa:2048", *made], check=True, capture_output=True)
        context.load_cert_chain(certificate, key)

    def talk(client: socket.socket) -> None:
        client.settimeout(30)
        with context.wrap_socket(client, server_side=True) as secured:
            secured.recv(1)

    return serve(talk)


def opened(kind: str, bootstrap: str, client: dict[str, Any]) -> Any:
    """A source or sink, which was opened."""
    if kind == "source":
        source = KafkaSourceConfig(bootstrap=bootstrap, topics=("t",), group="g", client=client).build()
        source.open()
        return source
    sink = KafkaSinkConfig(bootstrap=bootstrap, topic="t", client=client).build()
    sink.open()
    return sink


@pytest.mark.parametrize("kind", ["source", "sink"])
@pytest.mark.parametrize(
    ("client", "advice"),
    [
        ({}, r"set security.protocol to SSL \(SASL_SSL if there is a login\)"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "me",
                "sasl.password": "hunter22",
            },
            "set security.protocol to SASL_SSL",
        ),
    ],
)
def test_a_port_with_tls_is_told_to_a_client_without(
    kind: str, client: dict[str, Any], advice: str, tls_port: str
) -> None:
    with pytest.raises(ConnectorError, match=f"{kind} kafka: {tls_port} is a port with TLS, .*{advice}") as caught:
        opened(kind, tls_port, client)
    assert not caught.value.retriable
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("kind", ["source", "sink"])
def test_a_port_without_tls_is_told_to_a_client_with_it(kind: str, kafka: Broker) -> None:
    with pytest.raises(ConnectorError, match=r"is a port without TLS, .*set security.protocol to PLAINTEXT") as caught:
        opened(kind, kafka.bootstrap, TLS_CLIENT)
    assert not caught.value.retriable


@pytest.mark.parametrize("command", [("tap", "t"), ("replay", "t"), ("check", "FILE", "--connect")])
def test_the_command_line_says_it_too(command: tuple[str, ...], tls_port: str, tmp_path: Path, cli: Any) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(
        f"source: {{type: kafka, bootstrap: '{tls_port}', topics: t}}\npipeline: []\nsink: {{type: memory, topic: o}}\n"
    )
    arguments = [str(file) if one == "FILE" else one for one in command]
    options = [] if "FILE" in command else ["-b", tls_port]
    ended = cli(*arguments, *options)
    assert ended.code == 1
    assert "is a port with TLS" in " ".join((ended.out + ended.err).split())


def hangs_up(client: socket.socket) -> None:
    """As a balancer does that has no broker behind it."""


def says_nothing(client: socket.socket) -> None:
    """As a broker does that is frozen."""
    client.settimeout(60)
    while client.recv(4096):
        pass


@pytest.mark.parametrize("talk", [hangs_up, says_nothing])
@pytest.mark.parametrize("client", [{}, TLS_CLIENT])
def test_brokers_that_are_away_are_waited_for_as_ever(
    talk: Callable[[socket.socket], object], client: dict[str, Any], serve: Serve
) -> None:
    source = opened("source", serve(talk), client)
    try:
        while not (events := source.events()):
            source.poll(1, 1000, 0.1)
        assert [one.down for one in events if isinstance(one, SourceDown)] == [True]
    finally:
        source.close()


def test_a_port_that_fits_the_security_protocol_is_no_error(kafka: Broker, tls_port: str) -> None:
    found: list[str] = []
    Mismatch(kafka.bootstrap, {}).look(found.append)
    Mismatch(tls_port, TLS_CLIENT).look(found.append)
    for client in ({}, TLS_CLIENT):
        Mismatch("127.0.0.1:1,nowhere.invalid:9092,:99999", client).look(found.append)
        Mismatch(f"{'x' * 80}.a..b:1,:1,", client).look(found.append)
    assert found == []


def test_all_brokers_are_asked_and_not_again_at_once(tls_port: str) -> None:
    found: list[str] = []
    mismatch = Mismatch(f"127.0.0.1:1, PLAINTEXT://{tls_port}", {})
    for _ in range(3):
        mismatch.look(found.append)
    assert [text.partition(" ")[0] for text in found] == [tls_port]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", ("a", 1)),
        (" a ", ("a", 9092)),
        ("ssl://a.b:1", ("a.b", 1)),
        ("[::1]:1", ("::1", 1)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
    ],
)
def test_brokers_are_found_by_their_names(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address
