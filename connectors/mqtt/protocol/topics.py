"""Topic names, topic filters, and patterns with named levels (chapter 4.7 of the standards)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from connectors.mqtt.protocol.fields import LONGEST

SHARE: Final = "$share"
_NAMED: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_REMEMBERED: Final = 65_536
_SHUNNED: Final = re.compile(
    "[\x01-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)


def why_no_name(topic: str) -> str | None:
    """Why a message cannot be published to this topic; `None` if it can."""
    if "+" in topic or "#" in topic:
        return "a topic name holds no wildcards (+, #)"
    return _why_no_text(topic)


def why_not_published(topic: str) -> str | None:
    """Why a message should not be published to this topic; `None` if it can. The standards allow a little more, which
    brokers answer by closing the connection (`why_shunned`)."""
    return why_no_name(topic) or why_shunned(topic)


def why_shunned(text: str) -> str | None:
    """Why brokers, mosquitto among them, close the connection of a client that sends this text; `None` if they do not.

    Control characters and what Unicode calls noncharacters should not be sent, and may be answered so (MQTT-1.5.4).
    """
    if (match := _SHUNNED.search(text)) is None:
        return None
    kind = "control character" if ord(match[0]) < 0xA0 else "noncharacter"
    return f"it holds a {kind} (U+{ord(match[0]):04X}), for which brokers close the connection"


def without_shunned(text: str) -> str:
    """The text with U+FFFD in place of each character for which brokers close the connection."""
    return _SHUNNED.sub("\ufffd", text)


def why_no_filter(filter: str) -> str | None:
    """Why the topic filter is invalid or refused by brokers; `None` if it is valid."""
    if reason := _why_no_text(filter):
        return reason
    if filter == SHARE or filter.startswith(f"{SHARE}/"):
        _, _, rest = filter.partition("/")
        group, slash, inner = rest.partition("/")
        if not group or "+" in group or "#" in group:
            return "a shared subscription needs a group without wildcards: $share/GROUP/FILTER"
        if not slash or not inner:
            return "a shared subscription needs a filter behind its group: $share/GROUP/FILTER"
    levels = shared(filter)[1].split("/")
    for place, level in enumerate(levels):
        if "#" in level and (level != "#" or place != len(levels) - 1):
            return "the wildcard # must be the whole last level"
        if "+" in level and level != "+":
            return "the wildcard + must be a whole level"
    return None


def _why_no_text(text: str) -> str | None:
    if not text:
        return "it is empty"
    if "\0" in text:
        return "it holds a null character (U+0000)"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "it holds half a surrogate pair, which is not valid UTF-8"
    return f"it has {size} bytes, MQTT takes at most {LONGEST}" if size > LONGEST else None


def shared(filter: str) -> tuple[str | None, str]:
    """The group of a shared subscription, `None` for any other filter, and the filter without the group."""
    if not filter.startswith(f"{SHARE}/"):
        return None, filter
    _, group, inner = filter.split("/", 2)
    return group, inner


def levels_as_values(patterns: Sequence[str], into: Mapping[str, str]) -> str | None:
    """The pattern, if it is the only one and has no wildcards, with each named level by the name of the value that
    `into` makes of it: `site/{device}` is `site/{id}` with `{levels.device: id}`.
    """
    levels = patterns[0].split("/")
    if len(patterns) != 1 or "+" in levels or "#" in levels:
        return None
    named = [_NAMED.fullmatch(level) for level in levels]
    values = [None if name is None else into.get(f"levels.{name[1]}", name[1]) for name in named]
    return "/".join(level if value is None else f"{{{value}}}" for level, value in zip(levels, values, strict=True))


def covering(template: str) -> str:
    """The filter of all topics that are made from this text: `alerts/{device}` gives `alerts/+`.

    A record's topic may have several levels, so that all levels from it on are covered.
    """
    levels: list[str] = []
    for level in re.split(r"/(?![^{]*\})", template):
        if "{" not in level:
            levels.append(level)
        elif "{record.topic}" in level:
            return "/".join([*levels, "#"])
        else:
            levels.append("+")
    return "/".join(levels)


def matches(filter: str, topic: str) -> bool:
    """Whether a (valid) topic name is matched by a (valid) filter, shared or not.

    A wildcard in the first level matches no topic that begins with `$`.
    """
    return _matcher(shared(filter)[1]).fullmatch(topic) is not None


@lru_cache(_REMEMBERED)
def _matcher(filter: str) -> re.Pattern[str]:
    return _regular_expression(filter.split("/"))


def _regular_expression(levels: Sequence[str]) -> re.Pattern[str]:
    out = "(?!\\$)" if levels[0] in ("+", "#") or _NAMED.fullmatch(levels[0]) else ""
    for place, level in enumerate(levels):
        slash = "/" if place else ""
        if level == "#":
            # The parent level is matched, too: `a/#` matches `a`.
            out += "(?:/.*)?" if place else ".*"
        elif level == "+":
            out += f"{slash}[^/]*"
        elif named := _NAMED.fullmatch(level):
            out += f"{slash}(?P<{named[1]}>[^/]*)"
        else:
            out += slash + re.escape(level)
    return re.compile(out, re.DOTALL)


class TopicPattern:
    """A topic filter with named levels: `factory/{line}/{device}/+`.

    A named level matches as `+` does; `+`, a last `#` and `$share/GROUP/` in front are as in MQTT. Raises `ValueError`
    for a pattern that is no filter, a name that comes twice, or braces that are no whole level.
    """

    __slots__ = ("_expression", "filter", "names", "pattern")

    def __init__(self, pattern: str) -> None:
        group, inner = shared(pattern) if pattern.count("/") > 1 else (None, pattern)
        levels = inner.split("/")
        matches = [_NAMED.fullmatch(level) for level in levels]
        wrong = [
            level for level, name in zip(levels, matches, strict=True) if name is None and re.search("[{}]", level)
        ]
        if wrong:
            raise ValueError(f"topic {pattern!r}: {wrong[0]!r} must be a whole level with a name, such as {{device}}")
        names = tuple(name[1] for name in matches if name is not None)
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"topic {pattern!r}: the level {{{twice[0]}}} comes twice")
        bare = "/".join("+" if name else level for level, name in zip(levels, matches, strict=True))
        self.pattern = pattern
        self.filter = bare if group is None else f"{SHARE}/{group}/{bare}"
        """The topic filter to subscribe to."""
        self.names = names
        """Names of levels, in order."""
        if reason := why_no_filter(self.filter):
            raise ValueError(f"topic {pattern!r}: {reason}")
        self._expression = _regular_expression(levels)

    def levels(self, topic: str) -> dict[str, str] | None:
        """The named levels of a topic; `None` if the pattern does not match it."""
        match = self._expression.fullmatch(topic)
        return None if match is None else match.groupdict()

    def __repr__(self) -> str:
        return f"TopicPattern({self.pattern!r})"


_NO_LEVELS: Final[Mapping[str, str]] = MappingProxyType({})


class TopicPatterns:
    """Several patterns: a topic has the named levels of all that match it; of a name that comes twice, the first.

    The levels of a topic are computed once and cached, for some 65,000 topics. Raises `ValueError` as `TopicPattern`.
    """

    __slots__ = ("_known", "filters", "names", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        self.patterns = tuple(TopicPattern(pattern) for pattern in patterns)
        self.filters = tuple(dict.fromkeys(pattern.filter for pattern in self.patterns))
        """The topic filters to subscribe to, each once."""
        self.names = tuple(dict.fromkeys(name for pattern in self.patterns for name in pattern.names))
        """Names of levels of all patterns."""
        self._known: dict[str, Mapping[str, str]] = {}

    def levels(self, topic: str) -> Mapping[str, str]:
        """The named levels of a topic, read-only; empty if no pattern matches the topic."""
        values = self._known.get(topic)
        if values is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            values = self._known[topic] = self.match(topic) or _NO_LEVELS
        return values

    def match(self, topic: str) -> dict[str, str] | None:
        """The named levels of a topic, not cached; `None` if no pattern matches the topic."""
        matched = [levels for pattern in self.patterns if (levels := pattern.levels(topic)) is not None]
        if not matched:
            return None
        return {name: level for levels in reversed(matched) for name, level in levels.items()}

    def column(self, name: str, topics: Iterable[str]) -> list[str | None]:
        """The level `name` of each of these topics, `None` where a topic has none."""
        levels = self.levels
        return [levels(topic).get(name) for topic in topics]
