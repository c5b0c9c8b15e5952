"""Which hot path the parts of a service take: what the service says is handed down, and what they take is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from connectors.codecs.registry import codec_config
from connectors.codecs.wrapping import WrapperConfig
from connectors.config import ConnectorConfig
from pipelines.hotpath import HotPath, HotPathReport

Config = TypeVar("Config", bound=ConnectorConfig)


class PartHotPath(NamedTuple):
    """What one part of a service takes."""

    part: str
    """`source NAME`, `sink NAME`, `source NAME codec`, ..."""
    report: HotPathReport


def inheriting(config: Config, hot_path: HotPath) -> Config:
    """The connector with the service's choice, where it or its codec has a compiled form and leaves the choice open."""
    if hot_path == "auto":
        return config
    update: dict[str, Any] = {}
    if _leaves_open(config):
        update["hot_path"] = hot_path
    codec = _codec_inheriting(config.codec, hot_path)
    if codec is not None:
        update["codec"] = codec
    return config.model_copy(update=update) if update else config


def in_words(parts: Iterable[PartHotPath]) -> str:
    """What they take, in one line: `native`, or which of them do and why the others do not."""
    native = [one.part for one in parts if one.report.path == "native"]
    plain: dict[str, list[str]] = {}
    for part, report in parts:
        if report.path == "python":
            plain.setdefault(report.reason, []).append(part)
    if not plain:
        return "native"
    texts = [f"native: {', '.join(native)}"] if native else []
    texts += [f"python: {', '.join(names)} ({reason})" for reason, names in plain.items()]
    return "; ".join(texts)


def _codec_inheriting(setting: str | Mapping[str, Any], hot_path: HotPath) -> dict[str, Any] | None:
    """The `codec` field with the service's choice, in the codec inside of one that wraps another; `None`: as it is."""
    codec = codec_config(setting)
    given = {"type": setting} if isinstance(setting, str) else dict(setting)
    if _leaves_open(codec):
        return {**given, "hot_path": hot_path}
    inside = _codec_inheriting(codec.codec, hot_path) if isinstance(codec, WrapperConfig) else None
    return None if inside is None else {**given, "codec": inside}


def _leaves_open(config: BaseModel) -> bool:
    return "hot_path" in type(config).model_fields and "hot_path" not in config.model_fields_set
