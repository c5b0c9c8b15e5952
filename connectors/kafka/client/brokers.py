"""The addresses of a Kafka connector's brokers, and the setting that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"
"""The environment variable with the brokers of connectors without `bootstrap`."""
LOCAL: Final = "localhost:9092"
"""The brokers by default."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """`host:port` of some of the brokers, separated by commas. Those of the same address are equal."""

    address: str
    origin: str = field(default="", compare=False)
    """Where the address is from, in words; empty: from `bootstrap`."""
    setting: str = field(default="bootstrap", compare=False)
    """The setting to correct, if it is wrong."""
    of_source: bool = field(default=False, compare=False)
    """Whether they are those of the service's source, for a sink that names none."""

    @classmethod
    def unnamed(cls, environment: Mapping[str, str]) -> Brokers:
        """Those of a connector without `bootstrap`. An empty variable counts as not set."""
        if address := environment.get(VARIABLE, "").strip():
            return cls(address, f"of the environment variable {VARIABLE}", VARIABLE)
        return cls(LOCAL, f"as neither bootstrap nor the environment variable {VARIABLE} is set")

    def __str__(self) -> str:
        return f"{self.address} ({self.origin})" if self.origin else self.address
