"""Every name that a user or an author of plug-ins imports has a docstring, its own or that of what it overrides.

Ruff checks the form of docstrings; it cannot see which methods inherit theirs.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

MODULES = (
    "pipelines",
    "pipelines.arrow",
    "pipelines.errors",
    "pipelines.metrics",
    "pipelines.tensors",
    "pipelines.values",
    "connectors.browser",
    "connectors.codec",
    "connectors.codecs.config",
    "connectors.codecs.rows",
    "connectors.config",
    "connectors.contract",
    "connectors.measures",
    "connectors.message",
    "connectors.records",
    "connectors.sink",
    "connectors.source",
    "streamer",
    "streamer.testing",
)


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    exported = getattr(module, "__all__", None)
    for name in exported or vars(module):
        value = getattr(module, name)
        ours = exported is not None or getattr(value, "__module__", None) == module.__name__
        if ours and not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


def _undocumented(name: str, value: Any) -> Iterator[str]:
    if not value.__doc__:
        yield name
    for method, member in vars(value).items() if inspect.isclass(value) else ():
        callable_ = isinstance(member, (property, classmethod, staticmethod)) or inspect.isfunction(member)
        if method.startswith("_") or not callable_:
            continue
        if not any(vars(base)[method].__doc__ for base in value.__mro__ if method in vars(base)):
            yield f"{name}.{method}"


@pytest.mark.parametrize("module", MODULES)
def test_public_names_have_docstrings(module: str) -> None:
    names = list(_public(import_module(module)))
    assert names
    assert [text for name, value in names for text in _undocumented(name, value)] == []
