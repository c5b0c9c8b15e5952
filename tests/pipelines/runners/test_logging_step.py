import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.data import Data
from pipelines.data.wirecolumn import WireColumn
from pipelines.runners.code.logging import LoggingRunner
from pipelines.runners.runner import OpenContext
from pipelines.steps.code.logging import Logging

LOGGER = "pipelines.logging"


def logged(caplog: pytest.LogCaptureFixture, datas: list[Data], **fields: Any) -> list[str]:
    batch = Batch.of(datas)
    with caplog.at_level(1, LOGGER):
        result = LoggingRunner(Logging(**fields), OpenContext()).run_batch(batch)
    assert result.batch is batch
    return caplog.messages


def test_the_keys_of_a_record_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, [Data({"a": 1, "b": "x"}), Data({"b": "y"})]) == ['"a", "b"', '"b"']
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_each_key_and_value_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    lines = logged(caplog, [Data({"a": 1, "b": "x"}), Data({"c": np.zeros(2, "f4")})], log="KEYS_AND_VALUES")
    assert lines == ['"a": 1', '"b": x', '"c": float32[2] [0. 0.]']


def test_long_values_are_shortened(caplog: pytest.LogCaptureFixture) -> None:
    datas = [Data({"a": np.zeros((1000, 1000)), "s": "x" * 5000})]
    lines = logged(caplog, datas, log="KEYS_AND_VALUES")
    assert all(len(line) < 1100 for line in lines)
    assert lines[1].endswith("... (5000 characters)")


def test_keys_that_match_the_whole_expression_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, [Data({"a1": 1, "ba1": 1, "c": 1})], key_filter_regex="a.*") == ['"ba1", "c"']


@pytest.mark.parametrize(
    ("name", "level"),
    [("ERROR", logging.ERROR), ("WARN", logging.WARNING), ("DEBUG", logging.DEBUG), ("TRACE", 5)],
)
def test_it_logs_at_the_level_asked_for(caplog: pytest.LogCaptureFixture, name: str, level: int) -> None:
    logged(caplog, [Data({"a": 1})], log_level=name)
    assert [record.levelno for record in caplog.records] == [level]


def never(entries: Sequence[bytes | None]) -> Column:
    raise AssertionError("nobody asked")


def test_nothing_is_decoded_for_keys_alone(caplog: pytest.LogCaptureFixture) -> None:
    batch = Batch({"a": WireColumn([b"1", None], never)}, 2)
    with caplog.at_level(logging.INFO, LOGGER):
        LoggingRunner(Logging(), OpenContext()).run_batch(batch)
    assert caplog.messages == ['"a"', ""]


def test_nothing_is_decoded_where_the_level_is_off(caplog: pytest.LogCaptureFixture) -> None:
    runner = LoggingRunner(Logging(log_level="DEBUG", log="KEYS_AND_VALUES"), OpenContext())
    with caplog.at_level(logging.INFO, LOGGER):
        runner.run_batch(Batch({"a": WireColumn([b"1"], never)}, 1))
        assert runner.reads == frozenset()
    assert caplog.messages == []
    with caplog.at_level(logging.DEBUG, LOGGER):
        assert runner.reads is None
