"""`WrapperConfig`: the configuration of a codec that opens an envelope and leaves what is inside to another codec."""

from __future__ import annotations

from typing import Any

from pydantic import field_validator

from connectors.codecs.config import CodecConfig
from connectors.codecs.registry import codec_config
from connectors.compiledform import HasCompiledForm
from pipelines.errors import DefinitionError


class WrapperConfig(HasCompiledForm, CodecConfig):
    """A codec around another codec, which takes its service's choice of a hot path."""

    codec: str | dict[str, Any] = "protodata"
    """The codec of what is inside: its name, or `{type: NAME, OPTION: ...}`."""

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
        """The configuration of the codec inside."""
        return codec_config(self.codec)
