"""What a committed position carries besides its offset, in the metadata that Kafka keeps with it."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Which topic a committed position belongs to, and what there was to read when its group began."""

    topic_id: str = ""
    """The brokers' id of the topic; empty where it is not known."""
    beginning: str = ""
    """A digest of `start` and of all partitions at the group's beginning; empty where no position depends on it."""

    def text(self) -> str:
        """As committed: a JSON object of less than 100 characters; empty if there is nothing to say."""
        said = {"topic_id": self.topic_id, "beginning": self.beginning}
        return json.dumps({name: value for name, value in said.items() if value}) if any(said.values()) else ""

    @classmethod
    def of(cls, text: str | None) -> CommitMetadata:
        """What `text` says; nothing, if it is another program's."""
        try:
            said = json.loads(text or "{}")
        except ValueError:
            return cls()
        if not isinstance(said, dict):
            return cls()
        topic_id, beginning = said.get("topic_id", ""), said.get("beginning", "")
        return cls(topic_id, beginning) if isinstance(topic_id, str) and isinstance(beginning, str) else cls()
