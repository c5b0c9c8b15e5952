"""Brokers that the project starts: what they promise to tests, to `streamer broker` and to the demo."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafkatopics import read, write
from waiting import until

from streamer.devbroker import Broker, BrokerError, LocalKafka, create_topics
from streamer.devbroker.ports import ReservedPorts

pytestmark = pytest.mark.slow

StartKafka = Callable[..., LocalKafka]
Topics = Callable[..., str]
VALUES = [b"%03d" % number for number in range(100)]


def gone(pid: int) -> bool:
    # A process whose parent died before it may stay a zombie where nobody reaps orphans.
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_the_shared_broker_keeps_what_is_produced(kafka: Broker, topics: Topics) -> None:
    topic = topics(partitions=3)
    write(kafka.bootstrap, topic, VALUES)
    assert sorted(one.value for one in read(kafka.bootstrap, topic, 100)) == VALUES


def test_a_broker_can_be_frozen_restarted_and_killed_and_keeps_its_records(
    start_kafka: StartKafka, tmp_path: Path
) -> None:
    data = tmp_path / "kafka"
    kafka = start_kafka(data=data)
    bootstrap, (pid,) = kafka.bootstrap, kafka.pids.values()
    assert psutil.Process(pid).name() == "java"
    assert kafka.folder == data
    assert bootstrap in kafka.describe()
    write(bootstrap, "survivors", VALUES)
    with pytest.raises(BrokerError, match="in use by another broker"):
        LocalKafka(data=data).start()

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    kafka.freeze()
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1.0)
    kafka.thaw()
    assert admin.list_topics(timeout=60.0).brokers

    kafka.freeze()
    kafka.restart()
    assert kafka.bootstrap == bootstrap
    assert list(kafka.pids.values()) != [pid]
    (pid,) = kafka.pids.values()
    assert sorted(one.value for one in read(bootstrap, "survivors", 100)) == VALUES

    kafka.kill()
    assert gone(pid)
    assert kafka.pids == {}
    with pytest.raises(BrokerError, match=r"node 1 .* does not run"):
        kafka.freeze(1)
    with pytest.raises(BrokerError, match=r"node 1 ended with code -9(.|\n)*kafka\.log"):
        kafka.wait()
    kafka.stop()
    with pytest.raises(BrokerError, match="holds the data of 1 nodes, not 3"):
        LocalKafka(3, data).start()
    later = start_kafka(data=data)
    assert sorted(one.value for one in read(later.bootstrap, "survivors", 100)) == VALUES

    # A frozen process does not act on SIGTERM; it has to end all the same.
    (pid,) = later.pids.values()
    later.freeze()
    later.stop(grace=1.0)
    assert gone(pid)
    assert later.pids == {}
    assert not any(str(data) in " ".join(child.cmdline()) for child in psutil.Process().children())
    with pytest.raises(BrokerError, match="not running"):
        _ = later.bootstrap


HARD_END = """
import json, os, signal, threading, time
from streamer.devbroker import LocalKafka
kafka = LocalKafka()
threading.Thread(target=kafka.start, daemon=True).start()
while not kafka.pids:
    time.sleep(0.01)
print(json.dumps({"pids": list(kafka.pids.values()), "folder": str(kafka.folder)}), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_broker_does_not_outlive_a_parent_that_is_killed(start_kafka: StartKafka) -> None:
    done = subprocess.run([sys.executable, "-c", HARD_END], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = json.loads(done.stdout)
    assert until(lambda: all(gone(pid) for pid in left["pids"]))
    assert until(lambda: not Path(left["folder"]).exists())


def test_a_broker_that_cannot_start_says_why(start_kafka: StartKafka) -> None:
    with pytest.raises(BrokerError, match=r"Invalid value many for configuration num\.io\.threads"):
        start_kafka(num_io_threads="many")


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {taken} on 127.0.0.1 is taken"):
            LocalKafka(port=taken).start()


def test_reserved_ports_are_given_to_nobody_else() -> None:
    first, second = ReservedPorts(50), ReservedPorts(50)
    try:
        assert len({*first.numbers, *second.numbers}) == 100
    finally:
        first.close()
        second.close()


def test_three_nodes_lose_nothing_when_one_is_killed(start_kafka: StartKafka) -> None:
    cluster = start_kafka(nodes=3)
    create_topics(cluster.bootstrap, {"replicated": 3}, replication=3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "log_level": 0})
    failed: list[object] = []

    def confirm(error: object, message: object) -> None:
        if error is not None:
            failed.append(error)

    values = [b"%05d" % number for number in range(6000)]
    for number, value in enumerate(values):
        producer.produce("replicated", value, on_delivery=confirm)
        producer.poll(0)
        if number == 2000:
            cluster.kill(2)
    assert producer.flush(120) == 0

    assert failed == []
    assert sorted(cluster.pids) == [1, 3]
    assert sorted(one.value for one in read(cluster.bootstrap, "replicated", len(values))) == values
    assert until(lambda: sorted(admin.list_topics(timeout=30.0).brokers) == [1, 3])

    folder = cluster.folder
    assert folder is not None
    assert folder.is_dir()
    cluster.stop()
    assert not folder.exists()
