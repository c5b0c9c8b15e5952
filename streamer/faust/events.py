"""`Undecoded`: events of a topic whose payloads Faust leaves as they came."""

from __future__ import annotations

from typing import Any

import faust
from faust.types import AppT, EventT, Message


class Undecoded(faust.Schema[bytes, bytes]):
    """Makes an event of a message without looking at its key or value.

    Faust acknowledges records that it cannot decode: so here it leaves decoding to the service's codec. Its serializer
    `raw` does not decode either, but costs several calls for each key and value; it is used for messages sent to the
    topic.
    """

    def __init__(self) -> None:
        super().__init__(
            key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw", allow_empty=True
        )

    def compile(self, app: AppT, **handlers: Any) -> Any:
        """See `faust.Schema.compile`. The headers of an event stay in its message."""

        async def decode(message: Message, *, propagate: bool = False) -> EventT[Any]:
            return faust.Event(app, message.key, message.value, None, message)

        return decode
