"""Opens models in object stores and on the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from anyio import to_thread

from connectors.models.cache import FetchError, RemoteModel
from connectors.models.content import Content
from connectors.stores.filesystems import filesystem, shown
from pipelines.errors import RAISED

Result = TypeVar("Result")

_BLOCK: Final = 4 << 20
"""Bytes that are asked for at once."""


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
    scheme, _, path = url.partition("://")
    files = filesystem(scheme)
    about = files.info(path)
    if about["type"] != "file":
        raise IsADirectoryError("this is a folder, not a file")
    # Hugging Face's library streams a file of block size 0.
    file = files.open(path, "rb", block_size=0 if scheme == "hf" else _BLOCK, cache_type="none")
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
        raise FetchError(f'{model} cannot be fetched: {shown(error)}; check "modelUri" and the credentials') from None
