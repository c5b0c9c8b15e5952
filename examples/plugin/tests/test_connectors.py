"""The source and the sink keep what every source and sink promises: the tests are those of streamer's own."""

from __future__ import annotations

from typing import Any

import pytest
from connectors.contract import SinkContract, SourceContract

NO_COLUMN = "there is no column for them"


class TestSqliteSource(SourceContract):
    cannot = {
        "headers": NO_COLUMN,
        "timestamps": NO_COLUMN,
        "partitions": "a table is one lane",
        "revoke": "nobody takes a table away",
        "held": "rows that are not delivered stay in the database",
        "end": "it ends by its configuration; see below",
    }

    @pytest.fixture
    def bus(self, bus: Any) -> Any:
        return bus


class TestSqliteSink(SinkContract):
    cannot = {
        "headers": NO_COLUMN,
        "timestamps": NO_COLUMN,
        "limit": "SQLite takes up to 1 GB",
        "topics": "there is one table",
        "override": "rows are added",
        "cut": "the database is a file",
        "lose": "what is committed stays",
    }

    @pytest.fixture
    def bus(self, bus: Any) -> Any:
        return bus
