"""Compressed bodies: gzip and deflate, of requests and of answers."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

from connectors.http.endpoint.request import Answer

_BITS: Final = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
_INLINE: Final = 256 << 10
"""Bytes up to which a body is (de)compressed in the loop's own thread: that takes a millisecond or two."""
_SMALLEST: Final = 256
"""Bytes of an answer below which it is not compressed."""


async def decompressed(body: bytes, encoding: bytes, most: int) -> bytes | Answer:
    """The body without its content encoding, or the answer to one that cannot be read: 415, 400, or 413 beyond `most`
    bytes."""
    name = encoding.strip().lower()
    if name in (b"", b"identity"):
        return body
    bits = _BITS.get(name)
    if bits is None:
        shown = name.decode("latin-1")
        return Answer.refusal(
            415,
            f'content-encoding "{shown}" is not known; send gzip, deflate or none',
            (b"accept-encoding", b"gzip, deflate"),
        )
    try:
        large = len(body) * 4 > _INLINE
        content = await asyncio.to_thread(_inflated, body, bits, most) if large else _inflated(body, bits, most)
    except zlib.error as error:
        return Answer.refusal(400, f"the body is no {name.decode()}: {error}")
    if content is None:
        return Answer.refusal(413, f"the body is larger than {most} bytes (max_body) once it is decompressed")
    return content


def _inflated(body: bytes, bits: int, most: int) -> bytes | None:
    # Some clients send deflate without the wrapper of zlib, which RFC 9110 asks for.
    if bits == 15 and not (len(body) > 1 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0):
        bits = -15
    reader = zlib.decompressobj(bits)
    content = reader.decompress(body, most + 1)
    if len(content) > most:
        return None
    if not reader.eof:
        raise zlib.error("it ends too early")
    if reader.unused_data:
        raise zlib.error("there is more behind its end")
    return content


def wanted(accepted: bytes) -> bytes | None:
    """The encoding that a client asks for by name; `None` if it asks for none, or merely lists all that it knows.

    Most libraries always list several, on the same machine too, where compressing costs more than it saves.
    """
    name = accepted.strip().lower()
    return name if name in (b"gzip", b"deflate") else None


async def compressed(answer: Answer, encoding: bytes | None) -> Answer:
    """The answer in this encoding, if that is worth it."""
    if encoding is None or len(answer.body) < _SMALLEST:
        return answer
    bits = _BITS[encoding]
    large = len(answer.body) > _INLINE
    body = await asyncio.to_thread(_deflated, answer.body, bits) if large else _deflated(answer.body, bits)
    return answer._replace(body=body, headers=(*answer.headers, (b"content-encoding", encoding)))


def _deflated(body: bytes, bits: int) -> bytes:
    writer = zlib.compressobj(1, zlib.DEFLATED, bits)
    return writer.compress(body) + writer.flush()
