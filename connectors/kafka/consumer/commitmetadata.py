"""`CommitMetadata`: the metadata that is committed with an offset."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The id of the topic of a committed offset, and the partitions that existed when its group began."""

    topic_id: str = ""
    """The brokers' id of the topic; empty if it is not known."""
    beginning: str = ""
    """A digest of `start` and of all partitions at the group's beginning; empty if no position depends on it."""

    def text(self) -> str:
        """The text to commit: a JSON object of less than 100 characters; empty if both fields are."""
        said = {"topic_id": self.topic_id, "beginning": self.beginning}
        return json.dumps({name: value for name, value in said.items() if value}) if any(said.values()) else ""

    @classmethod
    def of(cls, text: str | None) -> CommitMetadata:
        """The metadata of this text; empty if another program wrote it."""
        try:
            said = json.loads(text or "{}")
        except ValueError:
            return cls()
        if not isinstance(said, dict):
            return cls()
        topic_id, beginning = said.get("topic_id", ""), said.get("beginning", "")
        return cls(topic_id, beginning) if isinstance(topic_id, str) and isinstance(beginning, str) else cls()
