"""What the API reference shows of a docstring and of a type: links to pages, and types without what checks them.

`mkdocs.yml` names this file as an extension of Griffe, which reads the packages for mkdocstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Final

import griffe
from linkedpages import DOCS, title_of

_PAGE: Final = re.compile(r"\(docs/([\w/-]+)\.md(#[\w-]+)?\)")
"""How a docstring names a page: `(docs/data.md#json)`."""
_WRAPPERS: Final = {"Annotated", "SerializeAsAny", "InstanceOf"}
"""Types whose first argument says all that a reader needs."""


class ApiReference(griffe.Extension):
    """Pages that docstrings name become links, and names of types that stand for others are replaced by these.

    `max_wait: Duration` is shown as `max_wait: float`, as `Duration` is a `float` with pydantic's checks.
    """

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for everything that was read."""
        if obj.docstring is not None:
            obj.docstring.value = _PAGE.sub(_link, obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Called when a package has been read, after those that it imports from (`preload_modules`)."""
        for obj in _objects(pkg):
            if isinstance(obj, griffe.Attribute):
                obj.annotation = _plain(obj.annotation, loader.modules_collection)
            elif isinstance(obj, griffe.Function):
                obj.returns = _plain(obj.returns, loader.modules_collection)
                for parameter in obj.parameters:
                    parameter.annotation = _plain(parameter.annotation, loader.modules_collection)


def _link(found: re.Match[str]) -> str:
    return f"([{title_of(DOCS / f'{found[1]}.md')}](../{found[1]}.md{found[2] or ''}))"


def _objects(parent: griffe.Object) -> Iterator[griffe.Object]:
    for member in parent.members.values():
        if isinstance(member, griffe.Object):
            yield member
            yield from _objects(member)


def _plain(part: Any, modules: griffe.ModulesCollection) -> Any:
    """An annotation, or a part of one, with the types that its names stand for."""
    if isinstance(part, list):
        return [_plain(inner, modules) for inner in part]
    if isinstance(part, griffe.ExprName):
        meant = _meant(part, modules)
        return part if meant is None else _plain(meant, modules)
    if isinstance(part, griffe.ExprSubscript):
        if str(part.left).rpartition(".")[2] in _WRAPPERS:
            inner = part.slice.elements[0] if isinstance(part.slice, griffe.ExprTuple) else part.slice
            return _plain(inner, modules)
        return replace(part, slice=_plain(part.slice, modules))
    if isinstance(part, griffe.ExprTuple | griffe.ExprBinOp | griffe.ExprList):
        return replace(part, **{each.name: _plain(getattr(part, each.name), modules) for each in fields(part)})
    return part


def _meant(name: griffe.ExprName, modules: griffe.ModulesCollection) -> griffe.Expr | None:
    """The type that a name of one of our modules stands for; None if it is a class, or a type variable."""
    try:
        target = modules[name.canonical_path]
        target = target.final_target if isinstance(target, griffe.Alias) else target
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None
    value = target.value if isinstance(target, griffe.Attribute) else None
    return value if isinstance(value, griffe.ExprSubscript | griffe.ExprBinOp) else None
