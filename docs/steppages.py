"""What a step's page (docs/steps) says from its configuration model, and the index of these pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from pipelines.errors import DISTRIBUTION
from pipelines.plugins.registry import TYPE_GROUPS, Registry, built_in_runner
from pipelines.steps import Config, Step, Typed
from pipelines.steps.konduit import GRAPH_TYPES, STEP_TYPES
from pipelines.steps.shapes import BoxConfig, PointConfig

FOLDER: Final = Path(__file__).parent / "steps"


def types_of(registry: Registry) -> tuple[type[Typed], ...]:
    """All steps, graph steps, functions and triggers of a registry."""
    return tuple(model for base in TYPE_GROUPS.values() for model in registry.types(base).values())


_REGISTRY: Final = Registry(plugins=False)
OURS: Final = types_of(_REGISTRY)
"""Everything that has a page."""

FAMILIES: Final[Mapping[str, str]] = {
    "models": "Models",
    "models.classifier": "What models say",
    "models.regression": "What models say",
    "images": "Images",
    "images.capture": "Cameras and videos",
    "video": "Cameras and videos",
    "boxes": "Boxes and points",
    "images.geometry": "Boxes and points",
    "boxes.extract": "Parts of images",
    "draw": "Drawing",
    "documents": "Documents",
    "tables": "Tables",
    "keyed": "What steps remember",
    "code": "Your code, other pipelines, logs",
}
"""Heading of a step in the index, in this order: by the folder of its configuration, or by its module where listed."""
OTHERS: Final = "Others"
"""Heading of a step that has no family."""
KINDS: Final[Mapping[str, str]] = {
    "graph step": "Steps of graphs",
    "switch function": "What a `SWITCH` decides by",
    "combine function": "What a `COMBINE` does",
    "trigger": "Triggers",
}
"""Heading of the other types, by their kind."""

SHAPES: Final = (BoxConfig, PointConfig)
_OURS_ALONE: Final = {"switch function": {"FUNCTION_SWITCH"}, "trigger": {"CACHING_TRIGGER"}}


def part_name(model: type[Typed]) -> str:
    """`step.ONNX`, `switch.INT_SWITCH`: the type with the first word of its kind."""
    return f"{model.kind.split()[0]}.{model.type_name}"


def page_name(model: type[Typed]) -> str:
    """File name of its page: the type, with its kind if a step has the same type."""
    taken = not issubclass(model, Step) and model.type_name in _REGISTRY.steps
    return f"{(part_name(model).replace('.', '_') if taken else model.type_name).lower()}.md"


def has_fields(model: type[Typed]) -> bool:
    """Whether it has settings besides a step's name."""
    return any(name != "name" or not issubclass(model, Step) for name in model.model_fields)


def settings(model: type[Config]) -> list[type[Config]]:
    """The models of the mappings in its fields, and theirs; points and boxes are values, no settings."""
    found: dict[type[Config], None] = {}
    for info in model.model_fields.values():
        for one in _models(info.annotation):
            found |= dict.fromkeys((one, *settings(one)))
    return list(found)


def about(model: type[Typed]) -> str:
    """What it is, from its docstring; its Python name, what has to be installed, whether Konduit has it."""
    text = re.sub(r"`(\w+)`", lambda found: f"`{_key(model, found[1])}`", inspect.getdoc(model) or "")
    text = re.sub(r"\(docs/(\w+\.md)\)", r"([\1](../\1))", text)
    facts = [f"In Python `pipelines.{model.__name__}`."]
    if extra := _extra(model):
        facts.append(f"Needs `pip install '{DISTRIBUTION}[{extra}]'`.")
    if not _of_konduit(model):
        facts.append("Not in [Konduit Serving](../pipelines.md).")
    return f"{text}\n\n{' '.join(facts)}\n"


def index(models: Sequence[type[Typed]]) -> str:
    """A table for each family, with links to the pages."""
    text = ""
    for heading in dict.fromkeys((*FAMILIES.values(), OTHERS, *KINDS.values())):
        rows = [_row(model) for model in models if _heading(model) == heading]
        if rows:
            text += f"\n## {heading}\n\n| type | what it does | needs |\n| --- | --- | --- |\n{''.join(rows)}"
    return text


def missing_pages(models: Sequence[type[Typed]] = OURS, folder: Path = FOLDER) -> dict[Path, str]:
    """A page for each type that has none, with what can be generated; in and out and the example are to be written."""
    return {path: _bare(one, models) for one in models if not (path := folder / page_name(one)).exists()}


def _bare(model: type[Typed], models: Sequence[type[Typed]]) -> str:
    name = part_name(model)
    text = f"# `{model.type_name}`\n\n<!-- about: {name} -->\n<!-- end -->\n\n## In and out\n\n## Example\n"
    if has_fields(model):
        text += f"\n## Fields\n\n<!-- fields: {name} -->\n<!-- end -->\n"
    described = {inner for one in models[: models.index(model)] for inner in settings(one)}
    for inner in settings(model):
        if inner in described:  # in the page of the first that has it
            continue
        text += f"\n`{inner.__name__}`:\n\n<!-- fields: {inner.__name__} -->\n<!-- end -->\n"
    return text


def _heading(model: type[Typed]) -> str:
    if not issubclass(model, Step):
        return KINDS[model.kind]
    place = model.__module__.removeprefix("pipelines.steps.")
    return FAMILIES.get(place, FAMILIES.get(place.rpartition(".")[0], OTHERS))


def _row(model: type[Typed]) -> str:
    extra = _extra(model)
    konduit = "" if _of_konduit(model) else " *Not in Konduit Serving.*"
    link = f"[`{model.type_name}`]({page_name(model)})"
    return f"| {link} | {summary(model)}{konduit} | {f'`[{extra}]`' if extra else ''} |\n"


def summary(model: type[object]) -> str:
    """The first sentence of its docstring, as the cell of a table."""
    first = " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=\.) |: `", first)[0].rstrip(".")
    return f"{sentence}.".replace("|", "\\|")


def _key(model: type[Typed], name: str) -> str:
    return model.key(name) if name in model.model_fields else name


def _models(annotation: Any) -> Iterator[type[Config]]:
    for one in (annotation, *get_args(annotation)):
        if one is not annotation:
            yield from _models(one)
        elif isinstance(one, type) and issubclass(one, Config) and not issubclass(one, Typed) and one not in SHAPES:
            yield one


def _extra(model: type[Typed]) -> str | None:
    if not issubclass(model, Step):
        return None
    runner = built_in_runner(model)
    return None if runner is None else runner.extra


def _of_konduit(model: type[Typed]) -> bool:
    if issubclass(model, Step):
        return model.type_name in STEP_TYPES
    if model.kind == "graph step":
        return model.type_name in GRAPH_TYPES
    return model.kind != "combine function" and model.type_name not in _OURS_ALONE.get(model.kind, ())
