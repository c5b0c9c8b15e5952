"""`LongBodies`: connections on which the bytes of a long body go from the socket to the application uncopied."""

from __future__ import annotations

from typing import Any, Final

from connectors.http.connection import BoundedProtocol
from connectors.http.parser import RequestParser

LONG: Final = 64 << 10
"""Bytes of a body beyond which it is long."""
BODY: Final = "streamer.body"
"""The key under which the scope of a request has its `LongBody`, if the body is long."""
_MOST_WAITING: Final = 64 << 10
"""Bytes that may wait for the application until no more are read."""
_CONTENT_LENGTH: Final = b"content-length"


class LongBody:
    """A body in the pieces in which it has arrived. The messages of ASGI that tell of them are empty."""

    __slots__ = ("_pieces", "_untaken", "aligned_at", "size")

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []
        self._untaken = 0
        self.size = 0
        """Bytes that have arrived."""
        self.aligned_at = 0
        """Where numbers begin that need no copy to be computed with if they are aligned."""

    def add(self, piece: bytes | memoryview) -> bool:
        """One more. Returns whether that is enough until the application has seen to it."""
        self._pieces.append(piece)
        self.size += len(piece)
        self._untaken += len(piece)
        return self._untaken > _MOST_WAITING

    def not_counted(self) -> int:
        """How many bytes there are that were not counted yet."""
        count, self._untaken = self._untaken, 0
        return count

    def joined(self) -> bytes | memoryview:
        """All of them, copied once. A view of bytes, if something in front of them aligns their numbers."""
        # The data of bytes lie at a multiple of 16.
        pad = -self.aligned_at % 16
        return memoryview(b"".join((bytes(pad), *self._pieces)))[pad:] if pad else b"".join(self._pieces)


class LongBodies(BoundedProtocol):
    """Lets its parser see the head of a request with a long body only, and counts the bytes behind it.

    The parser copies each piece of a body, and uvicorn does so twice more.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._length = 0
        """Of the body of the request whose head is read, or was read last, if it is long."""
        self._left = 0
        """Bytes of a long body that are still to come."""
        self._long: LongBody | None = None
        self._before_body = True

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._take(data)
            return
        head = data.find(b"\r\n\r\n") + 4 if self._before_body and len(data) > LONG else 3
        if head == 3:
            super().data_received(data)
            self._begin()
            return
        super().data_received(data[:head])
        if self.transport.is_closing():
            return
        if self._begin():
            self._take(memoryview(data)[head:])
        else:
            super().data_received(data[head:])
            self._begin()

    def on_message_begin(self) -> None:
        self._length, self._long, self._before_body = 0, None, True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if (
            self._before_body
            and len(value) > 4
            and len(name) == len(_CONTENT_LENGTH)
            and name.lower() == _CONTENT_LENGTH
        ):
            # The parser lets only digits through, and only one such header.
            length = int(value[:19])
            self._length = length if length > LONG else 0
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._before_body = False
        if self._length:
            self._long = self.scope[BODY] = LongBody()  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def on_body(self, body: bytes | memoryview) -> None:
        long = self._long
        if long is None:
            super().on_body(bytes(body))
            return
        self._idle = 0
        if self.cycle.response_complete:
            # Nobody wants the rest.
            long.size += len(body)
            return
        if long.add(body):
            self.flow.pause_reading()
        self.cycle.message_event.set()

    def on_message_complete(self) -> None:
        if not self.parser.is_left:
            self._length, self._long, self._before_body = 0, None, True
        super().on_message_complete()

    def _begin(self) -> bool:
        """Take what is to come as the body, if it is a long one; returns whether it is."""
        if self._long is None or self.transport.is_closing():
            return False
        self._left = self._length - self._long.size
        return True

    def _take(self, data: bytes | memoryview) -> None:
        count = min(len(data), self._left)
        if not count:
            return
        self._left -= count
        self.on_body(data if count == len(data) else memoryview(data)[:count])
        if not self._left:
            # The parser still waits for the body.
            self.parser = RequestParser(self)
            self.on_message_complete()
            if count < len(data):
                self.data_received(bytes(data[count:]))
