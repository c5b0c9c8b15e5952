"""What is fetched: the bytes of one file, as a web server or an object store sends them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias

from connectors.models.cache import FetchError, RemoteModel


class PassingError(FetchError):
    """Another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a file."""

    size: int | None
    """How many bytes there are to come; `None` if that is not known."""
    blocks: AsyncIterator[bytes]


Opener: TypeAlias = Callable[[RemoteModel], AbstractAsyncContextManager[Content]]
"""Opens a model's content, and closes it. It and the blocks raise `FetchError`, of which only a `PassingError` is tried
again."""
