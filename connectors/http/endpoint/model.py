"""`ServedModel`: a service as the listener knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.counts import Counts
from connectors.http.endpoint.inbox import Inbox
from connectors.source import Served

VERSION: Final = "1"
"""The version of every model. An empty version, or none, means the current one."""


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """A service whose clients send requests to the listener: in the Open Inference Protocol a model."""

    name: str
    config: HttpSourceConfig
    served: Served
    inbox: Inbox
    counts: Counts
