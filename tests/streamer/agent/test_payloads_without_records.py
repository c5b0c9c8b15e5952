"""Payloads that hold no record for their codec: they pass by, counted and acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack
import pytest

from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from pipelines import Data
from streamer import testing
from streamer.definition.service import Service
from streamer.testing.running import ServiceFailed

pytestmark = pytest.mark.usefixtures("hot_path")

NONE = b'{"m": null}'


def run(payloads: Sequence[Any], codec: Any, *, where: Any = None, tombstones: Any = "forward", **fields: Any) -> Any:
    service = Service(
        name="inside",
        source=MemorySourceConfig(topic="in", codec=codec, where=where, tombstones=tombstones),
        pipeline={"steps": [{"@type": "FUNCTION", "function": f"{__name__}:doubled"}]},
        sink=MemorySinkConfig(topic="out", codec="json"),
        dead_letter=MemorySinkConfig(topic="dead"),
        **fields,
    )
    return testing.run(service, payloads)


def doubled(data: Data) -> Data:
    return Data({"n": data.get_int64("n") * 2})


def counts(report: Any) -> dict[str, int]:
    summary = report.summary.to_dict()
    return {name: summary[name] for name in ("ok", "dead", "dropped", "passed", "failed") if summary[name]}


def values(report: Any) -> list[Any]:
    return [message.value for message in report.sinks["memory"]]


def test_null_where_the_record_is_passes_by_beside_records_failures_and_tombstones() -> None:
    payloads = [NONE, b'{"m": {"n": 1}}', None, b"{}", NONE, b'{"m": {"n": "x"}}', b'{"m": {"n": 2}}', NONE]
    report = run(payloads, {"type": "json", "at": "/m"})
    assert values(report) == [b'{"n":2}', None, b'{"n":4}']
    assert [letter.message.value for letter in report.dead] == [b"{}", payloads[5]]
    assert counts(report) == {"ok": 3, "dead": 2, "passed": 3}
    assert report.acknowledged == len(payloads)
    report = run(payloads, {"type": "json", "at": "/m"}, tombstones="skip")
    assert counts(report) == {"ok": 2, "dead": 2, "dropped": 1, "passed": 3}


def test_payloads_without_any_record_in_their_list_pass_by() -> None:
    payloads = [b'{"m": []}', b'{"m": [{"n": 1}, {"n": 2}]}', NONE, b'{"m": [{"n": 3}]}', b'{"m": [{"n": 4}, {}]}']
    report = run(payloads, {"type": "json", "at": "/m", "each": True})
    # A record of which one part failed has failed, whatever its other parts gave.
    assert values(report)[:3] == [b'{"n":2}', b'{"n":4}', b'{"n":6}']
    assert counts(report) == {"ok": 2, "dead": 1, "passed": 2}
    assert report.acknowledged == len(payloads)
    lists: list[Any] = [{"m": None}, {"m": [{"n": 1}]}, {"m": []}]
    packed = [msgpack.packb(payload) for payload in lists]
    report = run(packed, {"type": "msgpack", "at": "/m", "each": True})
    assert (values(report), counts(report)) == ([b'{"n":2}'], {"ok": 1, "passed": 2})


@pytest.mark.parametrize("guarantee", ["at_most_once", "at_least_once", "exactly_once"])
def test_a_batch_in_which_all_pass_by_is_acknowledged(guarantee: str) -> None:
    report = run([NONE] * 50, {"type": "json", "at": "/m"}, delivery=guarantee, batch={"max_records": 8})
    assert (values(report), counts(report), report.acknowledged) == ([], {"passed": 50}, 50)


def test_what_passes_by_hides_no_failures() -> None:
    payloads = [payload for number in range(20) for payload in (NONE, NONE, NONE, b'{"m": {"n": "x"}}')]
    with pytest.raises(ServiceFailed, match="failed in 0:FUNCTION"):
        run(payloads, {"type": "json", "at": "/m"}, errors={"stop_ratio": 0.5, "over": 10, "first": 0})


def test_conditions_are_asked_about_the_record_that_is_inside() -> None:
    payloads = [b'{"m": {"n": 1}, "s": "b"}', b'{"m": {"n": 2}, "s": "a"}', NONE, b'{"m": {"n": 3}}']
    codec = {"type": "json", "at": "/m", "outer": {"site": "/s"}}
    report = run(payloads, codec, where=[{"n": {"gt": 1}}, {"site": "a"}])
    assert (values(report), counts(report)) == ([b'{"n":4}'], {"ok": 1, "passed": 3})
