"""`App`: the ASGI application of a listener. `POST .../infer` is answered here, everything else by `routes`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.model import VERSION, ServedModel
from connectors.http.endpoint.request import Answer, Request
from pipelines.errors import nearest

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MODELS: Final = "/v2/models/"
INFER: Final = "/infer"
RETRY: Final = (b"retry-after", b"1")


class App:
    """Takes requests from uvicorn, hands them to the inbox of their model, and writes the answers."""

    def __init__(self, config: HttpSourceConfig, models: Mapping[str, ServedModel]) -> None:
        self._config = config
        self._models = models

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        answer = await self._answer(scope, receive)
        headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        path: str = scope["path"]
        if not (path.startswith(MODELS) and path.endswith(INFER)):
            return Answer.refusal(404, f"there is no {path}")
        if scope["method"] != "POST":
            return Answer.refusal(405, "POST is needed", (b"allow", b"POST"))
        model = self._model(path.removeprefix(MODELS).removesuffix(INFER))
        return model if isinstance(model, Answer) else await self._infer(model, scope, receive)

    def _model(self, name: str) -> ServedModel | Answer:
        model = self._models.get(name)
        if model is None and "/versions/" in name:
            name, _, version = name.rpartition("/versions/")
            model = self._models.get(name)
            if model is not None and version != VERSION:
                return Answer.refusal(404, f'the model "{name}" has no version "{version}"; there is {VERSION}')
        if model is None:
            known = ", ".join(self._models)
            return Answer.refusal(404, f'there is no model "{name}"{nearest(name, self._models)}; there is {known}')
        return model

    async def _infer(self, model: ServedModel, scope: Scope, receive: Receive) -> Answer:
        body = await _body(receive, model.config.max_body)
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
            return Answer.refusal(503, "too many requests wait, or the service is stopping; try again", RETRY)
        try:
            async with asyncio.timeout(model.config.timeout):
                return await request.future
        except TimeoutError:
            model.inbox.withdraw(request)
            return Answer.refusal(504, f"there was no answer within {model.config.timeout:g} s")


async def _body(receive: Receive, most: int) -> bytes | Answer:
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body
    parts, size = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return Answer.refusal(413, f"the body is larger than {most} bytes (max_body)")
    return b"".join(parts)
