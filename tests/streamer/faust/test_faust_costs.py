"""What each message of a service inside Faust would cost for nothing: decoding by Faust, and log records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import faust
import pytest
from faust.utils.terminal import Spinner, SpinnerHandler

import streamer.faust
from streamer.faust.logs import spare_records

SERVICE = """
name: numbers
source: {type: kafka, topics: [numbers]}
pipeline: {steps: [{"@type": FUNCTION, function: "builtins:dict"}]}
sink: {type: kafka, topic: results}
"""


@pytest.mark.parametrize(("key", "value"), [(b"\xff", b"\xfe"), (None, None), (b"", b"")])
def test_faust_passes_on_what_it_could_not_decode(tmp_path: Path, key: bytes | None, value: bytes | None) -> None:
    (tmp_path / "service.yaml").write_text(SERVICE)
    headers: Any = [("trace", b"1"), ("trace", b"2")]
    message = faust.types.Message("numbers", 0, 7, 1.7e9, 0, headers, key, value, None)

    async def decoded() -> Any:
        app = faust.App("orders", broker="kafka://localhost:9092", store="memory://")
        topic: Any = streamer.faust.attach(app, tmp_path / "service.yaml").channel
        return await topic.decode(message, propagate=True)

    event = asyncio.run(decoded())
    assert (event.key, event.value, event.message) == (key, value, message)


@contextmanager
def worker_logging(shown: int) -> Iterator[logging.Logger]:
    """The logger of aiokafka as Faust's worker leaves it, which shows this level: all is at DEBUG, for the sake of the
    worker's progress line. In the test itself, as pytest adds handlers of its own before it."""
    root, aiokafka = logging.getLogger(), logging.getLogger("aiokafka")
    handler = logging.StreamHandler(StringIO())
    handler.setLevel(shown)
    before = root.handlers, root.level, aiokafka.level
    root.handlers = [handler, SpinnerHandler(Spinner(StringIO()), level=logging.DEBUG)]
    root.setLevel(logging.DEBUG)
    aiokafka.setLevel(logging.NOTSET)
    try:
        yield aiokafka
    finally:
        root.handlers = before[0]
        root.setLevel(before[1])
        aiokafka.setLevel(before[2])


def test_aiokafka_makes_no_log_record_of_a_message_that_nobody_would_see() -> None:
    with worker_logging(logging.WARNING):
        sending = logging.getLogger("aiokafka.producer.producer")
        assert sending.isEnabledFor(logging.DEBUG)
        spare_records()
        assert not sending.isEnabledFor(logging.INFO)
        assert sending.isEnabledFor(logging.WARNING)


def test_a_log_that_was_asked_for_is_kept() -> None:
    with worker_logging(logging.DEBUG) as aiokafka:
        spare_records()
        assert aiokafka.isEnabledFor(logging.DEBUG)
    with worker_logging(logging.WARNING) as aiokafka:
        aiokafka.setLevel(logging.INFO)
        spare_records()
        assert aiokafka.isEnabledFor(logging.INFO)
