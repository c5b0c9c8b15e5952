"""Answers with a file, or the part of it that a browser asks for, as players do when somebody moves in a video."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from connectors.http.exchange import Answer

PIECE: Final = 256 << 10
"""Bytes of a file that are in memory at a time."""
_KINDS: Final = {".mp4": "video/mp4", ".mkv": "video/x-matroska"}


def file_part(file: Path, wanted: str) -> Answer | None:
    """The answer to a request for a file, with the header `Range` as `wanted`; `None` if the file is gone.

    One range of bytes is understood (RFC 9110, section 14); where others are asked for the answer is all of the file.
    """
    try:
        size = file.stat().st_size
    except OSError:
        return None
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"inline; filename*=UTF-8''{quote(file.name, safe='')}",
    }
    kind = _KINDS.get(file.suffix, "application/octet-stream")
    status, begin, end = 200, 0, size
    match = re.fullmatch(r"bytes=([0-9]{0,18})-([0-9]{0,18})", wanted.strip())
    if match is not None and (match[1] or match[2]):
        status = 206
        if match[1]:
            begin, end = int(match[1]), min(int(match[2]) + 1, size) if match[2] else size
        else:
            begin = max(0, size - int(match[2]))
        if begin >= end:
            return Answer(416, b"", kind, {**headers, "Content-Range": f"bytes */{size}"})
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
    headers["Content-Length"] = str(end - begin)
    return Answer(status, b"", kind, headers, partial(_read, file, begin, end))


async def _read(file: Path, begin: int, end: int) -> AsyncGenerator[bytes, None]:
    with await asyncio.to_thread(file.open, "rb") as opened:
        opened.seek(begin)
        while begin < end:
            # A disk that is slow, or far away, must not hold up other browsers.
            piece = await asyncio.to_thread(opened.read, min(PIECE, end - begin))
            if not piece:
                return
            begin += len(piece)
            yield piece
