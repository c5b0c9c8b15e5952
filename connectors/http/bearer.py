"""The token of a request: `Authorization: Bearer TOKEN`."""

from __future__ import annotations

import hmac


def bears(authorization: str, token: str) -> bool:
    """Whether this value of the header `Authorization`, read as Latin-1, has the token. Compared in constant time."""
    scheme, _, given = authorization.partition(" ")
    right = hmac.compare_digest(given.strip().encode("latin-1", "replace"), token.encode())
    return right and scheme.lower() == "bearer"
