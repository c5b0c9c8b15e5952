"""Which hot path the parts of a service take: what the service says is handed down, and what they take is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from connectors.codecs.registry import codec_config
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
    codec = codec_config(config.codec)
    if _leaves_open(codec):
        given = {"type": config.codec} if isinstance(config.codec, str) else config.codec
        update["codec"] = {**given, "hot_path": hot_path}
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


def _leaves_open(config: BaseModel) -> bool:
    return "hot_path" in type(config).model_fields and "hot_path" not in config.model_fields_set
