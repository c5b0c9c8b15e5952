"""`App`: the ASGI application of a listener. Requests for models are answered here, all others by `Routes`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from connectors.http.connection import COMPLETE, CONNECTION, BoundedProtocol
from connectors.http.endpoint.admission import Admission
from connectors.http.endpoint.bodies import Bodies, Receive, discarded
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.encodings import compressed, wanted
from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.names import INFER, MODELS, Named, named_model
from connectors.http.endpoint.repository.models import Models
from connectors.http.endpoint.repository.requests import RepositoryRequests
from connectors.http.endpoint.request import Answer, Request, sendable
from connectors.http.endpoint.routes import Routes
from connectors.http.longbody import BODY, LongBody

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger(__name__)

PLAIN: Final = "/v1/"
_MODELS, _INFER, _PLAIN = MODELS.encode(), INFER.encode(), PLAIN.encode()
PREDICT: Final = "/predict"
STOPPING: Final = Answer.refusal(503, "the service is stopping; send the request again", (b"connection", b"close"))
HEADER_LENGTH: Final = b"inference-header-content-length"
BROKEN: Final = Answer.refusal(500, "the server could not answer; its log says why")


class App:
    """Takes requests from uvicorn, hands them to the inbox of their model, and writes the answers."""

    def __init__(self, config: HttpSourceConfig, models: Models) -> None:
        self._models = models
        self._admission = Admission(config)
        self._routes = Routes(models)
        self._repository = RepositoryRequests(config, models)
        self._bodies = Bodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        try:
            named = self._model_of(scope, headers)
        except Exception as error:  # noqa: BLE001 - any error ends this request only
            _log.error("no answer to %s: %s: %s", scope["path"], type(error).__name__, error)
            named = BROKEN
        if named is None:
            there = COMPLETE in scope
            known = await self._repository.answer(scope["path"], headers, receive, is_there=there)
            if known is None:
                return
            answer = known
        elif isinstance(named, Answer):
            answer = named if COMPLETE in scope else await discarded(named, headers, receive)
        else:
            answered = await self._infer(named, scope, headers, receive)
            if answered is None:
                return
            answer = answered
            named.model.counts.answered["http", answer.status] += 1
        if not sendable(answer.headers):
            answer = BROKEN
        if (encoding := wanted(headers.get(b"accept-encoding", b""))) is not None:
            answer = await compressed(answer, encoding)
        length = (b"content-length", b"%d" % len(answer.body))
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, length]})
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    def direct(self, url: bytes, headers: Mapping[bytes, bytes]) -> ServedModel | None:
        """The model that a POST to `url` is for, if the request needs nothing that `__call__` does besides."""
        if url.startswith(_MODELS) and url.endswith(_INFER):
            model = self._models.get(url[len(_MODELS) : -len(_INFER)].decode("latin-1"))
            if model is None or not model.speaks_inference:
                return None
        elif url.startswith(_PLAIN):
            model = self._models.get(url[len(_PLAIN) :].decode("latin-1"))
        else:
            return None
        return None if model is None or self._admission.refusal(headers) is not None else model

    def _model_of(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Named | Answer | None:
        """The model that is to answer this request, or the answer, where none is; `None`: the repository is."""
        path: str = scope["path"]
        refusal = self._admission.refusal(headers)
        if refusal is not None:
            # Probes have no token.
            return self._routes.health(path) or refusal
        named = self._named(path)
        if named is None:
            if self._repository.take(scope["method"], path):
                return None
            return self._routes.answer(scope["method"], path)
        if isinstance(named, Named) and scope["method"] != "POST":
            return Answer.refusal(405, f"{scope['method']} is not for {path}; POST is", (b"allow", b"POST"))
        return named

    def _named(self, path: str) -> Named | Answer | None:
        """The model that a request to this path is for, or why there is none; `None` for other paths."""
        if path.endswith(INFER) and path.startswith(MODELS):
            named = named_model(self._models, path[len(MODELS) : -len(INFER)])
            if isinstance(named, Answer) or named.model.speaks_inference:
                return named
            model = named.model
            return Answer.refusal(
                400, f'"{model.name}" has the codec {model.codec}: send such bodies to {PLAIN}{model.name}'
            )
        if path.startswith(PLAIN):
            return named_model(self._models, path[len(PLAIN) :].removesuffix("/"))
        if path == PREDICT:
            models = list(self._models.values())
            if len(models) == 1:
                return Named(models[0])
            known = ", ".join(f"{PLAIN}{name}" for name in self._models)
            return Answer.refusal(404, f"{PREDICT} is for a listener of one service; here there are {known}")
        return None

    async def _infer(
        self, named: Named, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Answer | None:
        """The answer of a model; `None` if its client has gone."""
        model = named.model
        long: LongBody | None = scope.get(BODY)
        if long is not None and model.speaks_inference and model.served.answers:
            # Other codecs, and dead letters, are for bytes.
            length = headers.get(HEADER_LENGTH, b"")
            long.aligned_at = int(length[:19]) if length.isdigit() else 0
        body = await self._bodies.read(model.config, headers, receive, long, is_there=COMPLETE in scope)
        if body is None or isinstance(body, Answer):
            return body
        now = time.monotonic()
        client = scope.get("client")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        request = Request(
            body,
            scope["headers"],
            future,
            "http",
            scope["path"],
            f"{client[0]}:{client[1]}" if client else "",
            now + model.config.timeout,
            now,
            int(time.time() * 1000),
            version=named.version,
        )
        refusal = model.put(request)
        if refusal is not None:
            return refusal
        connection: BoundedProtocol = scope[CONNECTION]
        connection.awaited = future
        try:
            return await future
        except asyncio.CancelledError:
            model.inbox.withdraw(request)
            if not connection.transport.is_closing():
                return STOPPING
            model.counts.cancelled += 1
            return None
        finally:
            connection.awaited = None
