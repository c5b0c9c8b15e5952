"""The configuration of the codec `inference`."""

from __future__ import annotations

from typing import ClassVar, Literal

from connectors.codecs.config import CodecConfig
from connectors.units import Size


class InferenceConfig(CodecConfig):
    """Requests and answers of the Open Inference Protocol (KServe v2): JSON, JSON with binary tensors, messages of gRPC."""  # noqa: E501

    built_by: ClassVar[str] = "connectors.codecs.inference.codec:Inference"

    type: Literal["inference"] = "inference"
    """The type of codec."""
    form: Literal["json", "binary", "grpc"] = "json"
    """The form of results whose records are no requests, or were read by another codec. Answers to requests have the form that these ask for."""  # noqa: E501
    model: str = "model"
    """The name of the model in results whose records do not say it; by default that of the service."""
    max_bytes: Size = 64 << 20
    """Size of the largest payload; a larger one is an error of its record."""
