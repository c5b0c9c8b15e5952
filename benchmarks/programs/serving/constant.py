"""Servers that answer the same bytes to everything: what uvicorn and grpc.aio cost by themselves. Arguments: `http` or
`grpc`, port."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import numpy as np
import uvicorn
import uvloop

from connectors.codecs.inference import wire

ANSWER = {"outputs": [{"name": "y", "shape": [1, 10], "datatype": "FP32", "data": [0.125] * 10}]}
Ask = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def http(port: int) -> None:
    """Bare ASGI on uvicorn, with the loop and the parser that the service has, too."""
    body = json.dumps(ANSWER, separators=(",", ":")).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]

    async def app(scope: dict[str, Any], receive: Ask, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    uvicorn.run(app, port=port, lifespan="off", access_log=False, log_level="error", loop="uvloop", http="httptools")


async def rpc(port: int) -> None:
    """A generic handler without (de)serialisers."""
    answer = wire.write_message("model", {"y": np.zeros((1, 10), np.float32)})

    async def infer(message: bytes, context: object) -> bytes:
        return answer

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(infer)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    if sys.argv[1] == "http":
        http(int(sys.argv[2]))
    else:
        uvloop.run(rpc(int(sys.argv[2])))
