"""How `streamer tap` shows the values of a record."""

import json

import pytest

from connectors.codecs.registry import codec_of
from connectors.message import Message, records_of
from streamer.cli.commands.tap import _for_machines, _for_people, _seen
from streamer.observe.values import line

RECORD = b'{"tags": [1, "a", null], "big": 1180591620717411303424, "at": {"spans": [1, "a"]}, "n": 1}'


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([1, "a", None], '[1, "a", null]'),
        (2**70, "1180591620717411303424"),
        ({"a": [1, "x"], "b": None}, '{a: [1, "x"], b: null}'),
    ],
)
def test_a_value_that_no_data_can_hold_is_shown_as_json_has_it(value: object, shown: str) -> None:
    assert line(value) == shown


def test_a_record_is_shown_whatever_values_it_has() -> None:
    records = records_of([Message(RECORD), Message(b'{"n": 2}')], "t")
    first, second = _seen(records, codec_of("json"))
    texts = [text.split(maxsplit=1) for text, _ in _for_people(first)][1:]
    assert texts == [
        ["tags", '[1, "a", null]'],
        ["big", "1180591620717411303424"],
        ["at", '{spans: [1, "a"]}'],
        ["n", "1"],
    ]
    assert [text for text, _ in _for_people(second)][1:] == ["  n  2"]
    for full in (False, True):
        assert _for_machines(first, full)["value"] == json.loads(RECORD)


def test_a_value_that_is_broken_is_shown_with_the_reason_and_the_others_as_they_are() -> None:
    broken = b"\x0a\x05\x0a\x01a\x12\x00"
    (seen,) = _seen(records_of([Message(broken)], "t"), codec_of("protodata"))
    ((text, _),) = list(_for_people(seen))[1:]
    assert "cannot be read: its type is NDARRAY" in text
    assert 'key "a" cannot be read' in _for_machines(seen, False)["value"]["a"]
