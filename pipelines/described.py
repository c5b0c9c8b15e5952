"""`Described`: a pydantic model whose fields are described by the docstrings below them.

pydantic's own `use_attribute_docstrings` reads the source of every model while it is imported, which took a tenth of
the time that a command needs to start. Here it is read when a JSON schema or a page is made.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Described(BaseModel):
    """Base of such models. Their JSON schemas have the descriptions."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema of the model, with the descriptions of its fields."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in descriptions(cls).items():
            alias = cls.model_fields[name].alias
            key = alias if alias in properties else name
            if key in properties:
                properties[key] = {**properties[key], "description": text}
        return schema


class FrozenSettings(Described):
    """Base of the settings of connectors and services.

    Immutable; an unknown field is an error; errors do not show what was given, as it may be secret.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The fields of a model that are described, in their order, each with its text.

    A text that is given to pydantic's `Field` comes before a docstring. A field that a class defines anew does not have
    the docstring of its base. Where the source cannot be read, there are no docstrings.
    """
    below: dict[str, str | None] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Described):
            below |= _docstrings(base)
    texts = {name: info.description or below.get(name) for name, info in model.model_fields.items()}
    return {name: text for name, text in texts.items() if text}


def _docstrings(model: type[BaseModel]) -> dict[str, str | None]:
    """The attributes that a class itself annotates, each with the docstring below it."""
    module = inspect.getmodule(model)
    try:
        source = "" if module is None else inspect.getsource(module)
    except (OSError, TypeError):
        return {}
    return _classes(source).get(model.__qualname__, {})


@lru_cache(maxsize=256)
def _classes(source: str) -> dict[str, dict[str, str | None]]:
    """The docstrings of attributes of all classes of a module, by `__qualname__` of the class and name."""
    return dict(_inside(ast.parse(source).body, ""))


def _inside(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, dict[str, str | None]]]:
    for node in body:
        match node:
            case ast.ClassDef():
                yield f"{prefix}{node.name}", _attributes(node.body)
                yield from _inside(node.body, f"{prefix}{node.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield from _inside(node.body, f"{prefix}{node.name}.<locals>.")
            case ast.If() | ast.Try() | ast.With():
                yield from _inside(ast.iter_child_nodes(node), prefix)  # type: ignore[arg-type]


def _attributes(body: list[ast.stmt]) -> dict[str, str | None]:
    texts: dict[str, str | None] = {}
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            texts[node.target.id] = _text(following)
    return texts


def _text(node: ast.stmt | None) -> str | None:
    match node:
        case ast.Expr(ast.Constant(str(text))):
            return inspect.cleandoc(text)
    return None
