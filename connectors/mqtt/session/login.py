"""What a client logs in with: a name and a password, or a token that a function gives anew for each connection."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipelines.errors import ConnectorError

TokenFunction = Callable[[], str | bytes | tuple[str, str | bytes]]
"""Gives the password, or the user name and the password, of the next connection."""


@dataclass(frozen=True, slots=True)
class Login:
    """`token`, where there is one, is asked for each connection: tokens end. Nothing of it is shown by `repr`."""

    username: str | None = None
    password: str | bytes | None = None
    token: TokenFunction | None = None

    def __repr__(self) -> str:
        return f"Login(username={self.username!r})"

    def credentials(self) -> tuple[str | None, bytes | None]:
        """The user name and the password for the next connection. Raises `ConnectorError` where the function fails."""
        if self.token is None:
            return self.username, _encoded(self.password)
        try:
            found = self.token()
        except Exception as error:  # the user's function may fail in any way
            raise ConnectorError(
                f"the token function failed: {type(error).__name__}: {error}", retriable=True
            ) from error
        username, password = found if isinstance(found, tuple) else (self.username, found)
        if not isinstance(password, (str, bytes)) or not isinstance(username, (str, type(None))):
            raise ConnectorError(
                f"the token function gave {type(found).__name__}: it must give the password as str or bytes, or "
                "(user name, password)"
            )
        return username, _encoded(password)


def token_function(reference: str) -> TokenFunction:
    """The function `module:function`. Raises `ConnectorError`."""
    module, _, name = reference.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConnectorError(f'token "{reference}" cannot be loaded ({error}); name it as module:function') from error
    if not callable(found):
        raise ConnectorError(f'token "{reference}" is no function')
    function: TokenFunction = found
    return function


def _encoded(password: str | bytes | None) -> bytes | None:
    return password.encode() if isinstance(password, str) else password
