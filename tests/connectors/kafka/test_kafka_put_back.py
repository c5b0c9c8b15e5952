"""The position of a group is set once, before processes read it, and only while none does."""

from __future__ import annotations

from typing import Any

import pytest
from waiting import until

from connectors.kafka.config import KafkaSourceConfig
from pipelines.errors import ConnectorError


def test_a_position_is_not_put_back_under_the_processes_that_read_the_group(
    kafka: Any, topics: Any, topic_name: Any, caplog: Any, monkeypatch: Any
) -> None:
    # It waits for a second, not for the end of a session.
    monkeypatch.setattr("connectors.kafka.consumer.putback._MORE", -5.0)
    config = KafkaSourceConfig.model_validate(
        {
            "bootstrap": kafka.bootstrap,
            "topics": topics(),
            "group": topic_name(),
            "client": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200},
        }
    )
    member = config.build()
    member.open()
    try:
        until(lambda: member.poll(1, 100, 0.1) is not None and bool(member.events()))
        with pytest.raises(ConnectorError, match="has members, so its position cannot be set; stop the processes"):
            config.model_copy(update={"reset": "earliest"}).put_back()
    finally:
        member.close()
    assert "can be set when they have left" in caplog.text
    config.model_copy(update={"reset": "earliest"}).put_back()
