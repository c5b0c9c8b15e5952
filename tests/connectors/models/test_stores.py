"""Models in object stores: on a real server of S3 on this machine, and on one that answers as the Hugging Face Hub."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec.config
import pytest
from huggingfacehub import hub_of
from s3store import SECRET, environment, s3_store
from tcpproxy import TcpProxy

from connectors.models.cache import FetchError
from connectors.models.download import AZ, GS, HF, S3
from pipelines import OpenContext
from pipelines.errors import MissingPackageError, StreamerError
from pipelines.plugins.modelfiles import model_path
from pipelines.plugins.requirements import Package

CONTENT = bytes(range(256)) * (5 << 12)
"""5 MiB: more than is asked for at once."""
SHA = hashlib.sha256(CONTENT).hexdigest()
URL = "s3://models/a/m.bin"


@pytest.fixture(scope="module")
def moto() -> Iterator[int]:
    """The port of a store of S3 with the model of `URL`, and an empty one."""
    with s3_store() as store:
        store.client.create_bucket(Bucket="models")
        store.client.put_object(Bucket="models", Key="a/m.bin", Body=CONTENT)
        store.client.put_object(Bucket="models", Key="a/none.bin", Body=b"")
        yield store.port


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def s3(moto: int, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TcpProxy]:
    """The way of this process to the store."""
    with TcpProxy(moto) as proxy:
        for name, value in environment(proxy.port).items():
            monkeypatch.setenv(name, value)
        yield proxy


def left_over(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


def test_a_model_of_s3_is_fetched_once_and_kept_under_its_name(s3: TcpProxy, cache: Path) -> None:
    said: list[str] = []
    file = S3.fetch(URL, said.append)
    assert (file.name, file.read_bytes(), left_over(cache)) == ("m.bin", CONTENT, [file])
    assert said[0] == "fetching m.bin: 4.0 of 5.0 MiB"
    connections = s3.connections
    assert S3.fetch(f"{URL}#sha256={SHA}") == S3.cached(URL) == file
    assert s3.connections == connections


def test_a_model_of_s3_with_another_checksum_or_over_the_limit_or_empty_is_not_kept(
    s3: TcpProxy, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FetchError, match=f"has the SHA-256 {SHA}, not {'0' * 64}"):
        S3.fetch(f"{URL}#sha256={'0' * 64}")
    with pytest.raises(FetchError, match="the server sends an empty answer"):
        S3.fetch("s3://models/a/none.bin")
    monkeypatch.setenv("STREAMER_MODEL_LIMIT", "1MiB")
    with pytest.raises(FetchError, match="has 5242880 bytes or more, 1048576 are allowed"):
        S3.fetch(URL)
    assert left_over(cache) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://models/no.bin", "FileNotFoundError: models/no.bin"),
        ("s3://nowhere/m.bin", "FileNotFoundError: "),
        ("s3://models/a", "IsADirectoryError: this is a folder, not a file"),
        ("s3://models/a::file:///etc/hostname", "FileNotFoundError: models/a::file:///etc/hostname"),
    ],
)
def test_what_is_no_file_of_s3_is_an_error_that_names_it(s3: TcpProxy, cache: Path, url: str, said: str) -> None:
    with pytest.raises(FetchError, match='check "modelUri" and the credentials') as caught:
        S3.fetch(url)
    assert f"the model {url} cannot be fetched: {said}" in str(caught.value)
    assert left_over(cache) == []


def test_a_connection_that_breaks_does_not_end_a_download_from_s3(s3: TcpProxy) -> None:
    s3.cut_after("to client", 100_000)
    assert S3.fetch(URL).read_bytes() == CONTENT
    assert s3.connections > 1


def test_a_store_that_does_not_answer_is_given_up(s3: TcpProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMER_MODEL_TIMEOUT", "500ms")
    s3.swallow()
    begin = time.monotonic()
    with pytest.raises(FetchError, match=r"is not here after 0.5 s, .*set STREAMER_MODEL_TIMEOUT"):
        S3.fetch(URL)
    assert time.monotonic() - begin < 20


def test_a_url_with_credentials_opens_no_store_and_they_are_not_shown(s3: TcpProxy) -> None:
    with pytest.raises(FetchError, match="credentials in its environment") as caught:
        S3.fetch(URL.replace("//", f"//user:{SECRET}@"))
    assert "the model s3://models/a/m.bin: " in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *("local:///etc/hostname", "memory://m.bin", "github://a:b@/m.bin", "simplecache::s3://models/a/m.bin"),
        *("zip://m.bin::s3://models/a.zip", "filecache::file:///etc/hostname", "reference://a", "data://x,y"),
    ],
)
def test_other_filesystems_of_fsspec_cannot_be_reached(url: str, tmp_path: Path) -> None:
    with pytest.raises(
        StreamerError, match=r"nothing can fetch the model .* \(there are az, file, gs, hf, http, https, s3\)"
    ):
        model_path(url, OpenContext(base=tmp_path))


def test_a_missing_package_is_named_with_its_extra_unless_the_model_is_here(
    s3: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = S3.fetch(URL)
    monkeypatch.setattr(S3, "requires", Package("missing_package", extra="s3"))
    assert S3.cached(URL) == file
    with pytest.raises(MissingPackageError, match=r"the model s3://b/m.bin needs .* 'streamer-inference\[s3\]'"):
        S3.cached("s3://b/m.bin")
    assert [str(fetcher.requires) for fetcher in (GS, AZ, HF)] == ["gcsfs", "adlfs", "huggingface_hub"]


@pytest.fixture
def hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with hub_of("org/nets", {"onnx/m.bin": CONTENT}) as endpoint:
        monkeypatch.setitem(fsspec.config.conf, "hf", {"endpoint": endpoint})
        yield "hf://org/nets/onnx/m.bin"


def test_a_model_of_the_hugging_face_hub_is_fetched_once(hub: str) -> None:
    file = HF.fetch(f"{hub}#sha256={SHA}")
    assert (file.name, file.read_bytes()) == ("m.bin", CONTENT)
    assert HF.cached(hub) == file
    with pytest.raises(FetchError, match=r"the model hf://org/nets/no.bin cannot be fetched: .*check \"modelUri\""):
        HF.fetch("hf://org/nets/no.bin")
