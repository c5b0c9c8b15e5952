"""The field `outbox` of every sink."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from connectors.localpath import LocalPath
from connectors.units import size_in_bytes
from pipelines.described import FrozenSettings


def _size(text: str) -> str:
    if not size_in_bytes(text):
        raise ValueError(f'"{text}" is no room for any message')
    return text


class OutboxConfig(FrozenSettings):
    """A file that keeps a sink's messages until the sink has confirmed them, even over a restart."""

    path: LocalPath
    """The file, an SQLite database; it is created if it does not exist. Each sink of each process needs its own."""
    max: (
        Annotated[int, Field(ge=1, strict=True)]
        | Annotated[str, AfterValidator(_size), WithJsonSchema({"type": "string", "examples": ["64MiB", "1GiB"]})]
    ) = "1GiB"
    """How much it holds: a size such as `64MiB`, or a number of messages. Messages that the sink refused count too."""
    when_full: Literal["wait", "drop_oldest", "drop_newest"] = "wait"
    """What happens when it is full: the service waits and reads no more (`wait`), or the oldest or the new messages are dropped."""  # noqa: E501
    on_refused: Literal["keep", "stop"] = "keep"
    """What happens to a message that the sink refuses for good (too large, for instance): it is set aside in the file with the reason (`keep`), or the service stops."""  # noqa: E501
    sync: Literal["full", "normal"] = "full"
    """When a batch counts as confirmed: when it is on the disk (`full`), or when the operating system has it (`normal`): then a power failure may lose the last ones, a crash of the process loses none."""  # noqa: E501

    @property
    def max_bytes(self) -> int | None:
        """`max` if it is a size."""
        return int(str(size_in_bytes(self.max))) if isinstance(self.max, str) else None

    @property
    def max_messages(self) -> int | None:
        """`max` if it is a number of messages."""
        return self.max if isinstance(self.max, int) else None
