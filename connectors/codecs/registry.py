"""The codecs that are installed: ours, which are found in this package, and those of plug-ins.

A plug-in puts its configuration model (a `connectors.codecs.config.CodecConfig`) into the entry-point group
`streamer.codecs`; the entry's name is the codec's name in service files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from connectors.codec import Codec
from connectors.codecs.config import CodecConfig
from connectors.codecs.guarded import Guarded
from pipelines.definitions.document import Document
from pipelines.definitions.validation import definition_error
from pipelines.errors import DefinitionError
from pipelines.plugins.catalog import Catalog, class_of, types_of
from pipelines.plugins.requirements import required

CODECS: Final[Catalog[type[CodecConfig]]] = Catalog(
    "codec", "streamer.codecs", class_of(CodecConfig), types_of, "connectors.codecs", by_entry=True
)
"""Codecs by the name or `type` of a service file's `codec`."""


def codec_of(setting: str | Mapping[str, Any], topic: str | None = None) -> Codec:
    """The codec of a `codec` field: a name, or `{type: NAME, OPTION: ...}`.

    It is `Guarded`: an exception that it raises fails one record. `topic` is that of its sink, by which it may look for
    a schema.

    Raises:
        DefinitionError: Unknown codec or option.
        NameClash: Two plug-ins have one name.
        MissingPackageError: A package that it needs is not installed.
    """
    config = codec_config(setting)
    required(config.needs).check(f"the codec {config.type}")
    if topic is not None:
        config = config.with_sink_topic(topic)
    return Guarded(config.build(), config.type)


def codec_config(setting: str | Mapping[str, Any]) -> CodecConfig:
    """The configuration of the codec that a `codec` field means. Raises as `codec_of` does."""
    fields = {"type": setting} if isinstance(setting, str) else dict(setting)
    name = fields.get("type")
    if not isinstance(name, str):
        raise DefinitionError("codec: type is missing; write the name of a codec, or {type: NAME, OPTION: ...}")
    model = CODECS.get(name)
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise definition_error(error, Document(fields, prefix=("codec",)), model) from error


def anchored(setting: str | Mapping[str, Any], base: Path) -> str | dict[str, Any]:
    """The same setting with its paths, and those of a codec inside, starting at `base`: it is read again later."""
    if isinstance(setting, str):
        return setting
    model = CODECS.get(str(setting["type"])).model_validate(dict(setting), context={"base": base})
    anchored_setting = _with_paths(setting, model)
    if model.wrapped is not None and "codec" in setting:
        anchored_setting["codec"] = anchored(setting["codec"], base)
    return anchored_setting


def _with_paths(fields: Mapping[str, Any], model: BaseModel) -> dict[str, Any]:
    resolved = dict(fields)
    for name, info in type(model).model_fields.items():
        key, value = info.alias or name, getattr(model, name)
        if key not in fields:
            continue
        if isinstance(value, Path):
            resolved[key] = str(value)
        elif isinstance(value, BaseModel) and isinstance(fields[key], Mapping):
            resolved[key] = _with_paths(fields[key], value)
    return resolved
