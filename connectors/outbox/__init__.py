"""Store and forward: a sink's messages are kept in a file of this machine until the sink has confirmed them."""

from connectors.outbox.config import OutboxConfig

__all__ = ["OutboxConfig"]
