"""When the compiled bridge to Kafka's clients gives way to plain Python, and that it says so."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import cimpl
from kafkatopics import Topics

from connectors.kafka.client import bridge
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.message import Message, block_of
from connectors.records import Records
from pipelines import hotpath
from pipelines.errors import ConnectorError
from pipelines.hotpath import HotPath, HotPathError
from streamer.devbroker import Broker

PATIENCE = 60.0


def soon() -> float:
    return time.monotonic() + PATIENCE


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has said nothing yet, and in which nothing is chosen."""
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)
    monkeypatch.setattr(bridge, "_said", set())


def opened(kafka: Broker, topic: str, hot_path: HotPath = "auto", **fields: Any) -> tuple[Any, Any]:
    """A source and a sink, open."""
    reading = KafkaSourceConfig.model_validate(
        {"bootstrap": kafka.bootstrap, "topics": topic, "group": topic, **fields}
    )
    writing = KafkaSinkConfig.model_validate({"bootstrap": kafka.bootstrap, "topic": topic, **fields})
    with hotpath.choosing(hot_path):
        source, sink = reading.build(), writing.build()
    source.open()
    sink.open()
    return source, sink


def falls_back(kafka: Broker, topic: str, reason: str, caplog: pytest.LogCaptureFixture, **fields: Any) -> None:
    """Records go through plain Python, the log says why, once, and `native` raises an error."""
    with caplog.at_level(logging.WARNING, "connectors.kafka.client.bridge"):
        source, sink = opened(kafka, topic, **fields)
        assert source.hot_path == sink.hot_path == hotpath.HotPathReport("python", source.hot_path.reason)
        assert reason in source.hot_path.reason
        assert sink.send(block_of([Message(b"through")]), soon()) == {}
        assert sink.barrier(soon()) == {}
        sink.close()
        records = Records.empty("none")
        deadline = soon()
        while not len(records) and time.monotonic() < deadline:
            records = source.poll(1, 1000, 0.1)
        assert list(records.values) == [b"through"]
        source.close()
    assert len([record for record in caplog.records if reason in record.getMessage()]) == 1
    with pytest.raises(HotPathError, match="cannot be used"):
        opened(kafka, topic, hot_path="native", **fields)


@pytest.mark.usefixtures("fresh")
def test_without_the_extension_records_go_through_plain_python(
    kafka: Broker, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hotpath, "_extension", lambda: "it was not built")
    source, sink = opened(kafka, topics(1))
    assert source.hot_path == sink.hot_path == ("python", "it was not built")
    source.close()
    sink.close()
    with pytest.raises(HotPathError, match="it was not built"):
        opened(kafka, topics(1), hot_path="native")


@pytest.mark.usefixtures("fresh", "native")
def test_plain_python_can_be_chosen_for_a_connector(kafka: Broker, topics: Topics) -> None:
    topic = topics(1)
    source, sink = opened(kafka, topic, hot_path="python")
    assert source.hot_path == sink.hot_path == ("python", "hot_path: python")
    source.close()
    sink.close()
    source, sink = opened(kafka, topic, hot_path="native")
    assert source.hot_path == sink.hot_path == ("native", "")
    source.close()
    sink.close()


@pytest.mark.usefixtures("fresh", "native")
def test_an_untested_version_of_librdkafka_is_only_used_by_those_who_insist(
    kafka: Broker, topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bridge, "TESTED", ((1, 0, 0), (1, 9, 255)))
    topic = topics(1)
    with caplog.at_level(logging.WARNING, "connectors.kafka.client.bridge"):
        source, sink = opened(kafka, topic)
        assert "not among the tested versions" in source.hot_path.reason
        source.close()
        sink.close()
        source, sink = opened(kafka, topic, hot_path="native")
        assert source.hot_path.path == sink.hot_path.path == "native"
        source.close()
        sink.close()
    # The clients have loggers of their own, and may have something to say about the brokers.
    assert len([record for record in caplog.records if record.name == bridge.__name__]) == 2


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (OSError("librdkafka has no rd_kafka_queue_forward"), "has no rd_kafka_queue_forward"),
        ((0x02100000, False), "built without plug-ins"),
    ],
)
def test_a_library_that_lacks_something_is_used_from_plain_python(
    kafka: Broker,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: Any,
    reason: str,
) -> None:
    other = ModuleType("other")

    def load(path: str) -> tuple[int, bool]:
        assert path == cimpl.__file__
        if isinstance(answer, OSError):
            raise answer
        found: tuple[int, bool] = answer
        return found

    other.kafka_load = load  # type: ignore[attr-defined]
    monkeypatch.setattr(hotpath, "_extension", lambda: other)
    falls_back(kafka, topics(1), reason, caplog)


def test_a_library_that_is_none_of_kafkas_is_told_by_what_it_lacks(native: ModuleType, tmp_path: Path) -> None:
    # Not in this process, where the right one has been found.
    program = (
        "import _ctypes; from streamer_native import _native\n"
        "for path in (_ctypes.__file__, '/nowhere/lib.so'):\n"
        "    try: _native.kafka_load(path)\n"
        "    except OSError as error: print(error)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    first, second = found.stdout.splitlines()
    assert first.startswith("librdkafka has no rd_kafka_")
    assert "/nowhere/lib.so is not loaded" in second


PLUGIN = """
int conf_init(void *conf, void **opaque, char *text, unsigned long size) { %s }
"""


def plugin(folder: Path, body: str) -> str:
    """A plug-in of the user's own."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) on the PATH")
    source, library = folder / "plugin.c", folder / "plugin.so"
    source.write_text(PLUGIN % body)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True, timeout=120)
    return str(library)


@pytest.mark.usefixtures("fresh", "native")
def test_a_plug_in_of_the_users_own_is_loaded_too(kafka: Broker, topics: Topics, tmp_path: Path) -> None:
    mark = tmp_path / "loaded"
    # A program that only opens a file when it is called.
    library = plugin(tmp_path, f'extern int creat(const char *, unsigned); creat("{mark}", 0600); return 0;')
    source, sink = opened(kafka, topics(1), client={bridge.PLUGINS: library}, hot_path="native")
    assert source.hot_path.path == sink.hot_path.path == "native"
    assert mark.exists()
    source.close()
    sink.close()


@pytest.mark.usefixtures("fresh", "native")
def test_where_ours_cannot_be_loaded_the_client_is_made_without_it(
    kafka: Broker, topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, native: ModuleType
) -> None:
    monkeypatch.setattr(native, "__file__", "/nowhere/at;all.so")
    falls_back(kafka, topics(1), "no path with a semicolon", caplog)
    monkeypatch.setattr(native, "__file__", "/nowhere/at-all.so")
    caplog.clear()
    falls_back(kafka, topics(1), "it cannot join the client", caplog)


@pytest.mark.usefixtures("fresh", "native")
def test_a_users_plug_in_that_cannot_be_loaded_is_the_users_mistake(kafka: Broker, topics: Topics) -> None:
    with pytest.raises(ConnectorError, match=r"plugin\.library\.paths|nowhere"):
        opened(kafka, topics(1), client={bridge.PLUGINS: "/nowhere/mine.so"})
