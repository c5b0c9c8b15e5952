"""Topic names, filters and patterns with named levels."""

from __future__ import annotations

import pytest

from connectors.mqtt.protocol.topics import (
    TopicPattern,
    TopicPatterns,
    covering,
    matches,
    shared,
    why_no_filter,
    why_no_name,
)


@pytest.mark.parametrize("topic", ["a", "/", "//", "a//b", "$SYS/x", " ", "ü/ß", "{a}", "x" * 65_535])
def test_a_topic_that_can_be_published_to(topic: str) -> None:
    assert why_no_name(topic) is None


@pytest.mark.parametrize("topic", ["", "a+", "+", "a/#", "a\0b", "\ud800", "x" * 65_536, "ü" * 32_768])
def test_a_topic_that_nobody_can_publish_to(topic: str) -> None:
    assert why_no_name(topic)


@pytest.mark.parametrize(
    "filter", ["#", "+", "a/+/b", "+/+", "/#", "a/#", "$SYS/#", "$share/g/#", "$share/g//a", "$sharex"]
)
def test_a_filter_that_can_be_subscribed_to(filter: str) -> None:
    assert why_no_filter(filter) is None


@pytest.mark.parametrize(
    "filter",
    [
        "",
        "a#",
        "a/#/b",
        "#/a",
        "a+",
        "+a/b",
        "a/+b/c",
        "a\0",
        "$share",
        "$share/",
        "$share/g",
        "$share/g/",
        "$share//a",
        "$share/g+/a",
        "$share/#/a",
        "$share/g/a#",
    ],
)
def test_a_filter_that_nobody_can_subscribe_to(filter: str) -> None:
    assert why_no_filter(filter)


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/tennis/player1/#", "sport/tennis/player10", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("sport/+", "sport/a/b", False),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "a/b", True),
        ("#", "/", True),
        ("#", "$SYS/a", False),
        ("+/a", "$SYS/a", False),
        ("$SYS/#", "$SYS/a", True),
        ("$SYS/+", "$SYS/a", True),
        ("a.b", "axb", False),
        ("a/+", "a/x\ny", True),
        ("$share/g/a/+", "a/b", True),
        ("$share/g/#", "$SYS/a", False),
        ("a", "a\n", False),
    ],
)
def test_a_filter_matches_what_the_standard_says(filter: str, topic: str, expected: bool) -> None:
    assert matches(filter, topic) is expected


def test_the_group_of_a_shared_subscription() -> None:
    assert shared("$share/g/a/b") == ("g", "a/b")
    assert shared("a/b") == (None, "a/b")


def test_a_pattern_with_named_levels_subscribes_with_wildcards_and_names_what_they_match() -> None:
    pattern = TopicPattern("factory/{line}/{device}/+")
    assert pattern.filter == "factory/+/+/+"
    assert pattern.names == ("line", "device")
    assert pattern.levels("factory/7/pump/temp") == {"line": "7", "device": "pump"}
    assert pattern.levels("factory/7/pump") is None


def test_a_pattern_may_be_shared_and_end_in_everything() -> None:
    pattern = TopicPattern("$share/g/{site}/#")
    assert pattern.filter == "$share/g/+/#"
    assert pattern.levels("a/b/c") == {"site": "a"}
    assert pattern.levels("a") == {"site": "a"}
    assert pattern.levels("$SYS/b") is None


@pytest.mark.parametrize(
    "pattern", ["a/{x}/{x}", "a/dev-{id}", "{", "a/{1x}", "a/{}", "a/#/{x}", "", "{x}{y}", "$share/g+/{x}"]
)
def test_a_pattern_that_is_none_says_what_is_wrong(pattern: str) -> None:
    with pytest.raises(ValueError, match="topic "):
        TopicPattern(pattern)


def test_a_topic_has_the_levels_of_all_patterns_that_match_it() -> None:
    patterns = TopicPatterns(["plant/+/temp", "plant/{line}/#", "{site}/{row}/temp", "plant/{row}/+"])
    assert dict(patterns.levels("plant/a/temp")) == {"line": "a", "site": "plant", "row": "a"}
    assert dict(patterns.levels("plant/b/x")) == {"line": "b", "row": "b"}
    assert TopicPatterns(["plant/+"]).match("plant/a") == {}
    assert patterns.match("site/b") is None


def test_of_a_level_with_two_values_the_first_pattern_counts() -> None:
    patterns = TopicPatterns(["a/{x}/+", "a/{y}/#", "a/+/{x}"])
    assert patterns.filters == ("a/+/+", "a/+/#")
    assert patterns.names == ("x", "y")
    topics = ["a/1/2", "a/1/2/3", "b"]
    assert [dict(patterns.levels(topic)) for topic in topics] == [{"x": "1", "y": "1"}, {"y": "1"}, {}]
    assert patterns.column("x", topics) == ["1", None, None]


def test_the_cache_of_topics_is_bounded() -> None:
    patterns = TopicPatterns(["{x}"])
    for number in range(70_000):
        assert patterns.levels(str(number)) == {"x": str(number)}
    assert len(patterns._known) <= 65_536


@pytest.mark.parametrize(
    ("template", "filter"),
    [
        ("alerts/{device}", "alerts/+"),
        ("{line}/x-{device}/{a}{b}/end", "+/+/+/end"),
        ("{record.topic}-out", "#"),
        ("answers/{record.topic}/x", "answers/#"),
        ("a/{record.levels.device}", "a/+"),
        ("plain/topic", "plain/topic"),
    ],
)
def test_a_filter_covers_all_topics_that_are_made_from_values(template: str, filter: str) -> None:
    assert covering(template) == filter
