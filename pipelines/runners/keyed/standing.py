"""`Standing`: the state of one key for CHANGE, and what may become its next."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from pipelines.runners.state.recordkeys import distinct, plain

LOW = distinct(False)
"""The state of a key whose values are booleans, before the first."""


class Rules(NamedTuple):
    """What counts as news. Times are milliseconds."""

    records: int
    """How many records in a row a new state has to last."""
    span: int | None
    """How long a new state has to last, in place of `records`."""
    remind: int | None
    """How often a state that lasts is news again; `None`: it is not."""
    calm: Collection[Any]
    """The states that nobody is reminded of."""


@dataclass(frozen=True, slots=True)
class News:
    """A change of the state, or a reminder of it, where `state` is `before`."""

    state: Any
    before: Any
    """The state before; `None`: none was known."""
    since: int
    """When the state began, in milliseconds."""
    count: int
    """The records of the key since then."""


@dataclass(slots=True)
class Standing:
    """A key's state, a text, an integer or a boolean made `distinct`, and a state that has not lasted long enough.

    Times are milliseconds, those of the key's own records, which may come in any order.
    """

    state: Any
    """`None`: no record came, or none that has lasted."""
    since: int = 0
    count: int = 0
    """Records since the state began; counted where it is reminded of."""
    reported: int = 0
    """When the state was news last."""
    pending: Any = None
    """The state that may be next; `None`: none."""
    first: int = 0
    """When that began."""
    seen: int = 0
    """Its records."""

    def reminded(self, rules: Rules) -> bool:
        """Whether this state is news again after a while."""
        return rules.remind is not None and self.state is not None and self.state not in rules.calm

    def heard(self, value: Any, time: int, rules: Rules) -> News | None:
        """The news that a record makes; `value` is a state, or `None` for the one that is."""
        if self.state is None and type(value) is type(LOW):
            self.state, self.since = LOW, time
        if self.reminded(rules):
            self.count += 1
        if value is None or value == self.state:
            self.pending = None
            return self._stayed(time, rules)
        if value != self.pending:
            self.pending, self.first, self.seen = value, time, 0
        self.first = min(self.first, time)
        self.seen += 1
        lasted = self.seen >= rules.records if rules.span is None else time - self.first >= rules.span
        return self._changed(time) if lasted else None

    def saved(self) -> list[Any]:
        """What is known, as values of JSON."""
        state, pending = plain(self.state), plain(self.pending)
        return [state, self.since, self.count, self.reported, pending, self.first, self.seen]

    @classmethod
    def load(cls, saved: list[Any]) -> Standing:
        """Of what `saved` gave. Raises `ValueError` if that is damaged."""
        try:
            state, *numbers, pending, first, seen = saved
            since, count, reported, first, seen = map(int, (*numbers, first, seen))
        except TypeError as error:
            raise ValueError(str(error)) from None
        for value in (state, pending):
            if not (value is None or isinstance(value, (str, int))):
                raise ValueError(f"a state is a {type(value).__name__}")
        return cls(distinct(state), since, count, reported, distinct(pending), first, seen)

    def _stayed(self, time: int, rules: Rules) -> News | None:
        # A clock that was ahead, and is right again, must not silence a key.
        if rules.remind is None or not self.reminded(rules) or abs(time - self.reported) < rules.remind:
            return None
        self.reported = time
        return News(plain(self.state), plain(self.state), self.since, self.count)

    def _changed(self, time: int) -> News:
        before = self.state
        self.state, self.since, self.count, self.reported = self.pending, self.first, self.seen, time
        self.pending = None
        return News(plain(self.state), plain(before), self.since, self.count)
