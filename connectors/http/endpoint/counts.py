"""`Counts`: the requests for one model, as `/metrics` shows them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Counters since the source was opened. Written by the thread of the endpoint's loop."""

    answered: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Answers by protocol (http, grpc) and status of HTTP."""
    cancelled: int = 0
    """Requests whose client has gone before its answer."""
