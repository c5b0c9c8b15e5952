"""The base of codecs that open an envelope and leave its content to an inner codec, and of their configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import field_validator

from connectors.codec import Codec, Request
from connectors.codecs.config import CodecConfig
from connectors.codecs.registry import codec_config
from connectors.measures import Measure
from connectors.source import Served
from pipelines.errors import DefinitionError
from pipelines.hotpath import HotPathReport


class WrapperConfig(CodecConfig):
    """A codec around another codec, which takes its service's choice of a hot path."""

    codec: str | dict[str, Any] = "protodata"
    """The codec of the content: its name, or `{type: NAME, OPTION: ...}`."""

    @field_validator("codec")
    @classmethod
    def _known(cls, codec: str | dict[str, Any]) -> str | dict[str, Any]:
        try:
            inside = codec_config(codec)
        except DefinitionError as error:
            raise ValueError(str(error)) from error
        if inside.carries != "bytes":
            raise ValueError(f"the codec {inside.type} gives objects, not bytes that could be wrapped")
        return codec

    @property
    def wrapped(self) -> CodecConfig:
        """The configuration of the inner codec."""
        return codec_config(self.codec)


class Wrapper(Codec):
    """A codec around an inner one. The inner codec has all properties that are not about the envelope."""

    def __init__(self, inside: Codec) -> None:
        self._inside = inside

    def serves(self, served: Served) -> None:
        """As `Codec.serves`, of the inner codec."""
        self._inside.serves(served)

    @property
    def opens_images(self) -> bool:  # type: ignore[override]
        """Whether the inner codec opens images."""
        return self._inside.opens_images

    @property
    def hot_path(self) -> HotPathReport:
        """The hot path of the inner codec."""
        return self._inside.hot_path

    def metrics(self) -> Sequence[Measure]:
        """The metrics of the inner codec."""
        return self._inside.metrics()

    def requests(self) -> Sequence[Request]:
        """The requests of the inner codec."""
        return self._inside.requests()
