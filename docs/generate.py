"""The parts of the reference pages that are written from the models that read service files and pipelines.

    python docs/generate.py           writes them between `<!-- fields: NAME -->` and `<!-- end -->`; also the
                                      `about` of a step and the `index` of all. A step without a page gets a bare one
    python docs/generate.py --check   exit code 1 if a page is out of date

`tests/test_docs.py` checks the same, so that a field without its line in the reference does not get through.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo
from steppages import OURS, about, has_fields, index, missing_pages, part_name, settings

from connectors.camera.config import CameraFields, FrameSize
from connectors.codecs.config import MessageConfig
from connectors.codecs.registry import CODECS
from connectors.codecs.schemas.config import RegistryAuth, RegistryConfig
from connectors.config import ConnectorConfig, SinkConfig, SourceConfig
from connectors.mqtt.client import TlsConfig
from connectors.mqtt.config import CanaryConfig, Shard
from connectors.mqtt.endpoint.config import ServerTls
from connectors.mqtt.sinkconfig import Announcement, LastWill
from connectors.outbox import OutboxConfig
from connectors.registry import SINKS, SOURCES
from connectors.units import Position, seconds, size_in_bytes
from pipelines.errors import DISTRIBUTION
from pipelines.steps import Config, Step
from streamer.definition.service import Service
from streamer.definition.settings import BatchSettings, Control, FailureSettings, Limits, Profile, TransactionSettings
from streamer.testing.cases import Case

HERE: Final = Path(__file__).parent
REGION: Final = re.compile(r"(<!-- ((?:fields|about|index): [\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
"""A part of a page that is generated; its second group is a key of `regions()`."""

_WORDS: Final[Mapping[object, str]] = {
    str: "text",
    bool: "`true`, `false`",
    int: "integer",
    float: "number",
    Path: "path",
    SecretStr: "text",
    Any: "anything",
}
_HEAD: Final = "| field | is | default | |\n| --- | --- | --- | --- |\n"
_NONE: Final = "It has no fields of its own.\n"
_STEP_HEAD: Final = "| key | is | default | |\n| --- | --- | --- | --- |\n"


def main() -> int:
    """Write the pages, or with `--check` say which are out of date."""
    if "--check" not in sys.argv[1:]:
        for path, text in missing_pages().items():
            path.write_text(text)
    stale = [page for page in pages() if refreshed(page.read_text()) != page.read_text()]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"{page.name} is out of date: python docs/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for page in stale:
        page.write_text(refreshed(page.read_text()))
        print(page.name)
    return 0


def pages() -> list[Path]:
    """The pages beside this file and in its folders, in the order of their names."""
    return sorted(HERE.rglob("*.md"))


def refreshed(text: str) -> str:
    """A page's text with its generated parts as they have to be. `KeyError` for a part that there is not."""
    made = regions()
    return REGION.sub(lambda found: f"{found[1]}{made[found[2]]()}{found[3]}", text)


def regions() -> dict[str, Callable[[], str]]:
    """Every generated part by its kind and name, `fields: step.ONNX`."""
    found = {f"fields: {name}": made for name, made in tables().items()}
    found["index: steps"] = partial(index, OURS)
    for model in OURS:
        found[f"about: {part_name(model)}"] = partial(about, model)
    return found


def tables() -> dict[str, Callable[[], str]]:
    """Every table by its name."""
    found: dict[str, Callable[[], str]] = {
        "service": lambda: fields(Service, _SERVICE),
        "batch": lambda: fields(BatchSettings),
        "limits": lambda: fields(Limits),
        "outbox": lambda: fields(OutboxConfig, _OUTBOX),
        "errors": lambda: fields(FailureSettings),
        "transaction": lambda: fields(TransactionSettings),
        "control": lambda: fields(Control),
        "profile": lambda: fields(Profile),
        "case": lambda: fields(Case, _CASE, {"folder"}),
        "source": lambda: fields(SourceConfig),
        "sink": lambda: fields(SinkConfig),
        "codecs": codecs,
        "registry": lambda: fields(RegistryConfig),
        "registry.auth": lambda: fields(RegistryAuth),
        "mqtt.tls": lambda: fields(TlsConfig),
        "mqtt.shard": lambda: fields(Shard),
        "mqtt.canary": lambda: fields(CanaryConfig),
        "mqtt_endpoint.tls": lambda: fields(ServerTls),
        "camera.camera": lambda: fields(CameraFields),
        "mqtt.birth": lambda: fields(Announcement),
        "mqtt.will": lambda: fields(LastWill, without=set(Announcement.model_fields)),
    }
    for name in SOURCES.known:
        found[f"source.{name}"] = partial(_connector, SOURCES.get(name), SourceConfig)
    for name in SINKS.known:
        found[f"sink.{name}"] = partial(_connector, SINKS.get(name), SinkConfig)
    for name in _our_codecs():
        codec = CODECS.get(name)
        found[f"codec.{name}"] = partial(fields, codec, without=_bounds(codec))
    found["codec.limits"] = lambda: fields(MessageConfig, without={"type"})
    for model in OURS:
        if has_fields(model):
            found[part_name(model)] = partial(step_fields, model)
        for inner in settings(model):
            found[inner.__name__] = partial(step_fields, inner)
    return found


