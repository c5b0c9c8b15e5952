"""Topics in which brokers keep their own records: a pattern of topics leaves them out, as they are no data.

A service that read `__consumer_offsets` would be fed by its own commits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata")
"""The names of internal topics."""


def reads(topics: Sequence[str], name: str) -> bool:
    """Whether a subscription to `topics`, names and regular expressions that begin with ^, has the topic `name`."""
    return name in topics or (
        name not in INTERNAL and any(topic.startswith("^") and re.search(topic, name) for topic in topics)
    )


def whole(topic: str) -> str:
    """For brokers that compare a regular expression with whole names: one that has the names that contain it.

    A name, without ^ at its beginning, stays as it is.
    """
    return f"^.*({topic}).*" if topic.startswith("^") else topic


def left_out(topics: Sequence[str], more: str = "") -> str:
    """librdkafka's `topic.blacklist` for a subscription: all internal topics that it does not name, and `more`."""
    return ",".join([*(f"^{name}$" for name in INTERNAL if name not in topics), *([more] if more else [])])
