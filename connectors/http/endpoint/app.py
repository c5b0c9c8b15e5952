"""`App`: the ASGI application of a listener. Requests for models are answered here, all others by `Routes`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from connectors.http.endpoint.admission import Admission
from connectors.http.endpoint.bounds import CONNECTION, BoundedProtocol
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.encodings import compressed, decompressed, wanted
from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.names import INFER, MODELS, found_model
from connectors.http.endpoint.request import Answer, Request
from connectors.http.endpoint.routes import Routes

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PLAIN: Final = "/v1/"
PREDICT: Final = "/predict"
RETRY: Final = (b"retry-after", b"1")
_LARGE: Final = 64 << 10
"""Bytes of an answer from which its client may be too slow for it."""
_PER_MIB: Final = 1.0
"""Seconds that each MiB of a body may take besides `timeout`."""


class App:
    """Takes requests from uvicorn, hands them to the inbox of their model, and writes the answers."""

    def __init__(self, config: HttpSourceConfig, models: Mapping[str, ServedModel]) -> None:
        self._models = models
        self._admission = Admission(config)
        self._routes = Routes(models)
        self._timeout = config.timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        answer = await self._answer(scope, headers, receive)
        if (encoding := wanted(headers.get(b"accept-encoding", b""))) is not None:
            answer = await compressed(answer, encoding)
        length = (b"content-length", b"%d" % len(answer.body))
        await send({"type": "http.response.start", "status": answer.status, "headers": [*answer.headers, length]})
        body = b"" if scope["method"] == "HEAD" else answer.body
        if len(body) < _LARGE:
            await send({"type": "http.response.body", "body": body})
            return
        try:
            async with asyncio.timeout(self._timeout + _PER_MIB * len(body) / 2**20):
                await send({"type": "http.response.body", "body": body})
        except TimeoutError:
            connection: BoundedProtocol = scope[CONNECTION]
            connection.transport.abort()

    async def _answer(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
        path: str = scope["path"]
        refusal = self._admission.refusal(headers)
        if refusal is not None:
            # Probes have no token.
            return self._routes.health(path) or refusal
        model = self._model(path)
        if model is None:
            return self._routes.answer(scope["method"], path)
        if isinstance(model, Answer):
            return model
        if scope["method"] != "POST":
            return Answer.refusal(405, f"{scope['method']} is not for {path}; POST is", (b"allow", b"POST"))
        answer = await self._infer(model, scope, headers, receive)
        model.counts.answered["http", answer.status] += 1
        return answer

    def _model(self, path: str) -> ServedModel | Answer | None:
        """The model that a request to this path is for, or why there is none; `None` for other paths."""
        if path.endswith(INFER) and path.startswith(MODELS):
            model = found_model(self._models, path[len(MODELS) : -len(INFER)])
            if isinstance(model, Answer) or model.speaks_inference:
                return model
            return Answer.refusal(
                400, f'"{model.name}" has the codec {model.codec}: send such bodies to {PLAIN}{model.name}'
            )
        if path.startswith(PLAIN):
            return found_model(self._models, path[len(PLAIN) :].removesuffix("/"))
        if path == PREDICT:
            models = list(self._models.values())
            if len(models) == 1:
                return models[0]
            named = ", ".join(f"{PLAIN}{name}" for name in self._models)
            return Answer.refusal(404, f"{PREDICT} is for a listener of one service; here there are {named}")
        return None

    async def _infer(
        self, model: ServedModel, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Answer:
        body = await _body(model.config, headers, receive)
        if isinstance(body, Answer):
            return body
        now = time.monotonic()
        client = scope.get("client")
        request = Request(
            body,
            scope["headers"],
            asyncio.get_running_loop().create_future(),
            "http",
            scope["path"],
            f"{client[0]}:{client[1]}" if client else "",
            now + model.config.timeout,
            now,
            int(time.time() * 1000),
        )
        if not model.inbox.put(request):
            return refused(model)
        connection: BoundedProtocol = scope[CONNECTION]
        connection.awaited = request.future
        try:
            return await request.future
        except asyncio.CancelledError:
            model.inbox.withdraw(request)
            model.counts.cancelled += 1
            raise
        finally:
            connection.awaited = None


def refused(model: ServedModel) -> Answer:
    """The answer to a request for which the model's inbox has no place."""
    if not model.inbox.is_open:
        return Answer.refusal(503, "the service is stopping; send the request again", RETRY)
    return Answer.refusal(503, "too many requests wait; try again later (max_waiting, max_held)", RETRY)


async def _body(config: HttpSourceConfig, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | Answer:
    """The body of a request, decompressed, or the answer to one that cannot be had."""
    most = config.max_body
    too_large = f"the body is larger than {most} bytes (max_body)"
    length = headers.get(b"content-length", b"0")
    if len(length) > 18 or int(length) > most:
        return Answer.refusal(413, too_large, (b"connection", b"close"))
    message = await receive()
    body: bytes = message.get("body", b"")
    if message.get("more_body", False):
        parts, size = [body], len(body)
        try:
            async with asyncio.timeout(config.timeout + _PER_MIB * int(length) / 2**20):
                while message.get("more_body", False):
                    message = await receive()
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > most:
                        return Answer.refusal(413, too_large, (b"connection", b"close"))
        except TimeoutError:
            return Answer.refusal(408, "the body did not come in time", (b"connection", b"close"))
        body = b"".join(parts)
    if message["type"] == "http.disconnect":
        raise asyncio.CancelledError
    encoding = headers.get(b"content-encoding")
    return body if encoding is None else await decompressed(body, encoding, most)
