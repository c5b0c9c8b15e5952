"""Python functions as steps: marking those that take batches, and finding them by `module:name`."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Awaitable, Callable
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from pipelines.data.batch import Batch
from pipelines.errors import RAISED, DefinitionError, nearest

BatchFunction = TypeVar("BatchFunction", bound=Callable[..., Batch] | Callable[..., Awaitable[Batch]])

Code = TypeVar("Code", bound=Callable[..., Any])

_MARK = "__pipelines_batched__"
_ALONE = "__pipelines_alone__"
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def batched(function: BatchFunction) -> BatchFunction:
    """Decorator: the function takes a `Batch` and returns a `Batch`, instead of seeing one `Data` at a time."""
    setattr(function, _MARK, True)
    return function


def is_batched(function: Callable[..., Any]) -> bool:
    """Whether `batched` marked the function (or, for an object, its `__call__`)."""
    return bool(getattr(function, _MARK, False) or getattr(type(function).__call__, _MARK, False))


def alone(function: Code) -> Code:
    """Decorator: the function, or an object of the class, is not called by several threads of a service at a time.

    With `limits.parallel` above 1 a function is called by as many threads, and of a class each thread has an object of
    its own. With this mark the threads take turns, and have one object of the class for each step that names it.
    """
    setattr(function, _ALONE, True)
    return function


def is_alone(function: Callable[..., Any]) -> bool:
    """Whether `alone` marked the function or class; subclasses of a marked class are marked."""
    return bool(getattr(function, _ALONE, False))


def well_formed(text: str) -> bool:
    """Whether the text has the form `module:name`; dots are allowed on both sides."""
    return _REFERENCE.fullmatch(text) is not None


def resolve(text: str) -> Callable[..., Any]:
    """The function that `module:name` names; its module is imported.

    Raises `DefinitionError` if the form is wrong, the module is not there or fails to import, or the name is not in
    it or no function.
    """
    if not well_formed(text):
        raise DefinitionError(f'"module:name" is needed, for example "my_steps:scale", not {text!r}')
    module_name, _, name = text.partition(":")
    value: Any = _imported(module_name, text)
    where = module_name
    for part in name.split("."):
        if not hasattr(value, part):
            known = [known for known in dir(value) if not known.startswith("_")]
            raise DefinitionError(f'{text}: {where} has no "{part}"{nearest(part, known)}')
        value = getattr(value, part)
        where = f"{where}.{part}"
    if not callable(value):
        raise DefinitionError(f"{text} is a {type(value).__name__}, not a function")
    function: Callable[..., Any] = value
    return function


def reference(function: Callable[..., Any]) -> str | None:
    """The `module:name` that `resolve` finds the function by, or `None` if there is none (lambdas, inner functions)."""
    module_name = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if module_name in (None, "__main__") or name is None or not well_formed(f"{module_name}:{name}"):
        return None
    try:
        value = attrgetter(name)(sys.modules[module_name])
    except (AttributeError, KeyError):
        return None
    return f"{module_name}:{name}" if value is function else None


def _imported(module_name: str, text: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # The module itself or a parent of it is missing; a module that it imports is its own failure.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise _import_failed(module_name, text, error) from error
        hidden = _hidden(error.name)
        if hidden is not None:
            raise DefinitionError(f"{text}: {hidden}") from error
        raise DefinitionError(
            f"{text}: there is no module {error.name}; install it, start in the folder that has {_file(error.name)}, "
            f"or add that folder to PYTHONPATH"
        ) from error
    except RAISED as error:  # a module's own code may raise anything
        raise _import_failed(module_name, text, error) from error


def _hidden(module_name: str) -> str | None:
    """The error about a module whose file is there, but which cannot be imported.

    Another package has its folder's name; `None` if that is not so.
    """
    outer, _, _ = module_name.partition(".")
    package = sys.modules.get(outer)
    other = None if package is None else getattr(package, "__file__", None)
    for folder in sys.path:
        file = Path(folder) / _file(module_name)
        if other is not None and (file.is_file() or file.with_suffix("").is_dir()):
            owner = Path(other).absolute().parent
            whose = "streamer" if owner.parent == Path(__file__).absolute().parents[2] else f"the package in {owner}"
            return (
                f"{file} is not looked at, as the name {outer} belongs to {whose}; rename the folder "
                f"{Path(folder).absolute() / outer}"
            )
    return None


def _file(module_name: str) -> str:
    """The path of a module of one file, from the folder that `import` finds it in."""
    return f"{module_name.replace('.', '/')}.py"


def _import_failed(module_name: str, text: str, error: BaseException) -> DefinitionError:
    return DefinitionError(f"{text}: importing {module_name} failed with {type(error).__name__}: {error}")
