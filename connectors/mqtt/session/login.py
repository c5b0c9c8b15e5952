"""`Login`: a name and a password, or a token that a function returns for each connection."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.tokens import TokenFunction
from pipelines.errors import ConnectorError


@dataclass(frozen=True, slots=True)
class Login:
    """`token`, if there is one, is called for each connection, as tokens expire. `repr` shows no password."""

    username: str | None = None
    password: str | None = None
    token: TokenFunction | None = None

    def __repr__(self) -> str:
        return f"Login(username={self.username!r})"

    def credentials(self) -> tuple[str | None, bytes | None]:
        """The user name and the password for the next connection. Raises `ConnectorError` if the function fails."""
        if self.token is None:
            return self.username, None if self.password is None else self.password.encode()
        try:
            password, _ = self.token("")
            return self.username, password.encode()
        except Exception as error:  # the user's function may fail in any way
            raise ConnectorError(
                f"the token function failed: {type(error).__name__}: {error}; it has to give a text and when it ends",
                retriable=True,
            ) from error
