"""While the state of a partition is loaded, `/ready` and the log say how far it is."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from pipelines.runners.state.item import Item
from streamer.state.loading import LOG_AFTER, Loading

PIECES = [Item(f'"{number}"', 0, b"\x01") for number in range(2500)]


def test_the_reason_counts_the_pieces_that_are_loaded_and_ends_with_them() -> None:
    loading = Loading(structlog.get_logger())
    assert loading.reason is None
    with loading.of("kafka 0"):
        assert loading.reason == "the state of kafka 0 is being loaded, 0 of 0 pieces are"
        items = loading.counted({"a": PIECES[:3], "b": PIECES[3:5]})
        assert [piece.key for piece in items["a"]] == ['"0"', '"1"', '"2"']
        assert loading.reason == "the state of kafka 0 is being loaded, 3 of 5 pieces are"
        assert list(items["b"]) == PIECES[3:5]
    assert loading.reason is None


def test_the_log_says_how_far_it_is_when_it_takes_long_and_when_it_is_done() -> None:
    now = 0.0
    with capture_logs() as logs:
        loading = Loading(structlog.get_logger(), lambda: now)
        with loading.of("kafka 0"):
            for number, _ in enumerate(loading.counted({"a": PIECES})["a"]):
                now = LOG_AFTER if number >= 1500 else 0.0
    assert logs == [
        line("the state is being loaded", partition="kafka 0", loaded=2000, pieces=2500),
        line("the state is loaded", partition="kafka 0", pieces=2500, seconds=LOG_AFTER),
    ]


def test_nothing_is_logged_where_nothing_is_saved() -> None:
    with capture_logs() as logs:
        loading = Loading(structlog.get_logger())
        with loading.of("kafka 0"):
            loading.counted({})
    assert logs == []


def test_a_state_that_cannot_be_loaded_leaves_no_reason_behind() -> None:
    with capture_logs() as logs:
        loading = Loading(structlog.get_logger())
        with pytest.raises(ValueError, match="damaged"), loading.of("kafka 0"):
            raise ValueError("damaged")
    assert (loading.reason, logs) == (None, [])


def line(event: str, **fields: Any) -> dict[str, Any]:
    return {"event": event, "log_level": "info", **fields}
