"""Classes of errors by their names, as definitions have them."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from functools import cache
from typing import Final, TypeAlias

from pipelines import errors
from pipelines.definitions.functions import resolve
from pipelines.errors import DefinitionError, StreamerError, nearest

ErrorClass: TypeAlias = str | type[BaseException]
"""A class of errors, or its name."""

_NAME: Final = re.compile(r"[^\W\d]\w*([.:][^\W\d]\w*)*")


def check_error_class(error: ErrorClass) -> None:
    """Raise `DefinitionError` for a name without a module that is no error, and for one that cannot be a name.

    Modules are not imported.
    """
    if isinstance(error, str):
        if needs_import(error):
            if _NAME.fullmatch(error) is None or error.count(":") > 1:
                raise DefinitionError(f'"{error}" is no name of a class of errors, like requests.exceptions.Timeout')
        elif error not in _known():
            raise DefinitionError(
                f'there is no error "{error}"{nearest(error, _known())}; one that is not of Python itself has its '
                "module before its name: requests.exceptions.Timeout"
            )
    elif not (isinstance(error, type) and issubclass(error, BaseException)):
        raise DefinitionError(f"{error!r} is no class of errors")


def is_known(error: type) -> bool:
    """Whether the class is found by its bare name."""
    return _known().get(error.__name__) is error


def needs_import(error: ErrorClass) -> bool:
    """Whether a module has to be imported to get the class."""
    return isinstance(error, str) and ("." in error or ":" in error)


def module_of(error: ErrorClass) -> str:
    """The module that a name names; empty if it names none."""
    return _reference(error).partition(":")[0] if isinstance(error, str) and needs_import(error) else ""


def error_class(error: ErrorClass, *, allowed: bool) -> type[BaseException]:
    """The class that a name stands for; its module is imported.

    Raises `DefinitionError` if there is no such class, `StreamerError` if code is not `allowed` and a module would have
    to be imported.
    """
    check_error_class(error)
    if not isinstance(error, str):
        return error
    if not needs_import(error):
        return _known()[error]
    if not allowed:
        raise StreamerError(f"{error} has to be imported, and code from definitions is not allowed here; remove it")
    named = resolve(_reference(error))
    if not (isinstance(named, type) and issubclass(named, BaseException)):
        raise DefinitionError(f"{error} is no class of errors")
    return named


def _reference(name: str) -> str:
    module, _, last = name.rpartition(".")
    return name if ":" in name else f"{module}:{last}"


@cache
def _known() -> Mapping[str, type[BaseException]]:
    """Python's errors and those of this project, by name."""
    classes = [*vars(builtins).values(), *vars(errors).values()]
    kinds = {kind.__name__: kind for kind in classes if isinstance(kind, type) and issubclass(kind, BaseException)}
    # Ctrl-C ends a program, and the others are Python's business: no step fails with them.
    for name in ("BaseException", "BaseExceptionGroup", "KeyboardInterrupt", "GeneratorExit"):
        kinds.pop(name)
    return kinds
