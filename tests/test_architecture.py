"""docs/architecture.md names the rooms that there are, and all of them; no modules import each other."""

import ast
import pkgutil
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = ("protos", "pipelines", "connectors", "streamer")
NAMED = set(re.findall(r"`((?:protos|native|pipelines|connectors|streamer)/[\w./]*)`", TEXT))


def imports_of(root: Path) -> dict[str, set[str]]:
    """The modules of our packages below `root`, each with those of them that it imports anywhere in its file."""
    files = {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for package in PACKAGES
        for file in (root / package).rglob("*.py")
    }
    return {
        module: {
            found
            for node in nodes(file)
            for name in named_by(node, module if file.name == "__init__.py" else module.rpartition(".")[0])
            if (found := nearest_module(name, files)) not in ("", module)
        }
        for module, file in files.items()
    }


def named_by(node: ast.AST, package: str) -> Iterator[str]:
    """What an import in a module of this package names: modules, or attributes of modules."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".") if node.level else []
        base = [*parts[: len(parts) + 1 - node.level], *([node.module] if node.module else [])]
        yield from (".".join([*base, alias.name]) for alias in node.names)


def nearest_module(name: str, modules: Mapping[str, object]) -> str:
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def circles_of(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of modules of which each imports, by way of others, all the others."""
    reached: dict[str, set[str]] = {}
    for module in imports:
        there: set[str] = set()
        todo = [module]
        while todo:
            new = imports[todo.pop()] - there
            there |= new
            todo += new
        reached[module] = there
    circles = {
        frozenset({module, *(other for other in there if module in reached[other])})
        for module, there in reached.items()
        if module in there
    }
    return [set(circle) for circle in circles]


def late_targets(root: Path) -> Iterator[str]:
    """What calls of `late` in our packages name, and the configurations in them."""
    for package in PACKAGES:
        for file in (root / package).rglob("*.py"):
            for node in nodes(file):
                match node:
                    case ast.Call(func=ast.Name("late"), args=[ast.Constant(str(target))]):
                        yield target
                    case ast.AnnAssign(
                        target=ast.Name("built_by" | "browsed_by" | "transactional_by"), value=ast.Constant(str(target))
                    ):
                        yield target


@cache
def nodes(file: Path) -> list[ast.AST]:
    kinds = (ast.Import, ast.ImportFrom, ast.Call, ast.AnnAssign)
    return [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, kinds)]


def test_every_room_and_file_that_is_named_exists() -> None:
    assert len(NAMED) > 40
    assert [name for name in sorted(NAMED) if not (ROOT / name).exists()] == []


def test_the_architecture_page_names_every_folder() -> None:
    rooms = {
        f"{folder.relative_to(ROOT)}/"
        for package in ("pipelines", "connectors", "streamer")
        for folder in (ROOT / package).iterdir()
        if (folder / "__init__.py").exists()
    }
    assert rooms - NAMED == set()


def test_no_folder_has_more_than_twenty_files() -> None:
    """A folder with more files than one takes in at a glance wants rooms of its own."""
    many = {
        str(folder.relative_to(ROOT)): len(list(folder.glob("*.py")))
        for package in ("pipelines", "connectors", "streamer")
        for folder in (ROOT / package).rglob("*")
        if folder.is_dir() and len(list(folder.glob("*.py"))) > 20
    }
    assert many == {}


def test_the_tests_of_no_folder_are_passed_over(request: pytest.FixtureRequest) -> None:
    passed_over: list[str] = request.config.getini("norecursedirs")
    folders = {part for file in (ROOT / "tests").rglob("test_*.py") for part in file.relative_to(ROOT).parts[:-1]}
    assert not [name for name in sorted(folders) if any(fnmatch(name, pattern) for pattern in passed_over)]


def test_no_modules_import_each_other() -> None:
    """Imports inside of functions and for type checkers count too: they would only hide the circle."""
    assert circles_of(imports_of(ROOT)) == []


def test_a_circle_is_seen_wherever_its_imports_stand(tmp_path: Path) -> None:
    package = tmp_path / "pipelines"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("def f():\n    from pipelines.b import g\n")
    (package / "b.py").write_text("if TYPE_CHECKING:\n    from . import c\n")
    (package / "c.py").write_text("import pipelines.a\n")
    (package / "d.py").write_text("from pipelines import a, b, c\n")
    (circle,) = circles_of(imports_of(tmp_path))
    assert circle == {"pipelines.a", "pipelines.b", "pipelines.c"}


def test_what_is_called_late_exists() -> None:
    targets = set(late_targets(ROOT))
    assert len(targets) > 20
    assert [target for target in targets if not callable(pkgutil.resolve_name(target))] == []


def test_names_say_what_they_stand_for() -> None:
    """These do not: a variable is named for what it holds, as `columns`, `errors`, `message`."""
    vague = {"found", "one", "ones", "own", "taken", "told"}
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    assert [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in files
        for name, line in names_bound_in(file)
        if name.strip("_") in vague
    ] == []


def names_bound_in(file: Path) -> Iterator[tuple[str, int]]:
    """The names of variables, attributes, arguments, functions and classes, with their lines."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
