"""Whole services over records that are not alike: some lack a value, some write 30 where others write 30.5."""

from __future__ import annotations

import pytest

import pipelines
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from pipelines import Batch, Data, DenseColumn, ValueType
from pipelines.hotpath import HotPath
from streamer import testing
from streamer.definition.service import Service

pytestmark = pytest.mark.slow


@pipelines.batched
def doubled(batch: Batch) -> Batch:
    """Twice the temperature; records without one have none."""
    return batch.with_columns({"twice": DenseColumn(batch.column("t").array * 2, ValueType.DOUBLE)})


def one_by_one(data: Data) -> Data:
    """The same, record by record."""
    data["twice"] = data.get_double("t") * 2
    return data


@pytest.mark.parametrize("function", [doubled, one_by_one], ids=["batched", "plain"])
@pytest.mark.parametrize("codec", ["json", "protodata"])
def test_each_record_gets_its_own_result_or_fails_alone(codec: str, function: object, hot_path: HotPath) -> None:
    service = Service(
        name="mixed",
        source=MemorySourceConfig(topic="in", codec=codec),
        pipeline=pipelines.Sequence([function]),  # type: ignore[list-item]
        sink=MemorySinkConfig(topic="out", codec=codec),
        dead_letter=MemorySinkConfig(topic="dead"),
    )
    records = [Data({"n": n, "t": 30 if n % 10 == 0 else n + 0.5}) for n in range(200)]
    records[33] = Data({"n": 33, "u": 1.0})
    records[77] = Data({"n": 77, "t": "hot"})

    report = testing.run(service, records)

    assert report.summary.ok
    left = [data for n, data in enumerate(records) if n not in (33, 77)]
    assert report.results == [Data({**data, "twice": data["t"] * 2.0}) for data in left]
    assert [type(data["t"]) for data in report.results if data] == [type(data["t"]) for data in left]
    assert [(one.step, one.message.value) for one in report.dead] == [
        ("0:FUNCTION", testing.payload(records[n], codec)) for n in (33, 77)
    ]
    assert all('"t"' in one.error for one in report.dead)
