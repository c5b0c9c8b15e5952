"""`streamer broker`: a real Kafka until Ctrl-C."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient


# The fixture is asked for so that this is skipped where no Kafka can be started, and runs beside no other cluster.
@pytest.mark.usefixtures("start_kafka")
def test_a_broker_with_topics_runs_until_ctrl_c(start: Any) -> None:
    process = start("broker", "--port", "0", "-t", "images:3", "-t", "predictions", "--json")
    told = json.loads(process.stdout.readline())
    admin = AdminClient({"bootstrap.servers": told["bootstrap"]})
    topics = admin.list_topics(timeout=60).topics
    assert len(topics["images"].partitions) == 3
    assert len(topics["predictions"].partitions) == 1
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert f"export KAFKA_BOOTSTRAP_SERVERS={told['bootstrap']}" in err
    assert err.splitlines()[-1] == "stopped"


@pytest.mark.parametrize("topic", ["images:", "images:0", "images:x", ":3"])
def test_a_topic_is_a_name_or_a_name_with_its_partitions(cli: Any, topic: str) -> None:
    ended = cli("broker", "--topic", topic)
    assert ended.code == 2
    assert "NAME:PARTITIONS" in ended.err
