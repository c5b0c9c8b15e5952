"""`ServedModel`: a service as the listener knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from connectors.codecs.registry import codec_config
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.counts import Counts
from connectors.http.endpoint.inbox import Inbox
from connectors.source import Served

VERSION: Final = "1"
"""The version of every model. An empty version, or none, means the current one."""
INFERENCE: Final = "inference"


@dataclass(slots=True, eq=False)
class ServedModel:
    """A service whose clients send requests to the listener: in the Open Inference Protocol a model."""

    name: str
    config: HttpSourceConfig
    served: Served
    inbox: Inbox
    counts: Counts
    codec: str = field(init=False)
    """The type of the codec that reads the bodies."""

    def __post_init__(self) -> None:
        self.codec = codec_config(self.config.codec).type

    @property
    def speaks_inference(self) -> bool:
        """Whether its requests are those of the Open Inference Protocol."""
        return self.codec == INFERENCE
