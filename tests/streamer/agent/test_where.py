"""A source's `where`: which records are run, and what becomes of those that pass by."""

from __future__ import annotations

import json
from typing import Any

import pytest

import pipelines
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from connectors.message import Message
from pipelines import Data
from streamer import testing
from streamer.definition.service import Service

pytestmark = pytest.mark.usefixtures("hot_path")

INTO = {"topic": "topic"}
LAMP = {"topic": "lamp"}


def seen(data: Data) -> Data:
    return data


def service(where: Any, codec: Any = "json", step: Any = seen, into: Any = INTO, **fields: Any) -> Service:
    return Service(
        source=MemorySourceConfig(
            topic="in", codec=codec, into=into, where=where, tombstones=fields.pop("tombstones", "forward")
        ),
        pipeline=pipelines.Sequence([step]),
        sink=MemorySinkConfig(topic="out", codec="json"),
        **{"dead_letter": MemorySinkConfig(topic="dead"), **fields},
    )


def sent(topic: str, payload: Any, **fields: Any) -> Message:
    value = payload if payload is None or isinstance(payload, bytes) else json.dumps(payload).encode()
    return Message(value, topic=topic, **fields)


def numbers(report: Any, sink: str = "memory") -> list[Any]:
    return [None if message.value is None else json.loads(message.value).get("n") for message in report.sinks[sink]]


def counts(report: Any) -> dict[str, int]:
    summary = report.summary.to_dict()
    return {name: summary[name] for name in ("ok", "dead", "dropped", "passed", "failed") if summary[name]}


@pytest.mark.parametrize("where", [LAMP, "topic not like 'br%'", ["topic <> 'bridge'", LAMP]])
def test_records_whose_topic_does_not_fit_pass_by_and_are_never_parsed(where: Any) -> None:
    given = [sent("lamp", {"n": 1}), sent("bridge", b"online"), sent("lamp", {"n": 2}), sent("bridge", b"\xff{")]
    report = testing.run(service(where), given)
    assert numbers(report) == [1, 2]
    assert counts(report) == {"ok": 2, "passed": 2}
    assert (report.dead, report.acknowledged) == ([], 4)


@pytest.mark.parametrize("where", [{"t": {"gt": 10}}, "t > 10", "t * 2 > 20"])
def test_records_whose_values_do_not_fit_pass_by(where: Any) -> None:
    given: list[Any] = [{"n": 1, "t": 9.0}, {"n": 2, "t": 20.5}, {"n": 3}, {"n": 4, "t": 30}]
    report = testing.run(service(where, into={}), given)
    assert numbers(report) == [2, 4]
    assert counts(report) == {"ok": 2, "passed": 2}
    assert report.acknowledged == 4


def test_a_value_that_only_the_condition_looks_at_is_decoded_and_passed_on() -> None:
    def without(data: Data) -> Data:
        return Data({"n": data["n"]})

    given: list[Any] = [{"n": 1, "t": 9}, {"n": 2, "t": 20}]
    report = testing.run(service({"t": {"gt": 10}}, step=without, into={}, keep=["t"]), given)
    assert [json.loads(message.value) for message in report.sinks["memory"]] == [{"n": 2, "t": 20}]


def test_all_conditions_of_a_list_have_to_hold_and_those_on_metadata_are_asked_first() -> None:
    given = [
        sent("bridge", b"online"),
        sent("lamp", {"n": 1, "t": "cold"}),
        sent("lamp", {"n": 2, "t": 5, "on": True}),
        sent("lamp", {"n": 3, "t": 50, "on": True}),
        sent("lamp", {"n": 4, "t": 50}),
    ]
    where = [{"on": True}, {"t": {"gt": 10}}, LAMP]
    report = testing.run(service(where), given)
    # The text of the first lamp is not compared: it did not fit the condition before.
    assert (numbers(report), counts(report)) == ([3], {"ok": 1, "passed": 4})


def test_a_record_that_cannot_be_compared_fails_in_where_and_its_neighbours_go_on() -> None:
    given: list[Any] = [{"n": n, "t": n} for n in range(1000)]
    given[500] = {"n": 500, "t": "warm"}
    report = testing.run(service({"t": {"ge": 990}}, into={}), given)
    assert numbers(report) == list(range(990, 1000))
    assert counts(report) == {"ok": 10, "dead": 1, "passed": 989}
    (letter,) = report.dead
    assert (letter.step, "cannot be compared" in letter.error) == ("where", True)
    assert report.acknowledged == 1000


def test_a_record_whose_metadata_cannot_be_compared_fails_in_where() -> None:
    given = [sent("lamp", {"n": 1}, key=b"\xff"), sent("lamp", b"no JSON", key=b"a"), sent("lamp", {"n": 3}, key=b"z")]
    report = testing.run(service({"id": {"gt": "k"}}, into={"key": "id"}), given)
    assert (numbers(report), counts(report)) == ([3], {"ok": 1, "dead": 1, "passed": 1})
    assert report.dead[0].step == "where"


def test_a_record_that_cannot_be_decoded_fails_though_others_pass_by() -> None:
    given = [sent("lamp", b"{"), sent("lamp", {"n": 1, "t": 1}), sent("bridge", b"{"), sent("lamp", {"n": 2, "t": 2})]
    report = testing.run(service([LAMP, {"t": 2}]), given)
    assert (numbers(report), counts(report)) == ([2], {"ok": 1, "dead": 1, "passed": 2})
    assert report.dead[0].step == "decode"


