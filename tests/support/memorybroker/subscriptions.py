"""Subscriptions by topic filter: a tree of topic levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from connectors.mqtt.protocol.packets import Subscription
from connectors.mqtt.protocol.topics import shared
from memorybroker.session import Session


@dataclass(slots=True)
class Subscribed:
    """A session's subscription."""

    session: Session
    subscription: Subscription
    identifier: int | None = None


@dataclass(slots=True)
class _Group:
    """The members of one shared subscription, which take turns."""

    members: dict[str, Subscribed] = field(default_factory=dict)
    turn: int = 0

    def next(self) -> Subscribed:
        """The next member that is connected; if none is, the next one."""
        members = list(self.members.values())
        order = [members[(self.turn + place) % len(members)] for place in range(len(members))]
        chosen = next((one for one in order if one.session.connection is not None), order[0])
        self.turn = members.index(chosen) + 1
        return chosen


@dataclass(slots=True)
class _Node:
    below: dict[str, _Node] = field(default_factory=dict)
    members: dict[str, Subscribed] = field(default_factory=dict)
    groups: dict[str, _Group] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not (self.below or self.members or self.groups)


class Subscriptions:
    """The subscriptions of all sessions."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, session: Session, subscription: Subscription, identifier: int | None = None) -> None:
        """Subscribe, or replace the subscription with the same filter."""
        group, levels = _levels(subscription.filter)
        node = self._root
        for level in levels:
            node = node.below.setdefault(level, _Node())
        members = node.members if group is None else node.groups.setdefault(group, _Group()).members
        members[session.client_id] = Subscribed(session, subscription, identifier)

    def remove(self, session: Session, filter: str) -> None:
        """Unsubscribe; nothing happens where there was no subscription."""
        group, levels = _levels(filter)
        path = [self._root]
        for level in levels:
            node = path[-1].below.get(level)
            if node is None:
                return
            path.append(node)
        if group is None:
            path[-1].members.pop(session.client_id, None)
        elif (found := path[-1].groups.get(group)) is not None:
            found.members.pop(session.client_id, None)
            if not found.members:
                del path[-1].groups[group]
        for parent, level in zip(reversed(path[:-1]), reversed(levels), strict=True):
            if parent.below[level].empty:
                del parent.below[level]

    def matching(self, topic: str) -> list[Subscribed]:
        """The subscriptions that get a message on this topic: all that match, and one member of each group."""
        found: list[Subscribed] = []
        for node in self._nodes(topic):
            found += node.members.values()
            found += [group.next() for group in node.groups.values()]
        return found

    def _nodes(self, topic: str) -> Iterator[_Node]:
        nodes = [self._root]
        for place, level in enumerate(topic.split("/")):
            # Wildcards in the first level match no topic that begins with $.
            wild = place > 0 or not topic.startswith("$")
            below: list[_Node] = []
            for node in nodes:
                if wild and (rest := node.below.get("#")) is not None:
                    yield rest
                for name in (level, "+") if wild else (level,):
                    if (next_node := node.below.get(name)) is not None:
                        below.append(next_node)
            nodes = below
        for node in nodes:
            yield node
            if (rest := node.below.get("#")) is not None:
                yield rest


def _levels(filter: str) -> tuple[str | None, list[str]]:
    group, inner = shared(filter)
    return group, inner.split("/")
