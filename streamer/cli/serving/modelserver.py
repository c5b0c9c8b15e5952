"""`ModelServer`: the models of a running server, by its repository's requests or its control port's commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

import httpx2

from pipelines.errors import StreamerError

TIMEOUT: Final = 600.0
"""Seconds that a model may take to be loaded."""
CONNECT: Final = 10.0
_NO_REPOSITORY: Final = frozenset({404, 405, 501})
"""What a server without a repository answers to requests for one."""
_SHOWN: Final = 500


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A version of a model, or a model that is not there."""

    name: str
    version: str
    state: str
    reason: str = ""


class ModelServer:
    """Asks the server at a URL: `http://host:port` of requests, or of a control port."""

    def __init__(self, url: str, token: str | None) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._url = url.rstrip("/").removesuffix("/v2")
        self._client = httpx2.Client(headers=headers, timeout=httpx2.Timeout(TIMEOUT, connect=CONNECT))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def models(self) -> list[ListedModel]:
        """All models with their states. Raises `StreamerError` where the server does not say."""
        answer = self._asked("POST", "/v2/repository/index")
        if answer.status_code not in _NO_REPOSITORY:
            return [
                ListedModel(entry["name"], entry.get("version", ""), entry.get("state", ""), entry.get("reason", ""))
                for entry in self._content(answer)
            ]
        services: Mapping[str, Any] = self._content(self._asked("GET", "/models"))
        return [
            ListedModel(name, version["version"], version["state"], version.get("reason", ""))
            for name, pages in services.items()
            for version in pages.get("versions", ())
        ]

    def load(self, name: str, parameters: Mapping[str, Any]) -> str:
        """Load a model of the repository, or look for new files of one that is loaded; its endpoint's name."""
        answer = self._asked("POST", f"/v2/repository/models/{quote(name)}/load", {"parameters": dict(parameters)})
        return str(self._content(answer).get("name", name))

    def unload(self, name: str) -> None:
        """Unload a model, or take one worker of it away."""
        self._content(self._asked("POST", f"/v2/repository/models/{quote(name)}/unload", {}))

    def reload(self, name: str) -> None:
        """Have a service look for new files of its models, in the repository or at a control port."""
        answer = self._asked("POST", f"/v2/repository/models/{quote(name)}/load", {})
        if answer.status_code in _NO_REPOSITORY:
            answer = self._asked("POST", f"/models/reload?service={quote(name, safe='')}")
        self._content(answer)

    def weigh(self, name: str, variant: str, weight: float) -> None:
        """Give a variant of a service another weight, at a control port."""
        path = f"/variants/{quote(variant, safe='')}?service={quote(name, safe='')}"
        answer = self._asked("POST", path, {"weight": weight})
        if answer.status_code == 404 and "/v2/" in answer.text:
            # The address of requests answers with the paths that it has.
            raise StreamerError(
                f"{self._url} answers requests; weights are changed at the service's control port (control.listen, "
                "with a control.token): give the URL of that"
            )
        self._content(answer)

    def _asked(self, method: str, path: str, body: object = None) -> httpx2.Response:
        try:
            return self._client.request(method, f"{self._url}{path}", json=body)
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise StreamerError(f"{self._url} does not answer: {error}; give the URL of a server that runs") from None

    def _content(self, answer: httpx2.Response) -> Any:
        try:
            content = answer.json()
        except ValueError:
            content = None
        if answer.is_success and content is not None:
            return content
        error = content.get("error") if isinstance(content, dict) else None
        text = error or answer.text[:_SHOWN] or "no text"
        hint = "; give the token by --token-file" if answer.status_code == 401 else ""
        raise StreamerError(f"{self._url} answers {answer.status_code}: {text}{hint}")
