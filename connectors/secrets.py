"""Secrets in a client's configuration, which are masked wherever it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import SecretStr

SECRET_WORDS = ("password", "secret", "token", "pem", "key")
"""A property whose name contains one of these is masked wherever it is shown."""

_MASK = "**********"
# A shorter secret may be part of harmless words, and masking those would reveal it.
_SHORTEST = 4


def is_secret(name: str) -> bool:
    """Whether the value of this property must not be shown."""
    return any(word in name.lower() for word in SECRET_WORDS)


def wrapped(client: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same properties with secret values as `SecretStr`, which print as stars. Raises nothing, for any input."""
    return {
        name: SecretStr(str(value))
        if isinstance(name, str) and is_secret(name) and not isinstance(value, SecretStr)
        else value
        for name, value in client.items()
    }


class Scrubber:
    """Masks secret values in texts of other programs, such as the client library's error messages."""

    def __init__(self, client: Mapping[str, object]) -> None:
        self._secrets = sorted(_values(client), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text with each secret value replaced by stars."""
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text


def _values(client: Mapping[str, object]) -> Iterable[str]:
    for value in client.values():
        if isinstance(value, SecretStr):
            secret = value.get_secret_value()
            if len(secret) >= _SHORTEST:
                yield secret
