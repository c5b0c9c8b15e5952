"""`put_back`: commits the `reset` of a source for its group, once, before several processes read it."""

from __future__ import annotations

import logging
import time
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from connectors.kafka.config import KafkaSourceConfig
from connectors.kafka.source import KafkaSource
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

_SESSION: Final = 45_000
"""librdkafka's default of `session.timeout.ms`."""
_MORE: Final = 15.0
"""Seconds beyond the session's timeout until brokers have removed a member."""
_AGAIN: Final = 1.0


def put_back(config: KafkaSourceConfig) -> None:
    """Commit `reset` as the position of the group.

    Brokers allow it only for a group without members. Static members, as workers are, stay in it until their session
    is over, so this waits that long for them. Raises `ConnectorError`.
    """
    # Not as its instance: that would stay in the group.
    config = config.model_copy(update={"instance": None})
    patience = float(str(config.client.get("session.timeout.ms", _SESSION))) / 1000 + _MORE
    deadline = time.monotonic() + patience
    waiting = False
    while True:
        source = KafkaSource(config)
        try:
            source.open()
            return
        except ConnectorError as error:
            if not _has_members(error):
                raise
            if time.monotonic() > deadline:
                raise ConnectorError(
                    f"source {config.label}: the group {config.group} has members, so its position cannot be set; "
                    "stop the processes that read it, or name another group"
                ) from error
        finally:
            source.close()
        if not waiting:
            waiting = True
            _log.warning(
                "source %s: the group %s still has members, and its position can be set when they have left: those of "
                "processes that have ended leave within %.0f s (session.timeout.ms)",
                *(config.label, config.group, patience - _MORE),
            )
        time.sleep(_AGAIN)


def _has_members(error: ConnectorError) -> bool:
    cause = error.__cause__
    if not isinstance(cause, KafkaException):
        return False
    return cause.args[0].code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP)
