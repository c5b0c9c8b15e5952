"""Opens models in object stores and on the Hugging Face Hub, with fsspec's filesystems.

A filesystem logs in as its library does: from environment variables, files of this user, or the machine's identity.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from anyio import to_thread

from connectors.models.cache import FetchError, RemoteModel
from connectors.models.content import Content
from pipelines.errors import RAISED
from pipelines.plugins.modelfiles import shortened

Result = TypeVar("Result")

_BLOCK: Final = 4 << 20
"""Bytes that are asked for at once."""
_LONGEST: Final = 500
"""The most characters of a library's error that are shown."""


@asynccontextmanager
async def opened(model: RemoteModel) -> AsyncIterator[Content]:
    """The content of a file in a store. A library tries again by itself what may succeed."""
    if model.login:
        raise FetchError(
            f"{model}: a URL with a user or password opens no store; remove them, and give this machine credentials "
            "in its environment"
        )
    size, file = await _asked(model, lambda: _opened(model.url))
    try:
        yield Content(size, _blocks(model, file))
    finally:
        file.close()


def _opened(url: str) -> tuple[int | None, Any]:
    import fsspec

    # Without fsspec.open, which reads any file, of this machine too, behind a chain such as s3://a::file://b.
    scheme, _, path = url.partition("://")
    filesystem = fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False)
    about = filesystem.info(path)
    if about["type"] != "file":
        raise IsADirectoryError("this is a folder, not a file")
    # Hugging Face's library streams a file of block size 0.
    file = filesystem.open(path, "rb", block_size=0 if scheme == "hf" else _BLOCK, cache_type="none")
    return about["size"], file


async def _blocks(model: RemoteModel, file: Any) -> AsyncIterator[bytes]:
    while block := await _asked(model, lambda: file.read(_BLOCK)):
        yield block


async def _asked(model: RemoteModel, call: Callable[[], Result]) -> Result:
    """Call a library in a thread, which is left alone when this task is cancelled."""
    try:
        return await to_thread.run_sync(call, abandon_on_cancel=True)
    except RAISED as error:  # the libraries below fsspec have no error in common
        # A traceback would show what is masked here.
        raise FetchError(f'{model} cannot be fetched: {_shown(error)}; check "modelUri" and the credentials') from None


def _shown(error: BaseException) -> str:
    """Its text without signatures in URLs, in one line."""
    text = re.sub(r"[a-z][a-z0-9+.-]*://[^\s'\"<>]+", lambda url: shortened(url[0]), str(error))
    text = "".join(sign if sign.isprintable() else " " for sign in text)
    return f"{type(error).__name__}: {' '.join(text.split())[:_LONGEST]}"
