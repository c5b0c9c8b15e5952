"""The parts of the reference pages that are written from the models that read service files and pipelines.

    python docs/generate.py           writes them between `<!-- fields: NAME -->` and `<!-- end -->`; also the `about`
                                      of a step, connector or codec, and the `index` of all. Each of these that has
                                      no page gets a bare one
    python docs/generate.py --check   exit code 1 if a page is out of date

The models are found by walking from `Service` and from the registries. `tests/test_docs.py` checks the same, so that a
field without its line in the reference does not get through.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

import connectorpages
import steppages
import stubs
from annotated_types import Ge, Gt, Le
from connectorpages import BASES, documented, inner_models, our_pages
from pydantic import BaseModel, BeforeValidator, SecretStr
from pydantic.fields import FieldInfo
from steppages import OURS, has_fields, part_name, settings

from connectors.camera.config import FrameSize
from connectors.units import Position, seconds, size_in_bytes
from pipelines.described import descriptions
from pipelines.expressions.functions import FUNCTIONS
from pipelines.plugins import catalog
from pipelines.plugins.tables import TABLES
from pipelines.steps import Config, Step
from streamer.definition.service import Service
from streamer.definition.settings import BatcherSettings, BatchSettings
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
        for path, text in {**steppages.missing_pages(), **missing_pages()}.items():
            path.write_text(text)
        for path, text in stubs.stubs().items():
            path.write_text(text)
    stale = [page for page in pages() if refreshed(page) != page.read_text()]
    if "--check" in sys.argv[1:]:
        for page in stale:
            print(f"{page.relative_to(HERE)} is out of date: python docs/generate.py", file=sys.stderr)
        return 1 if stale else 0
    for page in stale:
        page.write_text(refreshed(page))
        print(page.relative_to(HERE))
    return 0


def pages() -> list[Path]:
    """The pages beside this file and in its folders, in the order of their names."""
    return sorted(HERE.rglob("*.md"))


def refreshed(page: Path) -> str:
    """A page's text with its generated parts as they have to be. `KeyError` for a part that there is not."""
    made = regions()
    above = "../" * len(page.parent.relative_to(HERE).parts) if page.is_relative_to(HERE) else "docs/"
    return REGION.sub(lambda found: f"{found[1]}{_linked(made[found[2]](), above)}{found[3]}", page.read_text())


def missing_pages() -> dict[Path, str]:
    """A page for each connector and codec that has none, with what can be generated; the rest is to be written."""
    shown = frozenset(
        found[2].removeprefix("fields: ") for page in pages() for found in REGION.finditer(page.read_text())
    )
    return {page.path: page.bare(shown) for page in our_pages() if not page.path.exists()}


def regions() -> dict[str, Callable[[], str]]:
    """Every generated part by its kind and name, `fields: step.ONNX`."""
    found = {f"fields: {name}": made for name, made in tables().items()}
    found["index: steps"] = partial(steppages.index, OURS)
    found["index: functions"] = functions
    for model in OURS:
        found[f"about: {part_name(model)}"] = partial(steppages.about, model)
    for kind in ("connector", "codec"):
        found[f"index: {kind}s"] = partial(connectorpages.index, our_pages(), kind)
    for page in our_pages():
        found[f"about: {page.kind}.{page.name}"] = page.about
    return found


def functions() -> str:
    """The functions of expressions, a table a group."""
    groups: dict[str, list[str]] = {}
    for function in FUNCTIONS.values():
        shown = ", ".join(f"{key} = {value!r}" for key, value in function.example.items())
        result = "no value" if function.result is None else f"`{function.result!r}`"
        example = f"{result} for `{shown}`" if shown else result
        groups.setdefault(function.group, []).append(f"| `{function.call}` | {function.says} | {example} |")
    return "\n".join(
        f"Of {group}:\n\n| function | gives | example |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
        for group, rows in groups.items()
    )


def tables() -> dict[str, Callable[[], str]]:
    """Every table by its name: that of a connector or codec by role and type, any other by its model."""
    models: dict[str, type[BaseModel]] = {
        model.__name__: model for root in (Service, Case, BatchSettings) for model in (root, *inner_models(root))
    }
    for name, table in TABLES.known.items():
        if table.distribution == catalog.OURS:
            models[f"table.{name}"] = cast(type[BaseModel], TABLES.get(name))
    # Its fields are among those of `BatchSettings`.
    models.pop(BatcherSettings.__name__)
    for page in our_pages():
        models |= page.tables
    inner = [model for name, model in models.items() if "." not in name]
    found: dict[str, Callable[[], str]] = {}
    for name, model in models.items():
        bases = BASES if "." in name else inner
        found[name] = partial(fields, model, bases)
    for step in OURS:
        if has_fields(step):
            found[part_name(step)] = partial(step_fields, step)
        for setting in settings(step):
            found[setting.__name__] = partial(step_fields, setting)
    return found


def fields(model: type[BaseModel], bases: Sequence[type[BaseModel]] = ()) -> str:
    """The documented fields of a model, one a line."""
    rows = [
        f"| `{info.alias or name}` | {_SAID.get((model.__name__, name)) or kind(info)} | {default(info)} "
        f"| {described(model, name)} |\n"
        for name, info in documented(model, bases).items()
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
        rows.append(f"| `{key}` | {kind(info)} | {default(info)} | {described(model, name)}{ours} |\n")
    return _STEP_HEAD + "".join(rows)


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


def described(model: type[BaseModel], name: str) -> str:
    """A field's docstring as the cell of a table."""
    return _cell(" ".join(descriptions(model).get(name, "").split()))


_SAID: Final = {
    ("Service", "source"): "mapping, or a list of them",
    ("Service", "pipeline"): "path, definition, or list of steps",
    ("Service", "sink"): "mapping, or a list of them",
    ("Service", "dead_letter"): "mapping, as a sink's",
    ("Variant", "sink"): "mapping, as a sink's",
    ("Service", "debug"): "`true`, `false`, `records`",
    ("OutboxConfig", "max"): "size, or number of messages",
    ("Case", "input"): "mapping, list of mappings, or text",
    ("Case", "expect"): "mapping, or a list of them",
    ("Case", "fails"): "`true`, or the name of a step",
}
"""What fields are, by model and name, where the annotation cannot say it."""


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


def _linked(text: str, above: str) -> str:
    """A text in which pages that it names, `(docs/data.md#json)`, are links. `above` is the way to their folder."""
    return re.sub(r"\(docs/(\S+\.md)(#\S+)?\)", rf"([\1]({above}\1\2))", text)


if __name__ == "__main__":
    sys.exit(main())
