"""A store of S3 on this machine (moto's server)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import botocore.session
from moto.server import ThreadedMotoServer

SECRET = "hunter2-secret"


class S3Store:
    """The server, and a client of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.client = botocore.session.get_session().create_client(
            "s3", "us-east-1", endpoint_url=f"http://127.0.0.1:{port}", aws_access_key_id="a", aws_secret_access_key="b"
        )

    def objects(self, bucket: str) -> dict[str, int]:
        """The sizes of all objects in a bucket, by key."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return {each["Key"]: each["Size"] for page in pages for each in page.get("Contents", ())}

    def read(self, bucket: str, key: str) -> Any:
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()


def environment(port: int) -> Mapping[str, str]:
    """The variables by which processes reach a store at this port."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "no_proxy": "127.0.0.1",
    }


@contextmanager
def s3_store() -> Iterator[S3Store]:
    """A store without buckets, until the context ends."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    store = S3Store(server.get_host_and_port()[1])
    yield store
    store.client.close()
    server.stop()
