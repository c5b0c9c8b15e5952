"""Where modules named by a definition come from: files beside it, and the installed distributions that they import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.errors import DISTRIBUTION
from streamer.build.closure import distributions_of

OURS = frozenset({"protos", "pipelines", "connectors", "streamer", "streamer_native"})


@dataclass(slots=True)
class Modules:
    """The modules that definitions use."""

    local: dict[str, Path] = field(default_factory=dict)
    """Modules and packages that lie in the folders, by their names: a file, or a package's folder."""
    distributions: dict[str, str] = field(default_factory=dict)
    """Installed distributions, and the modules that import them."""
    unknown: dict[str, str] = field(default_factory=dict)
    """Modules that cannot be found, and the modules that import them."""


def followed(wanted: Iterable[tuple[str, str]], code: Iterable[tuple[str, str]], folders: Sequence[Path]) -> Modules:
    """The origin of modules and of the modules that code imports, and of all that these import.

    `wanted` are modules, each with the part of the service that names it; `code` are parts with their code. As
    when a service runs, installed modules come before those in the folders. Imports are read from the source, those
    inside functions too; nothing is imported.
    """
    modules = Modules()
    waiting = [*wanted, *((name, part) for part, text in code for name in _imported(text))]
    seen: set[str] = set()
    while waiting:
        module, by = waiting.pop()
        top = module.partition(".")[0]
        if module in seen or top in OURS or top in sys.stdlib_module_names:
            continue
        seen.add(module)
        if owners := distributions_of(module):
            for owner in owners:
                if owner != DISTRIBUTION:
                    modules.distributions.setdefault(owner, by)
            continue
        if top in modules.local:
            continue
        place = _place(top, folders)
        if place is None:
            modules.unknown.setdefault(top, by)
            continue
        modules.local[top] = place
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            waiting += [(name, f"the module {top}") for name in _imported(file.read_bytes())]
    return modules


def _place(top: str, folders: Sequence[Path]) -> Path | None:
    for folder in folders:
        if any((folder / top).rglob("*.py")):
            return folder / top
        if (folder / f"{top}.py").is_file():
            return folder / f"{top}.py"
    return None


def _imported(source: str | bytes) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        # The error is reported where the code runs; here it has no imports.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module
            # `from google.cloud import storage`: the imported name may be a module too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*")
