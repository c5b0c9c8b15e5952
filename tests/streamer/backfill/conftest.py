"""A store of S3 for tests of backfills."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from s3store import S3Store, environment, s3_store

from streamer.backfill.locations import store_of


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with s3_store() as store:
        yield store


@pytest.fixture
def bucket(store: S3Store, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A new bucket, which this process reaches."""
    store_of.cache_clear()
    for name, value in environment(store.port).items():
        monkeypatch.setenv(name, value)
    name = f"b{abs(hash(request.node.name))}"
    store.client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def guarded(store: S3Store) -> Iterator[None]:
    """Meanwhile the store looks at credentials."""

    def checked_after(requests: str) -> None:
        connection = HTTPConnection("127.0.0.1", store.port, timeout=10)
        connection.request("POST", "/moto-api/reset-auth", requests, {"Content-Type": "text/plain"})
        assert connection.getresponse().status == 200
        connection.close()

    checked_after("0")
    yield
    checked_after("inf")
