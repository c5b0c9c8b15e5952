"""Makes texts from outside safe to show: without control sequences for the terminal, and without secrets.

Topics, header names, error texts and untrusted files end up on terminals and in logs. All of them go through
`shown`, or through `masked` where the format has escapes of its own, as JSON has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

MASK: Final = "**********"
_SHORTEST: Final = 4
"""A shorter value would be found in harmless words, and masking it would reveal more than it hides."""

_IN_URL: Final = re.compile(r"(?<=://)[^\s/?#\"'<>]+(?=@)")
_IN_QUERY: Final = re.compile(
    r"(?i)(?<=[?&])([\w.-]*(?:password|passwd|secret|token|credential|signature|key|sig)[\w.-]*=)[^\s&#\"'<>]+"
)
_ALWAYS: Final = ("password", "passwd", "passphrase", "secret", "credential")
_AS_A_WORD: Final = frozenset({"token", "pem", "pwd"})
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")

_NO_SECRETS: Final = frozenset({"none", "null", "true", "false"})

_known: frozenset[str] = frozenset()


def shown(text: object) -> str:
    """The text as one line that is safe to print: secrets masked, and escaped all that is not plainly printable,
    such as control characters, line ends and marks of writing direction."""
    return escaped(masked(str(text)))


def escaped(text: str) -> str:
    """The text as one line in which all that is not plainly printable is written `\\x1b`, `\\n`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def masked(text: str) -> str:
    """The text with stars for values given to `remember`, users and passwords in URLs, and secrets in their queries."""
    for secret in sorted((secret for secret in _known if secret in text), key=len, reverse=True):
        text = text.replace(secret, MASK)
    if "://" not in text:
        return text
    return _IN_QUERY.sub(rf"\1{MASK}", _IN_URL.sub(MASK, text))


def json_shown(value: Any, *, indent: int | None = None) -> str:
    """Plain data as JSON text in which all that is not plainly printable is escaped; readers get the same data."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else _in_json(char) for char in text)


def _in_json(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else json.dumps(char)[1:-1]


def remember(secrets: Iterable[str]) -> None:
    """Mask these values from now on, in all output of this process.

    Values below four characters are not masked, nor are words such as `none` and `true`.
    """
    global _known
    stripped = {secret.strip() for secret in secrets}
    _known |= {value for value in stripped if len(value) >= _SHORTEST and value.lower() not in _NO_SECRETS}


def names_a_secret(name: str) -> bool:
    """Whether the value behind this key or environment variable must not be shown: `sasl.password`, `apiKey`, `token`.

    `key` alone is not a secret's name: it is the key of a record.
    """
    lowered = name.lower()
    if any(word in lowered for word in _ALWAYS):
        return True
    words = [word.lower() for word in _WORDS.findall(name)]
    return not _AS_A_WORD.isdisjoint(words) or (len(words) > 1 and words[-1] == "key") or lowered == "apikey"
