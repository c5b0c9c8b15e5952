"""`Measure`: a number that a connector counts itself, which a service exports with its own metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from pipelines.errors import DefinitionError
from pipelines.observe.meters import Reading

_OTHERS: Final = re.compile(r"[^a-z0-9_]")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Measure:
    """A counter (it only grows while the connector lives) or a gauge, and its value now.

    Attributes:
        name: The counted thing and its unit, in small letters, digits and `_`: `sessions_lost`, `window_records`. A
            service exports it as `streamer_<type of the connector>_<name>`, a counter with `_total` behind it.

    Raises:
        DefinitionError: The name of the measure or of a label is invalid.
    """

    name: str
    text: str
    """A sentence that describes it."""
    value: float
    kind: Literal["counter", "gauge"] = "counter"
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that tell measures of one name apart, such as `{"camera": "gate"}`; measures of one name have the same
    label names. The service adds `service` and `part`."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.endswith("_total"):
            raise DefinitionError(
                f'invalid measure name "{self.name}": small letters, digits and _, without _total at the end'
            )
        for label in self.labels:
            if not _NAME.fullmatch(label) or label in ("service", "part"):
                raise DefinitionError(
                    f'invalid label name "{label}" of "{self.name}": small letters, digits and _, and neither '
                    "service nor part"
                )

    def reading(self, type_name: str, part: str) -> Reading:
        """The metric that a service exports.

        Args:
            type_name: The connector's type in the service file.
            part: The value of the label `part`: `source NAME` or `sink NAME`.
        """
        name = f"streamer_{_OTHERS.sub('_', type_name.lower())}_{self.name}"
        values = (part, *self.labels.values())
        return Reading(name, self.text, self.kind, ("part", *self.labels), [(values, float(self.value))])
