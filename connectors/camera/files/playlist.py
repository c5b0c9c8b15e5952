"""Playlists: files that name the films to read, and so may name any file of this machine."""

from __future__ import annotations

from pathlib import Path

_BEGINS = (b"#EXTM3U", b"ffconcat", b"<")
"""How lists begin that libav takes for films: HLS, those of its own that join films, and XML (DASH, IMF)."""
_HEAD = 256


def is_playlist(path: Path) -> bool:
    """Whether libav would read other files that this one names; false if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(_BEGINS)