def fields(model: type[BaseModel], kinds: Mapping[str, str] | None = None, without: Iterable[str] = ()) -> str:
    """The fields of a model, one a line. `kinds` says what some of them are where the annotation cannot."""
    rows = [
        f"| `{info.alias or name}` | {(kinds or {}).get(name) or kind(info)} | {default(info)} | {described(info)} |\n"
        for name, info in model.model_fields.items()
        if name not in without
    ]
    return _HEAD + "".join(rows) if rows else _NONE


def step_fields(model: type[Config]) -> str:
    """The fields of a step by their keys in JSON."""
    rows = []
    for name, info in model.model_fields.items():
        key = model.key(name)
        if name == "name" and issubclass(model, Step):
            continue
        ours = " *Not in Konduit Serving.*" if model.is_extension(name) else ""
        rows.append(f"| `{key}` | {kind(info)} | {default(info)} | {described(info)}{ours} |\n")
    return _STEP_HEAD + "".join(rows)


def codecs() -> str:
    """The codecs, one a line."""
    rows = []
    for name in _our_codecs():
        text = " ".join((CODECS.get(name).__doc__ or "").split())
        rows.append(f"| `{name}` | {_cell(text)} |\n")
    return "| codec | payloads |\n| --- | --- |\n" + "".join(rows)


def _our_codecs() -> list[str]:
    return [name for name, found in CODECS.known.items() if found.distribution == DISTRIBUTION]


def kind(info: FieldInfo) -> str:
    """What a field takes, in a few words."""
    return _kind(info.annotation, info.metadata)


def default(info: FieldInfo) -> str:
    """A field's default as a file would say it; empty where there is nothing to say."""
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None or value == "" or isinstance(value, BaseModel) or (not value and isinstance(value, (tuple, dict))):
        return ""
    unit = _unit(info.annotation, info.metadata)
    if unit is not None:
        return f"`{unit(value)}`"
    if isinstance(value, tuple):
        return f"`{', '.join(map(str, value))}`"
    if isinstance(value, dict):
        return f"`{{{', '.join(f'{key}: {one}' for key, one in value.items())}}}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def described(info: FieldInfo) -> str:
    """A field's docstring as the cell of a table."""
    return _cell(" ".join((info.description or "").split()))


_SERVICE: Final = {
    "source": "mapping, or a list of them",
    "pipeline": "path, definition, or list of steps",
    "sink": "mapping, or a list of them",
    "dead_letter": "mapping, as a sink's",
    "debug": "`true`, `false`, `records`",
}
_OUTBOX: Final = {"max": "size, or number of messages"}
_CASE: Final = {
    "input": "mapping, list of mappings, or text",
    "expect": "mapping, or a list of them",
    "fails": "`true`, or the name of a step",
}


def _kind(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    functions = _functions(metadata)
    if seconds in functions:
        return "duration"
    if size_in_bytes in functions:
        return "size"
    if functions & _functions(get_args(Position)):
        return "`earliest`, `latest`, or a time"
    if functions & _functions(get_args(FrameSize)):
        return "`WIDTHxHEIGHT`"
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(inner[0], inner[1:])
    if origin in (Union, UnionType):
        found = [_kind(one) for one in inner if one is not NoneType and get_origin(one) is not Callable]
        return " or ".join(dict.fromkeys(one for one in found if one))
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in inner)
    if origin in (list, tuple):
        return f"list of {_plural(inner[0])}"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return _WORDS.get(annotation, "") + _bounds_of(metadata)


def _plural(annotation: Any) -> str:
    word = _kind(get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation)
    plurals = {"text": "texts", "mapping": "mappings", "integer": "integers", "number": "numbers"}
    return " or ".join(plurals.get(one, one) for one in word.split(" or "))


def _bounds_of(metadata: Iterable[Any]) -> str:
    text = ""
    flat = [inner for one in metadata for inner in (one.metadata if isinstance(one, FieldInfo) else [one])]
    for one in flat:
        if isinstance(one, Ge):
            text += f" from {one.ge}"
        elif isinstance(one, Gt):
            text += f" above {one.gt}"
        elif isinstance(one, Le):
            text += f" to {one.le}"
    return text


def _functions(metadata: Iterable[Any]) -> set[Any]:
    return {one.func for one in metadata if isinstance(one, BeforeValidator)}


def _unit(annotation: Any, metadata: Iterable[Any]) -> Callable[[Any], str] | None:
    text = _kind(annotation, metadata)
    return {"duration": _duration, "size": _size}.get(text)


def _duration(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if value >= scale:
            return f"{value / scale:g}{unit}"
    return "0s"


def _size(value: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("MB", 10**6), ("kB", 10**3)):
        if value and value % scale == 0:
            return f"{value // scale}{unit}"
    return f"{value}B"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _connector(model: type[ConnectorConfig], base: type[ConnectorConfig]) -> str:
    # What it has as every source or sink has it is in their table.
    same = {
        name
        for name, info in base.model_fields.items()
        if name == "type" or model.model_fields[name].description == info.description
    }
    return fields(model, without=same)


def _bounds(codec: type[BaseModel]) -> set[str]:
    shared = set(MessageConfig.model_fields) if issubclass(codec, MessageConfig) else set()
    return shared | {"type"}


if __name__ == "__main__":
    sys.exit(main())
