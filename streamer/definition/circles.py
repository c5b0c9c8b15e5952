"""Services that read what they write: results or dead letters come back as records."""

from __future__ import annotations

from connectors.config import SinkConfig
from streamer.definition.service import Service


def circle(config: SinkConfig, service: Service) -> str | None:
    """Which source of the service reads what this sink writes, and what follows; `None`: none, as far as known."""
    if config.addressing is None:
        return None
    topics = config.addressing.topics if "{" in config.addressing.topic else (config.addressing.topic,)
    for source in service.sources:
        # A sink without an address has that of the source.
        same = all(getattr(config, name, None) in (None, getattr(source, name, None)) for name in ("brokers", "url"))
        both = [topic for topic in topics if not topic.startswith("^") and source.reads(topic)]
        if source.type == config.type and same and both:
            dead = config is service.dead_letter
            what = "a record that fails comes back without end" if dead else "results come back"
            return f"the source {source.label} reads {', '.join(both)}, too: {what}"
    return None
