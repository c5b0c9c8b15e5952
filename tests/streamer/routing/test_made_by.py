"""Results name the version that made them."""

from __future__ import annotations

import numpy as np

from pipelines import Batch, Data
from streamer.models.choosing import Chosen
from streamer.routing.madeby import MadeBy

VERSIONS = [("3", "current"), ("2", "next")]


def test_each_row_names_its_own_version_whichever_call_it_was_in_and_in_whatever_order() -> None:
    made_by = MadeBy()
    calls = [
        Chosen(range(10, 13), np.array([0, 1, 0]), VERSIONS),
        Chosen(np.array([15, 13, 14]), np.array([1, 0, 0]), VERSIONS),
        Chosen(range(0), np.zeros(0, np.int64), VERSIONS),
        Chosen(range(16, 18), 1, VERSIONS),
    ]
    made_by.chosen(calls)
    batch = Batch.of([Data() for _ in range(8)], 10)
    expected = ["3", "2", "3", "3", "3", "2", "2", "2"]
    assert made_by.labels(batch) == expected
    assert made_by.labels(batch.take([5, 0, 0])) == ["2", "3", "3"]
    headers = [dict(each) for each in made_by.headers(batch) or ()]
    assert [each["streamer-version"].decode() for each in headers if each["streamer-version"]] == expected
    assert headers[1]["streamer-variant"] == b"next"


def test_where_one_version_runs_all_rows_share_a_header_or_have_none() -> None:
    made_by, batch = MadeBy(), Batch.of([Data(), Data()])
    assert made_by.headers(batch) is None
    made_by.label = "7"
    assert list(made_by.headers(batch) or ()) == [(("streamer-version", b"7"),)] * 2
    assert made_by.labels(batch) is None
