"""The pages of connectors (docs/connectors) and of codecs (docs/codecs): which there are, what they say from the
configuration models that the registries have, and the indexes of these pages."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from steppages import summary

from connectors.codecs.config import CodecConfig, MessageConfig
from connectors.codecs.registry import CODECS
from connectors.config import ConnectorConfig, SinkConfig, SourceConfig
from connectors.registry import SINKS, SOURCES
from pipelines.described import descriptions
from pipelines.plugins.catalog import OURS
from pipelines.plugins.requirements import how_to_install, required

HERE: Final = Path(__file__).parent
BASES: Final = (ConnectorConfig, SourceConfig, SinkConfig, CodecConfig)
"""Bases whose fields are in tables of their own, or in none."""


@dataclass(frozen=True)
class Page:
    """The page of a connector, source and sink together, or of a codec."""

    kind: str
    """`connector` or `codec`."""
    name: str
    """The `type` in service files."""
    models: Mapping[str, type[ConnectorConfig | CodecConfig]]
    """Its configuration models by their role: `source`, `sink`, `codec`."""

    @property
    def path(self) -> Path:
        """The file, in a folder for each kind."""
        return HERE / f"{self.kind}s" / f"{self.name}.md"

    @property
    def tables(self) -> dict[str, type[BaseModel]]:
        """The models whose fields the page shows, by the names of their tables; those inside their fields included."""
        own = {f"{role}.{self.name}": model for role, model in self.models.items()}
        return {**own, **{inner.__name__: inner for model in own.values() for inner in inner_models(model)}}

    def about(self) -> str:
        """What it is, from the docstrings of its models; what has to be installed; what is different with it."""
        paragraphs = []
        for role, model in self.models.items():
            text = inspect.getdoc(model) or ""
            paragraphs.append(text if role == "codec" else f"**{role.capitalize()}.** {text}")
        facts = [fact for model in self.models.values() for fact in _facts(model)]
        return "\n\n".join([*paragraphs, *dict.fromkeys(facts)]) + "\n"

    def row(self) -> str:
        """Its line in the index."""
        roles = ("codec",) if self.kind == "codec" else ("source", "sink")
        cells = [summary(self.models[role]) if role in self.models else "" for role in roles]
        extras = dict.fromkeys(extra for model in self.models.values() for extra in _extras(model))
        needs = f"`[{','.join(extras)}]`" if extras else ""
        return f"| [`{self.name}`]({self.path.name}) | {' | '.join(cells)} | {needs} |\n"

    def bare(self, shown: Set[str] = frozenset()) -> str:
        """The page with what can be generated; the rest is to be written. `shown` are tables of other pages."""
        text = f"# `{self.name}`\n\n<!-- about: {self.kind}.{self.name} -->\n<!-- end -->\n\n## Example\n\n"
        text += "## Values\n\n" if self.kind == "codec" else "## What is promised\n\n"
        text += "## Errors\n"
        for name in self.tables:
            role, _, own = name.partition(".")
            if own:
                heading = "Fields" if role == "codec" else f"Fields of the {role}"
                text += f"\n## {heading}\n\n<!-- fields: {name} -->\n<!-- end -->\n"
            elif name not in shown:
                text += f"\n`{name}`:\n\n<!-- fields: {name} -->\n<!-- end -->\n"
        return text


def our_pages() -> list[Page]:
    """A page for each connector and each codec of this distribution, in the order of the registries."""
    sources = {name: SOURCES.get(name) for name, found in SOURCES.known.items() if found.distribution == OURS}
    sinks = {name: SINKS.get(name) for name, found in SINKS.known.items() if found.distribution == OURS}
    codecs = {name: CODECS.get(name) for name, found in CODECS.known.items() if found.distribution == OURS}
    return [*pages_of(sources, sinks), *(Page("codec", name, {"codec": model}) for name, model in codecs.items())]


def pages_of(sources: Mapping[str, type[SourceConfig]], sinks: Mapping[str, type[SinkConfig]]) -> list[Page]:
    """The pages of these connectors by their names: a source and a sink of one name share a page."""
    found: dict[str, dict[str, type[ConnectorConfig | CodecConfig]]] = {}
    for role, models in (("source", sources), ("sink", sinks)):
        for name, model in models.items():
            found.setdefault(name, {})[role] = model
    return [Page("connector", name, models) for name, models in found.items()]


def index(pages: Sequence[Page], kind: str) -> str:
    """A table of the connectors or codecs, with links to their pages."""
    heads = ("codec", "payloads") if kind == "codec" else ("type", "source", "sink")
    head = f"| {' | '.join((*heads, 'needs'))} |\n|{' --- |' * (len(heads) + 1)}\n"
    return head + "".join(page.row() for page in pages if page.kind == kind)


def inner_models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """The models of the mappings in a model's own fields, and theirs, that have documented fields of their own."""
    found: dict[type[BaseModel], None] = {}
    for name, info in model.model_fields.items():
        if not _is_inherited(model, name, BASES):
            for one in _models((info.annotation, *info.metadata)):
                found |= dict.fromkeys((one, *inner_models(one)))
    return [one for one in found if documented(one, list(found))]


def documented(model: type[BaseModel], bases: Sequence[type[BaseModel]]) -> dict[str, FieldInfo]:
    """The fields of a model for users: those with a description, without those that `bases` have in the same words."""
    names = [name for name in model.model_fields if not _is_inherited(model, name, bases)]
    if issubclass(model, MessageConfig):
        names.sort(key=MessageConfig.model_fields.__contains__)  # the limits last
    described = descriptions(model)
    return {name: info for name in names if name in described and not (info := model.model_fields[name]).exclude}


def _is_inherited(model: type[BaseModel], name: str, bases: Sequence[type[BaseModel]]) -> bool:
    said = descriptions(model).get(name)
    return any(
        said == descriptions(base).get(name)
        for base in bases
        if base is not model and issubclass(model, base) and name in base.model_fields
    )


def _models(annotations: Sequence[Any]) -> Iterator[type[BaseModel]]:
    for one in annotations:
        if isinstance(one, type) and issubclass(one, BaseModel):
            yield one
        else:
            yield from _models(get_args(one))


def _facts(model: type[ConnectorConfig | CodecConfig]) -> Iterator[str]:
    needed = _requirement(model)
    if needed.alternatives() != [()]:
        yield f"Needs `{how_to_install(needed)}`."
    if issubclass(model, SourceConfig) and model.record_columns:
        names = ", ".join(f"`{name}`" for name in model.record_columns)
        yield f"`into`, and topics of sinks as `{{record.NAME}}`, also take {names}."
    if _in_transactions(model):
        yield "`delivery: exactly_once` is possible with it."
    if issubclass(model, SinkConfig) and model.answers:
        yield "The sink gets results and failures of its own source's records only."
    if issubclass(model, SinkConfig) and "bytes" not in model.carries:
        yield "The sink cannot have an `outbox`, and cannot be the `dead_letter`."


def _in_transactions(model: type[ConnectorConfig | CodecConfig]) -> bool:
    return any(
        issubclass(model, base) and model.outside_transactions is not base.outside_transactions
        for base in (SourceConfig, SinkConfig)
    )


def _requirement(model: type[ConnectorConfig | CodecConfig]) -> Any:
    if issubclass(model, CodecConfig):
        return required(model.model_construct(type="").needs)
    return required(model.requires)


def _extras(model: type[ConnectorConfig | CodecConfig]) -> list[str]:
    first = _requirement(model).alternatives()[0]
    return [package.extra for package in first if package.extra]
