"""A service run on memory connectors: what it does with topics."""

from __future__ import annotations

from pathlib import Path

import streamer
from connectors.message import Message
from streamer.definition.loading import loads
from streamer.testing.cases import Case
from streamer.testing.trial import tried

SERVICE = """
source:
  type: mqtt
  topics: factory/{line}/{machine}/load
  into: {levels.line: line, levels.machine: machine, topic: from}
  codec: json
pipeline: []
sink:
  - {type: mqtt, name: all, topic: "by-line/{line}", topics: ^by-line/, codec: json}
  - {type: mqtt, name: high, topic: "high/{machine}", topics: ^high/, codec: json, when: {load: {gt: 1}}}
"""


def test_results_whose_topic_is_made_from_values_are_in_the_report_with_it() -> None:
    service = loads(SERVICE, Path())
    report = streamer.testing.run(
        service,
        [
            Message(b'{"load": 0.5}', topic="factory/north/press-1/load"),
            Message(b'{"load": 1.5}', topic="factory/south/press-2/load"),
        ],
    )
    assert [message.topic for message in report.sinks["all"]] == ["by-line/north", "by-line/south"]
    assert [message.topic for message in report.sinks["high"]] == ["high/press-2"]
    assert report.decoded["high"] == [report.decoded["all"][1]]
    assert dict(report.results[0] or {}) == {
        "load": 0.5,
        "line": "north",
        "machine": "press-1",
        "from": "factory/north/press-1/load",
    }


def test_a_case_may_say_which_topic_its_records_come_from() -> None:
    case = Case(
        name="high",
        topic="factory/south/press-2/load",
        input={"load": 1.5},
        sink="high",
        expect={"machine": "press-2", "line": "south"},
    )
    assert tried(loads(SERVICE, Path()), case).problems == []


def test_a_case_whose_topic_no_filter_matches_has_no_levels_and_its_records_fail() -> None:
    case = Case(name="other", topic="elsewhere", input={"load": 1.5}, fails=True)
    assert tried(loads(SERVICE, Path()), case).problems == []
