"""The least that a server with batches costs: uvicorn and grpc.aio, a queue, a thread with the model, nothing else.

It checks nothing, and reads only the requests of this benchmark. Requests that are there when the thread is free are
run together. Arguments: model, its ports of HTTP and gRPC.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any

import grpc
import grpc.aio
import numpy as np
import onnxruntime
import uvicorn
import uvloop

from connectors.codecs.inference import wire

Ask = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Waiting = tuple[Any, "asyncio.Future[Any]"]

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
requests: SimpleQueue[Waiting] = SimpleQueue()
HEADERS = [(b"content-type", b"application/json")]


def work(loop: asyncio.AbstractEventLoop) -> None:
    """Run all requests that are there, again and again."""
    while True:
        batch = [requests.get()]
        while not requests.empty():
            batch.append(requests.get())
        (y,) = session.run(None, {"x": np.array([row for row, _ in batch], np.float32)})
        loop.call_soon_threadsafe(answer, batch, y)


def answer(batch: list[Waiting], y: np.ndarray[Any, Any]) -> None:
    """Give each request its row, in the loop."""
    for (_, future), row in zip(batch, y, strict=True):
        if not future.done():
            future.set_result(row)


async def result(row: Any) -> Any:
    """What the model makes of a row."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    requests.put((row, future))
    return await future


async def app(scope: dict[str, Any], receive: Ask, send: Send) -> None:
    """A request of 64 numbers in JSON."""
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    row = await result(json.loads(body)["inputs"][0]["data"])
    outputs = [{"name": "y", "shape": [1, 10], "datatype": "FP32", "data": row.tolist()}]
    made = json.dumps({"outputs": outputs}).encode()
    headers = [*HEADERS, (b"content-length", b"%d" % len(made))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": made})


async def infer(message: bytes, context: object) -> bytes:
    """The numbers are the last 256 bytes of the message."""
    row = await result(np.frombuffer(message, np.float32, 64, len(message) - 256))
    return wire.write_message("model", {"y": row.reshape(1, 10)})


class Handler(grpc.GenericRpcHandler):
    """Every method is `infer`."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """The handler of a call."""
        return grpc.unary_unary_rpc_method_handler(infer)


async def main(http: int, rpc: int) -> None:
    """Listen until SIGTERM."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port(f"127.0.0.1:{rpc}")
    await server.start()
    threading.Thread(target=work, args=(asyncio.get_running_loop(),), daemon=True).start()
    config = uvicorn.Config(app, port=http, lifespan="off", access_log=False, log_level="error", http="httptools")
    await uvicorn.Server(config).serve()
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[2]), int(sys.argv[3])))
