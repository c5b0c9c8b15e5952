"""Fields of free options: which of them a definition may use that is not trusted.

A library that takes options by name takes more of them than this project knows: some open files, devices or other
streams, load code, or log in as the machine. Every field that passes options through is marked by `Harmless` with the
names that do nothing of the kind. Where definitions are not trusted (`streamer run --no-code`), all others are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, SecretStr

from pipelines.errors import nearest


@dataclass(frozen=True, slots=True)
class Harmless:
    """Annotates a field: `Annotated[dict[str, str], Harmless(frozenset({"crf"}), "others may write files")]`.

    The field holds options by name, lists and mappings of such options, or a single text, which is a name itself.
    """

    names: frozenset[str]
    """The options that may be used wherever the definition comes from."""
    others: str
    """What other options may do: `others may write files`."""
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The only values of some of these options."""
    inside: int = 0
    """How many lists and mappings there are around the options: 2 in a list of `{name: options}`."""

    def refused(self, value: object, key: str) -> Iterator[tuple[str, str]]:
        """The options in the field's value that are not harmless.

        The key of each, which begins with the field's own `key`, and why it is refused.
        """
        yield from self._refused(value, key, self.inside)

    def _refused(self, value: object, key: str, around: int) -> Iterator[tuple[str, str]]:
        if isinstance(value, str):
            # A string beside mappings of options, such as the name of an execution provider, is not an option.
            if not self.inside and value not in self.names:
                yield key, f'"{value}" is not known to be harmless: {self.others}{nearest(value, self.names)}'
        elif around:
            yield from (
                (name, why) for at, part in _parts(value, key) for name, why in self._refused(part, at, around - 1)
            )
        elif isinstance(value, Mapping):
            for name, option in value.items():
                if (why := self._why(str(name), option)) is not None:
                    yield f"{key}.{name}", why

    def _why(self, name: str, value: object) -> str | None:
        if name not in self.names:
            return f"is not known to be harmless: {self.others}{nearest(name, self.names)}"
        allowed = self.values.get(name)
        given = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
        return None if allowed is None or given in allowed else f"may only be {' or '.join(sorted(allowed))}"


def refused_options(config: BaseModel, key: str = "") -> dict[str, str]:
    """The options of a configuration, and of the models inside it, that are not marked as harmless.

    The key of each (`cameras.gate.options.graph`, behind `key`), and why it is refused.
    """
    return dict(_refused(config, key))


def _refused(value: object, key: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, BaseModel):
        yield from (refusal for at, part in _parts(value, key) for refusal in _refused(part, at))
        return
    for name, info in type(value).model_fields.items():
        given, at = getattr(value, name), _below(key, info.alias or name)
        marks = [mark for mark in info.metadata if isinstance(mark, Harmless)]
        for mark in marks:
            yield from mark.refused(given, at)
        if not marks:
            yield from _refused(given, at)


def _parts(value: object, key: str) -> Iterator[tuple[str, object]]:
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    return ((_below(key, part), item) for part, item in parts)


def _below(key: str, part: object) -> str:
    return f"{key}.{part}" if key else str(part)
