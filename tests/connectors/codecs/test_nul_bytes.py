"""NUL bytes cannot be seen when a payload is shown, so errors name them."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.codecs.registry import codec_of
from connectors.message import Message, records_of

CODECS: list[dict[str, Any]] = [
    {"type": "json"},
    {"type": "json", "fields": {"x": "/x"}},
    {"type": "json", "each": True},
    {"type": "konduit-json"},
    {"type": "csv", "names": ["x"], "types": {"x": "number"}},
]


@pytest.mark.parametrize("hot", ["auto", "python"])
@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: "-".join(map(str, codec)) + codec["type"])
@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b'{"x": 1}\0', r"a NUL byte (\x00) at the end, at character 8; senders"),
        (b'{"x": 1}\0\0\0', r"a NUL byte (\x00) at the end, at character 8; senders"),
        (b'{"x"\0: 1}', r"a NUL byte (\x00) at character 4"),
        (b"\0", r"a NUL byte (\x00) at the end, at character 0; senders"),
        ('{"x": 1}'.encode("utf-16-le"), r"as in UTF-16; send UTF-8"),
    ],
)
def test_a_nul_byte_is_named(codec: dict[str, Any], hot: Any, payload: bytes, said: str) -> None:
    decoded = codec_of(codec, hot).decode(records_of([Message(payload)], "s"), frozenset({"x"}))
    assert said in str(decoded.failed[0])
