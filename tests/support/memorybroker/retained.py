"""The last message of each topic that was published to be kept."""

from __future__ import annotations

from connectors.mqtt.protocol.topics import matches
from memorybroker.messages import Message

MOST = 100_000
"""Messages that are kept; more are not."""


class Retained:
    """The messages that are kept, one a topic."""

    def __init__(self) -> None:
        self._messages: dict[str, Message] = {}

    def keep(self, message: Message) -> bool:
        """Keep it in place of the one before; an empty payload removes that. Returns false when there is no room."""
        if not message.payload:
            self._messages.pop(message.topic, None)
            return True
        if message.topic not in self._messages and len(self._messages) >= MOST:
            return False
        self._messages[message.topic] = message
        return True

    def matching(self, filter: str) -> list[Message]:
        """Those that a subscription to this filter gets, the expired ones removed."""
        for topic in [topic for topic, message in self._messages.items() if message.expired]:
            del self._messages[topic]
        if "+" not in filter and "#" not in filter:
            found = self._messages.get(filter)
            return [] if found is None else [found]
        return [message for topic, message in self._messages.items() if matches(filter, topic)]
