"""Topics of Sparkplug: `spBv1.0/GROUP/TYPE/EDGE_NODE`, and `/DEVICE` after it for messages of devices."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from pipelines.errors import WireError

_SPACE: Final = "spBv1.0"
_CERTIFICATES: Final = f"$sparkplug/certificates/{_SPACE}/"
"""The topic prefix under which Sparkplug-aware servers retain the last births."""
LONGEST: Final = 1000
"""The most characters of a topic: those of many edge nodes are kept."""
_NODE_TYPES: Final = frozenset({"NBIRTH", "NDATA", "NDEATH", "NCMD"})
_DEVICE_TYPES: Final = frozenset({"DBIRTH", "DDATA", "DDEATH", "DCMD"})


class SparkplugTopic(NamedTuple):
    """The parts of a message's topic."""

    group: str
    message: str
    """Its type: NBIRTH, NDATA, NDEATH, NCMD, DBIRTH, DDATA, DDEATH or DCMD."""
    edge: str
    device: str
    """Empty for messages of the edge node itself."""
    kept: bool
    """Whether the server stored it and sends it again, so that it has no place in the sequence."""

    @property
    def counted(self) -> bool:
        """Whether it has a place in the sequence of its edge node: commands come from others."""
        return not self.kept and not self.message.endswith("CMD")

    @property
    def node(self) -> tuple[str, str]:
        """Group and edge node: the key of an edge node."""
        return self.group, self.edge

    @property
    def label(self) -> str:
        """Group, edge node and device, for messages to users."""
        return "/".join(filter(None, (self.group, self.edge, self.device)))


def address(topic: str) -> SparkplugTopic | None:
    """The parts of a topic; `None` for one that is not Sparkplug's.

    Raises `WireError` for one that is, and names no message of an edge node or device, or is too long.
    """
    if len(topic) > LONGEST:
        raise WireError(f"the topic has {len(topic)} characters, more than {LONGEST}")
    return _address(topic)


@lru_cache(maxsize=1 << 14)
def _address(topic: str) -> SparkplugTopic | None:
    kept = topic.startswith(_CERTIFICATES)
    space, *parts = (topic.removeprefix("$sparkplug/certificates/") if kept else topic).split("/")
    if space != _SPACE:
        return None
    if parts[:1] == ["STATE"]:
        raise WireError(
            f"a STATE message of a host is not a Sparkplug payload: it is JSON; {_SPACE}/+/+/+ and {_SPACE}/+/+/+/+ in "
            f"place of {_SPACE}/# match all other messages"
        )
    group, message, edge, device = (*parts, "", "", "", "")[:4]
    known = (message in _NODE_TYPES and len(parts) == 3) or (message in _DEVICE_TYPES and len(parts) == 4)
    if not known or not all(parts):
        raise WireError(f"{topic[:200]!r} is not a topic of Sparkplug: {_SPACE}/GROUP/TYPE/EDGE_NODE[/DEVICE]")
    return SparkplugTopic(group, message, edge, device, kept)


def command_topic(place: SparkplugTopic) -> str:
    """The topic for commands to the edge node of this message."""
    return f"{_SPACE}/{place.group}/NCMD/{place.edge}"