@pytest.mark.parametrize("where", [LAMP, {"n": {"lt": 0}}])
def test_a_batch_that_passes_by_altogether_is_acknowledged_and_runs_no_step(where: Any) -> None:
    def fails(data: Data) -> Data:
        raise ValueError("it was run")

    report = testing.run(service(where, step=fails), [sent("bridge", {"n": n}) for n in range(700)])
    assert (counts(report), report.acknowledged) == ({"passed": 700}, 700)


@pytest.mark.parametrize("place", [0, 699])
def test_one_record_among_many_that_pass_by_is_run(place: int) -> None:
    given = [sent("lamp" if n == place else "bridge", {"n": n}) for n in range(700)]
    report = testing.run(service(LAMP), given)
    assert (numbers(report), counts(report)) == ([place], {"ok": 1, "passed": 699})


@pytest.mark.parametrize(
    ("tombstones", "outcome"),
    [("forward", {"ok": 2}), ("skip", {"ok": 1, "dropped": 1}), ("dead_letter", {"ok": 1, "dead": 1})],
)
def test_a_tombstone_passes_by_by_its_metadata_alone(tombstones: str, outcome: dict[str, int]) -> None:
    given = [sent("lamp", None), sent("bridge", None), sent("lamp", {"n": 1, "t": 5}), sent("lamp", {"n": 2, "t": 1})]
    report = testing.run(service([LAMP, {"t": {"gt": 3}}], tombstones=tombstones), given)
    assert numbers(report) == ([None, 1] if tombstones == "forward" else [1])
    assert counts(report) == {**outcome, "passed": 2}
    assert report.acknowledged == 4


def test_what_passes_by_does_not_hide_that_most_of_the_others_fail() -> None:
    def fails(data: Data) -> Data:
        raise ValueError("broken")

    fields = {"errors": {"stop_ratio": 0.5, "over": 10, "first": 0}, "batch": {"max_records": 100}}
    given = [sent("lamp" if n % 20 == 0 else "bridge", {"n": n}) for n in range(1000)]
    report = testing.run(service(LAMP, step=fails, **fields), given, check=False)
    assert "10 of the last 10 records failed" in str(report.summary.error)


def test_all_of_the_first_that_are_run_failed_though_others_passed_by() -> None:
    def fails(data: Data) -> Data:
        raise ValueError("broken")

    given = [sent("lamp" if n % 20 == 0 else "bridge", {"n": n}) for n in range(1000)]
    fields = {"errors": {"first": 10}, "batch": {"max_records": 100}}
    report = testing.run(service(LAMP, step=fails, **fields), given, check=False)
    assert "all of the first 10 records failed" in str(report.summary.error)


def test_payloads_of_several_records_pass_by_by_their_metadata() -> None:
    given = [
        sent("lamp", [{"n": 1}, {"n": 2}]),
        sent("bridge", [{"n": 3}]),
        sent("bridge", b"x"),
        sent("lamp", [{"n": 4}]),
    ]
    report = testing.run(service(LAMP, codec={"type": "json", "each": True}), given)
    assert (numbers(report), counts(report)) == ([1, 2, 4], {"ok": 2, "passed": 2})


@pytest.mark.parametrize("where", ["1 = 2", {"topic": "none"}])
def test_a_condition_that_no_record_fits_lets_all_pass_by(where: Any) -> None:
    report = testing.run(service(where), [sent("lamp", {"n": n}) for n in range(3)])
    assert counts(report) == {"passed": 3}


def test_a_condition_on_a_time_that_is_in_the_payload_is_asked_after_decoding() -> None:
    source = MemorySourceConfig(
        topic="in", codec="json", into={"timestamp": "at"}, time={"field": "ts", "unit": "ms"}, where={"at": {"ge": 5}}
    )
    report = testing.run(service(None).model_copy(update={"source": source}), [b'{"n":1,"ts":4}', b'{"n":2,"ts":6}'])
    assert (numbers(report), counts(report)) == ([2], {"ok": 1, "passed": 1})


def test_a_record_whose_key_is_not_of_its_type_fails_and_is_not_decoded() -> None:
    source = MemorySourceConfig(topic="in", codec="json", into={"key": "id"}, key="long", where={"id": [7, 8]})
    keys = [(7).to_bytes(8), b"seven", (9).to_bytes(8), (8).to_bytes(8), None]
    given = [Message(b'{"n":1}' if n in (0, 3) else b"no JSON", key) for n, key in enumerate(keys)]
    report = testing.run(service(None).model_copy(update={"source": source}), given)
    assert (numbers(report), counts(report)) == ([1, 1], {"ok": 2, "dead": 1, "passed": 2})
    assert report.dead[0].step == "decode"


@pytest.mark.parametrize(("others", "warned"), [(0, True), (1, False)])
def test_one_warning_says_that_all_of_the_first_records_passed_by(
    others: int, warned: bool, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [sent("lamp", {"n": 0})] * others + [sent("bridge", b"x") for _ in range(500)]
    testing.run(service(LAMP, batch={"max_records": 50}), given)
    log = capsys.readouterr().err + caplog.text
    assert log.count("all records so far have passed by") == warned
    assert not warned or '"where": {"topic": "lamp"}' in log or "lamp" in log


def test_a_codec_that_remembers_sees_what_passes_by_and_does_not_fail_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.codecs.json.JsonConfig.remembers", True)
    given = [sent("bridge", b"no JSON"), sent("lamp", {"n": 1}), sent("bridge", {"n": 2}), sent("lamp", b"{")]
    report = testing.run(service(LAMP), given)
    assert (numbers(report), counts(report)) == ([1], {"ok": 1, "dead": 1, "passed": 2})
