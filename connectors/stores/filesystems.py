"""`filesystem`: fsspec's access to the files of an object store, or of the Hugging Face Hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from pipelines.plugins.modelfiles import shortened
from pipelines.plugins.requirements import Package

PACKAGES: Final[Mapping[str, Package]] = MappingProxyType(
    {
        "s3": Package("s3fs", extra="s3"),
        "gs": Package("gcsfs", extra="gs"),
        "az": Package("adlfs", extra="az"),
        "hf": Package("huggingface_hub", extra="hf"),
    }
)
"""The packages that open URLs, by their scheme."""
LOGINS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        "gs": "GOOGLE_APPLICATION_CREDENTIALS, or gcloud auth application-default login",
        "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_CONNECTION_STRING",
        "hf": "HF_TOKEN, or hf auth login",
    }
)
"""Where credentials usually come from, for messages, by the scheme."""

_LONGEST: Final = 500
"""The most characters of a library's error that are shown."""


def filesystem(scheme: str) -> Any:
    """The filesystem of fsspec for URLs of a scheme of `PACKAGES`, as it is by now: it keeps no lists of files.

    It logs in as its library does: from environment variables, files of this user, or the machine's identity. It tries
    again what may succeed, and limits the time of each request. It and its methods raise any `Exception`: the libraries
    below have no error in common. Paths have no scheme before them, so that no chain of URLs reads files of this
    machine, as fsspec would open `s3://a::file://b`.
    """
    import fsspec

    return fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False)


def shown(error: BaseException) -> str:
    """The class and text of a library's error, in one line, without what may be secret in URLs."""
    text = re.sub(r"[a-z][a-z0-9+.-]*://[^\s'\"<>]+", lambda url: shortened(url[0]), str(error))
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return f"{type(error).__name__}: {' '.join(text.split())[:_LONGEST]}"
