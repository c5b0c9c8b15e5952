"""The stubs from which names of `pipelines.steps` and of `pipelines` are imported, as far as they name steps.

Every class that a module of `pipelines.steps` defines can be imported from there, and from `pipelines` those that users
of pipelines name.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Final

import pipelines
import pipelines.steps
from pipelines.plugins.catalog import modules_of

STEPS: Final = Path(pipelines.steps.__file__).with_suffix(".pyi")
PIPELINES: Final = Path(str(pipelines.__file__)).with_suffix(".pyi")

_ALSO: Final = {"EXTENSION": "config", "Int": "config"}
"""Names that are no classes, with the modules that define them."""


_INTERNAL: Final = {
    *("BoxConfig", "Config", "EXTENSION", "Extension", "HasFunction", "Int", "LoopTrigger", "Place", "PointConfig"),
    *("RunBy", "Spelling", "Typed"),
}
"""Names of `pipelines.steps` that `pipelines` does not have: bases and helpers of configurations."""


def stubs() -> dict[Path, str]:
    """The text of each stub."""
    names = _names()
    listed = "".join(f'    "{name}",\n' for name in sorted(names, key=_order))
    by_module = {
        module: [name for name in sorted(names, key=_order) if names[name] == module] for module in names.values()
    }
    lines = "".join(_import(module, by_module[module]) for module in sorted(by_module))
    return {
        STEPS: f"# Written by docs/generate.py.\n{lines}\n__all__ = [\n{listed}]\n",
        PIPELINES: _with_steps(PIPELINES.read_text(), sorted(names.keys() - _INTERNAL, key=_order)),
    }


def _with_steps(stub: str, steps: list[str]) -> str:
    """The stub of `pipelines` with these names of steps."""
    begin, end = stub.index("from .steps import ("), stub.index("from .values import")
    stub = stub[:begin] + _import("steps", steps) + stub[end:]
    imports = [node for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom)]
    listed = sorted((alias.name for node in imports for alias in node.names), key=_order)
    return stub[: stub.index("__all__ = [")] + "__all__ = [\n" + "".join(f'    "{name}",\n' for name in listed) + "]\n"


def _names() -> dict[str, str]:
    """The names of `pipelines.steps`, with their modules."""
    names = dict(_ALSO)
    package = pipelines.steps.__name__
    for module in modules_of(package):
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, type) and value.__module__ == module and not name.startswith("_"):
                names[name] = module.removeprefix(f"{package}.")
    return names


def _import(module: str, names: list[str]) -> str:
    line = f"from .{module} import {', '.join(names)}\n"
    if len(line) <= 121:
        return line
    return f"from .{module} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"


def _order(name: str) -> tuple[int, str]:
    """Constants first, then classes, then the rest, as ruff sorts names."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2, name
