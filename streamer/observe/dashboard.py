"""The dashboard, `page.html`: one file with its styles and script, without data; it reads the port's events."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Final

from connectors.http.exchange import Answer

_PART: Final = r"<{0}>(.*?)</{0}>"


@cache
def dashboard(*, with_token: bool) -> Answer:
    """The answer to who opens the page. Its policy lets a browser run the page's own script, and talk to this port
    only. `with_token`: whether the port has one, without which it shows nothing."""
    text = files("streamer.observe").joinpath("page.html").read_text(encoding="utf-8")
    if with_token:
        text = text.replace("<html", "<html data-token", 1)
    policy = (
        "default-src 'none'; connect-src 'self'; img-src data:; "
        f"script-src {_hashes(text, 'script')}; style-src {_hashes(text, 'style')}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Answer(
        200,
        text.encode(),
        "text/html; charset=utf-8",
        {
            "Content-Security-Policy": policy,
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        },
    )


def _hashes(text: str, tag: str) -> str:
    parts = re.findall(_PART.format(tag), text, re.DOTALL)
    digests = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
