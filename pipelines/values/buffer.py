"""Bytes that are a BYTEBUFFER rather than BYTES."""

from __future__ import annotations


class ByteBuffer(bytes):
    """Bytes with the type BYTEBUFFER.

    Konduit Serving tells a Java byte array (BYTES) from a ByteBuffer (BYTEBUFFER); in Python `bytes` is the
    first and `ByteBuffer` the second. A `bytearray` or `memoryview` put into a `Data` becomes a `ByteBuffer`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"ByteBuffer({bytes(self)!r})"
