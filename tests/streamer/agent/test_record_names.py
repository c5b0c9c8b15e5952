"""What a source's records say besides what all records say: into values, into topics, into dead letters."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pytest
from pydantic import ValidationError

import pipelines
from connectors.config import Addressing
from connectors.memory import MemorySinkConfig, MemorySourceConfig
from connectors.message import Message
from pipelines import Data
from streamer import testing
from streamer.definition.service import Service


class BusConfig(MemorySourceConfig):
    """A bus with topics of three levels, of which the second may have a name."""

    type: Literal["bus"] = "bus"  # type: ignore[assignment]
    record_columns: ClassVar[tuple[str, ...]] = ("levels.NAME", "qos", "correlation")
    levels: tuple[str, ...] = ("line",)

    @property
    def record_names(self) -> tuple[str, ...]:
        """With the levels that it names."""
        return (*(f"levels.{level}" for level in self.levels), "qos", "correlation")


def seen(data: Data) -> Data:
    assert data.record is not None
    if data.get("fail", False):
        raise ValueError("no")
    values = {name: data[name] for name in ("line", "qos", "id") if name in data}
    return Data({**values, "of": data.record.topic, "said": data.record.extras["qos"]})


def service(into: dict[str, str], sink: Any = None, **options: Any) -> Service:
    return Service(
        name="names",
        source=BusConfig(topic="in", into=into, **options),
        pipeline=pipelines.Sequence([seen]),
        sink=sink or {"type": "memory", "topic": "out"},
        dead_letter={"type": "memory", "topic": "dead"},
    )


def record(line: str, qos: int, *, fail: bool = False) -> Message:
    return Message(
        Data({"fail": fail}).to_bytes(), topic=f"factory/{line}/press", extras=(("levels.line", line), ("qos", qos))
    )


def test_metadata_of_mqtt_becomes_values_and_is_known_to_functions() -> None:
    built = service({"levels.line": "line", "qos": "qos", "correlation": "id"})
    report = testing.run(built, [record("a", 1), record("b", 0)])
    assert [dict(one) for one in report.results if one] == [
        {"line": "a", "qos": 1, "of": "factory/a/press", "said": 1},
        {"line": "b", "qos": 0, "of": "factory/b/press", "said": 0},
    ]


def test_a_dead_letter_keeps_topic_and_what_its_source_said() -> None:
    (dead,) = testing.run(service({}), [record("a", 1), record("b", 2, fail=True)]).dead
    assert (dead.origin.topic, dead.origin.record) == ("factory/b/press", {"levels.line": "b", "qos": 2})


class TopicsConfig(MemorySinkConfig):
    """A sink whose topic may be made from values."""

    type: Literal["topics"] = "topics"  # type: ignore[assignment]
    topics: tuple[str, ...] = ("^factory/",)

    @property
    def addressing(self) -> Addressing:
        return Addressing(self.topic, self.topics)


def test_topics_are_made_from_it_and_a_record_without_it_is_a_dead_letter() -> None:
    built = service({}, TopicsConfig(topic="factory/{record.levels.line}/alerts"))
    nowhere = Message(Data({"fail": False}).to_bytes(), extras=(("qos", 0),))
    report = testing.run(built, [record("a", 1), nowhere, record("b", 0)])
    assert [message.topic for message in report.sinks["topics"]] == ["factory/a/alerts", "factory/b/alerts"]
    assert [dead.origin.offset for dead in report.dead] == [1]
    assert 'needs the value "record.levels.line"' in report.dead[0].error


@pytest.mark.parametrize(
    "topic", ["factory/{record.levels.lime}", "factory/{record.levels.}", "factory/{record.frame}"]
)
def test_a_topic_of_a_name_that_no_source_declares_is_refused(topic: str) -> None:
    with pytest.raises(ValidationError, match=r"a record has no .*there are key, .*, levels.line, qos, correlation"):
        service({}, TopicsConfig(topic=topic))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("qso", 'did you mean "qos"?'),
        ("level.line", 'did you mean "levels.line"?'),
        ("levels.lime", 'did you mean "levels.line"?'),
        ("levels.", "levels.NAME"),
        (
            "frame",
            "; there are key, timestamp, topic, partition, offset, source, levels.NAME, qos, correlation, key.NAME and "
            "headers.NAME",
        ),
    ],
)
def test_a_value_of_a_name_that_the_source_does_not_declare_is_refused(name: str, said: str) -> None:
    with pytest.raises(ValidationError, match="is not metadata of a record") as refused:
        service({name: "value"})
    assert said in str(refused.value)


def test_metadata_of_mqtt_is_refused_for_other_sources() -> None:
    with pytest.raises(
        ValidationError, match=r'"qos" is not metadata of a record; there are key.*source, key.NAME and headers.NAME'
    ):
        MemorySourceConfig(topic="in", into={"qos": "qos"})
