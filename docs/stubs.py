"""The stub of `pipelines.steps`, from its modules: every class that one of them defines can be imported from there."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Final

import pipelines.steps
from pipelines.plugins.catalog import modules_of

FILE: Final = Path(pipelines.steps.__file__).with_suffix(".pyi")

_ALSO: Final = {"EXTENSION": "config", "Int": "config"}
"""Names that are no classes, with the modules that define them."""


def stub() -> str:
    """The text of the stub."""
    names = dict(_ALSO)
    package = pipelines.steps.__name__
    for module in modules_of(package):
        for name, value in vars(importlib.import_module(module)).items():
            if isinstance(value, type) and value.__module__ == module and not name.startswith("_"):
                names[name] = module.removeprefix(f"{package}.")
    listed = "".join(f'    "{name}",\n' for name in sorted(names, key=_order))
    by_module = {
        module: [name for name in sorted(names, key=_order) if names[name] == module] for module in names.values()
    }
    lines = "".join(_import(module, by_module[module]) for module in sorted(by_module))
    return f"# Written by docs/generate.py.\n{lines}\n__all__ = [\n{listed}]\n"


def _import(module: str, names: list[str]) -> str:
    line = f"from .{module} import {', '.join(names)}\n"
    if len(line) <= 121:
        return line
    return f"from .{module} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"


def _order(name: str) -> tuple[bool, str]:
    """Constants first, as ruff sorts names."""
    return not name.isupper(), name
