"""Playlists: files that name the films to read, and so may name any file of this machine."""

from __future__ import annotations

from pathlib import Path

_BEGINS = (b"#EXTM3U", b"ffconcat", b"<")
"""First bytes of lists that libav opens like films: HLS, its concat script, and XML (DASH, IMF)."""
_HEAD = 256


def is_playlist(path: Path) -> bool:
    """Whether this file names others, which libav would read; false if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_BEGINS)
