"""Consumer groups of a memory topic: the members that read its partitions, and the acknowledged positions."""

from __future__ import annotations

from collections.abc import Sequence


class Group:
    """Shares the partitions of a topic among the members that joined. Guarded by the topic's `changed`.

    A partition goes to a new owner only after the old one released it, left, or was expelled, so that no two
    members ever read the same one.
    """

    def __init__(self, starts: Sequence[int]) -> None:
        self.acknowledged = list(starts)
        self.members: list[object] = []
        self.owners: dict[int, object] = {}

    def join(self, member: object) -> None:
        """The member joins, and gets its share from now on."""
        if member not in self.members:
            self.members.append(member)

    def leave(self, member: object) -> None:
        """The member leaves, and its partitions are free."""
        if member in self.members:
            self.members.remove(member)
        self.owners = {partition: owner for partition, owner in self.owners.items() if owner is not member}

    expel = leave
    """End the membership as a session timeout does: the member notices it at its next poll, and joins again."""

    def share(self, member: object) -> set[int]:
        """The partitions that this member should own."""
        if member not in self.members:
            return set()
        return set(range(self.members.index(member), len(self.acknowledged), len(self.members)))

    def owned(self, member: object) -> set[int]:
        """The partitions that this member owns."""
        return {partition for partition, owner in self.owners.items() if owner is member}

    def release(self, member: object, partition: int) -> None:
        """Take this partition from the member, so that another one may own it."""
        if self.owners.get(partition) is member:
            del self.owners[partition]

    def claim(self, member: object) -> list[int]:
        """Take the free partitions of its share, and return them."""
        free = sorted(self.share(member) - self.owners.keys())
        self.owners.update(dict.fromkeys(free, member))
        return free

    def is_complete(self) -> bool:
        """Whether every partition has an owner."""
        return len(self.owners) == len(self.acknowledged)

    def acknowledge(self, partition: int, position: int) -> None:
        """All messages below the position are done. Positions do not go back."""
        self.acknowledged[partition] = max(self.acknowledged[partition], position)
