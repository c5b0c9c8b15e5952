"""`Routes`: all that a listener answers besides requests for models: health, metadata."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from connectors.http.endpoint import metadata
from connectors.http.endpoint.names import MODELS, named_model
from connectors.http.endpoint.openapi import document
from connectors.http.endpoint.repository.models import Models
from connectors.http.endpoint.repository.requests import INDEX
from connectors.http.endpoint.request import JSON, Answer

LIVE: Final = "/v2/health/live"
READY: Final = "/v2/health/ready"
NOT_OFFERED: Final = (
    "/v2/repository/models/",
    "/v2/systemsharedmemory",
    "/v2/cudasharedmemory",
    "/v2/logging",
    "/v2/trace/setting",
)
"""Beginnings of paths of Triton's extensions that there are not here."""
_OF_MODEL: Final = ("/ready", "/config", "/stats", "/trace/setting")


class Routes:
    """Answers from what is known, without waiting."""

    def __init__(self, models: Models) -> None:
        self._models = models
        self._fixed: dict[str, Callable[[], Answer]] = {
            "/v2": lambda: _json(metadata.server(controlled=models.controlled)),
            LIVE: self._live,
            READY: self._ready,
            "/v2/models": lambda: _json({"models": [{"name": name, "version": "1"} for name in self._models]}),
            "/openapi.json": lambda: _json(document(list(models.values()), controlled=models.controlled)),
        }

    def health(self, path: str) -> Answer | None:
        """The answer to a probe, without reasons; `None` for other paths."""
        if path == LIVE:
            return self._live()
        return self._ready() if path == READY else None

    def answer(self, method: str, path: str) -> Answer:
        """The answer to a request for anything but the result of a model."""
        get = self._fixed.get(path.removesuffix("/"))
        if get is not None:
            return get() if method in ("GET", "HEAD") else _not_allowed(method, path, "GET, HEAD")
        if path == INDEX:
            return _not_allowed(method, path, "POST")
        if path.startswith(NOT_OFFERED) or path.endswith("/trace/setting") or path == "/v2/models/stats":
            return Answer.refusal(501, f"{path} is not offered: models are those of the services that run")
        if path.startswith(MODELS):
            return self._of_model(method, path)
        there = "/v2/models/NAME/infer, /v2/models/NAME, /v2/models, /v2, /v2/health/live, /v2/health/ready, /v1/NAME"
        return Answer.refusal(404, f"there is no {path}; there are {there} and /openapi.json")

    def _of_model(self, method: str, path: str) -> Answer:
        named = path.removeprefix(MODELS)
        meant = named_model(self._models, named)
        part = ""
        if isinstance(meant, Answer):
            part = next((end for end in _OF_MODEL if named.endswith(end)), "")
            if not part:
                return meant
            meant = named_model(self._models, named.removesuffix(part))
            if isinstance(meant, Answer):
                return meant
        model = meant.model
        if method not in ("GET", "HEAD"):
            return _not_allowed(method, path, "GET, HEAD")
        if part == "/ready":
            trouble = model.served.trouble()
            return _json({"name": model.name, "ready": trouble is None}, 200 if trouble is None else 503)
        if part == "/config":
            return _json(metadata.configuration(model))
        if part:
            return Answer.refusal(501, f"{part} of a model is not offered; the control port has /metrics")
        return _json(metadata.model(model))

    def _live(self) -> Answer:
        live = all(model.served.stuck() is None for model in list(self._models.values()))
        return _json({"live": live}, 200 if live else 503)

    def _ready(self) -> Answer:
        ready = self._models.trouble() is None
        return _json({"ready": ready}, 200 if ready else 503)


def _json(content: Any, status: int = 200) -> Answer:
    return Answer(status, (JSON,), json.dumps(content, ensure_ascii=False).encode())


def _not_allowed(method: str, path: str, allowed: str) -> Answer:
    return Answer.refusal(405, f"{method} is not for {path}; {allowed} is", (b"allow", allowed.encode()))
