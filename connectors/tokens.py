"""Users' functions that return a login token, named in a service file as `module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from pipelines.errors import ConnectorError

TokenFunction = Callable[[str], tuple[str, float]]
"""Gets a setting as text (may be empty); returns the token, and when it expires, in seconds since 1970."""


def token_function(key: str, reference: str) -> TokenFunction:
    """The function that `reference` (`module:function`) names; `key` is the field it stands in, for errors.

    Its module is imported, which runs code: a connector says so by `code_keys` and `functions` of its configuration.
    Raises `ConnectorError` for one that cannot be loaded or is no function.
    """
    module, _, name = reference.partition(":")
    try:
        attribute: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConnectorError(f'{key} "{reference}" cannot be loaded ({error}); name it as module:function') from error
    if not callable(attribute):
        raise ConnectorError(f'{key} "{reference}" is not a function')
    function: TokenFunction = attribute
    return function
