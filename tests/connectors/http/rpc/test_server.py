"""gRPC beside HTTP: tokens, encryption, addresses, and the end."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificate, certificate_in
from cryptography.hazmat.primitives import serialization

from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.listener import Listener
from pipelines.errors import ConnectorError
from protos import open_inference_pb2 as pb
from tests.connectors.http.rpc.conftest import Serve, ServedByThread, listening

SERVICE = "/inference.GRPCInferenceService/"
MESSAGE = pb.ModelInferRequest(model_name="echo", id="7").SerializeToString()


def infer(channel: Any, **call: Any) -> str:
    """The id of an answer."""
    with channel:
        return pb.ModelInferResponse.FromString(channel.unary_unary(f"{SERVICE}ModelInfer")(MESSAGE, **call)).id


def test_without_the_token_only_health_is_answered(serve: Serve) -> None:
    model = serve(token="secret ☃")
    with grpc.insecure_channel(model.grpc) as channel:
        for method in ("ServerLive", "ServerReady"):
            channel.unary_unary(SERVICE + method)(b"")
        channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
        for sent in ((), (("authorization", "Bearer secret"),), (("authorization", "secret"),)):
            for method in ("ModelInfer", "ModelMetadata", "ModelReady", "RepositoryIndex"):
                with pytest.raises(grpc.RpcError, match="token is missing or wrong") as caught:
                    channel.unary_unary(SERVICE + method)(MESSAGE, metadata=sent)
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.RpcError, match="token is missing or wrong"):
                list(channel.stream_stream(f"{SERVICE}ModelStreamInfer")(iter([MESSAGE]), metadata=sent))
    assert model.requests == []


def test_a_call_with_the_token_is_answered(serve: Serve) -> None:
    model = serve(token="secret")
    assert infer(grpc.insecure_channel(model.grpc), metadata=(("authorization", "bearer secret"),)) == "7"


def credentials(authority: bytes, own: Certificate | None = None) -> Any:
    if own is None:
        return grpc.ssl_channel_credentials(authority)
    return grpc.ssl_channel_credentials(authority, own.key.read_bytes(), own.certificate.read_bytes())


def test_a_self_signed_certificate_is_the_same_over_http_and_grpc(serve: Serve) -> None:
    model = serve(tls={})
    authority = ssl.get_server_certificate(model.listener.address)
    assert infer(grpc.secure_channel(model.grpc, credentials(authority.encode()))) == "7"
    context = ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(
        f"https://localhost:{model.listener.address[1]}/v2/health/live", context=context
    ) as answer:
        assert answer.status == 200


def test_certificates_come_from_files_and_clients_may_have_to_show_one(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "client").mkdir()
    server, client = certificate_in(tmp_path / "server"), certificate_in(tmp_path / "client")
    encrypted = server.key.with_suffix(".encrypted")
    private = serialization.load_pem_private_key(server.key.read_bytes(), None)
    encrypted.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    named = {"cert": server.certificate, "key": encrypted, "key_password": "password", "ca": client.certificate}
    model = serve(tls=named)
    authority = server.certificate.read_bytes()
    assert infer(grpc.secure_channel(model.grpc, credentials(authority, client))) == "7"
    with pytest.raises(grpc.RpcError):
        infer(grpc.secure_channel(model.grpc, credentials(authority)), timeout=5)


def test_an_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = HttpSourceConfig(type="http", listen="127.0.0.1:0", grpc=f"127.0.0.1:{port}")
        with pytest.raises(ConnectorError, match=f'^grpc "127.0.0.1:{port}": .* choose another'):
            Listener.of(config)


def test_one_connection_more_than_allowed_is_closed(serve: Serve) -> None:
    model = serve(connections=1)
    host, port = model.listener.grpc_address or ("", 0)
    with socket.create_connection((host, port), 10) as first:
        assert first.recv(1) != b""
        with socket.create_connection((host, port), 10) as second:
            assert second.recv(1) == b""


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def test_services_share_an_address_and_the_last_one_closes_it() -> None:
    listen, calls = free_address(), free_address()
    for _ in range(2):
        models: list[ServedByThread] = []
        try:
            models += [listening(name=name, listen=listen, grpc=calls) for name in ("other", "echo")]
            assert infer(grpc.insecure_channel(models[0].grpc)) == "7"
            models[0].close()
            assert infer(grpc.insecure_channel(models[1].grpc)) == "7"
        finally:
            for model in models:
                model.close()
    with pytest.raises(grpc.RpcError) as caught:
        infer(grpc.insecure_channel(calls))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_stream_ends_with_its_service_once_its_requests_are_answered(serve: Serve) -> None:
    model = serve()
    ends = threading.Event()

    def requests() -> Iterator[bytes]:
        yield MESSAGE
        ends.wait(10)

    with grpc.insecure_channel(model.grpc) as channel:
        stream = channel.stream_stream(f"{SERVICE}ModelStreamInfer")(requests())
        first = pb.ModelStreamInferResponse.FromString(next(stream))
        assert first.infer_response.id == "7"
        closing = threading.Thread(target=model.close)
        closing.start()
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        ends.set()
        closing.join(4)
        assert not closing.is_alive()


def test_calls_that_nobody_answered_get_an_answer_at_the_end(serve: Serve) -> None:
    model = serve(lambda request: None)
    with grpc.insecure_channel(model.grpc) as channel:
        call = channel.unary_unary(f"{SERVICE}ModelInfer").future(MESSAGE)
        while not model.inbox.running:
            time.sleep(0.005)
        model.close()
        assert (call.code(), call.details()) == (grpc.StatusCode.UNAVAILABLE, "the service is stopping")
