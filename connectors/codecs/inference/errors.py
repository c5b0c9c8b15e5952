"""`NotOfferedError`: a request asks for a part of the protocol that there is not here."""

from __future__ import annotations

from pipelines.errors import WireError


class NotOfferedError(WireError):
    """The request asks for something optional that the protocol has, and we do not offer. Over HTTP that is 501."""
