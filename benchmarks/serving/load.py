"""Clients in a process of their own, each sending its next request when it has its answer: `python -m
benchmarks.serving.load ORDER`, an `Order` in JSON; it prints what it saw, a `Seen` in JSON.

It does little for an answer, so that the server is what is measured: over HTTP it looks for the body's length only.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import uvloop

from benchmarks.environments import ROOT

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
INFER = "/inference.GRPCInferenceService/ModelInfer"


@dataclass
class Order:
    """What to send, where, for how long and by how many clients."""

    port: int
    body: str
    """The file with the body; empty: GET."""
    seconds: float
    clients: int
    grpc: bool = False
    path: str = "/v2/models/model/infer"
    headers: list[str] = field(default_factory=list)


@dataclass
class Seen:
    """Answers, those that were errors, and seconds of an answer: the median and the longest."""

    answers: int
    failures: int
    median: float
    longest: float
    seconds: float


def seen(order: Order) -> Seen:
    """What clients see that do this."""
    command = [sys.executable, "-m", "benchmarks.serving.load", json.dumps(asdict(order))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=order.seconds + 90, check=False)
    if done.returncode:
        raise RuntimeError(f"the clients failed:\n{done.stderr[-2000:]}")
    return Seen(**json.loads(done.stdout))


class Client(asyncio.Protocol):
    """A connection that is kept, with one request at a time."""

    def __init__(self, request: bytes, tally: Tally) -> None:
        self._request = request
        self._tally = tally
        self._came = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._came = self._came + data if self._came else data
        head = self._came.find(b"\r\n\r\n")
        if head < 0 or len(self._came) < head + 4 + int(_LENGTH.search(self._came, 0, head)[1]):  # type: ignore[index]
            return
        good = self._came.startswith(b"HTTP/1.1 200")
        self._came = b""
        if self._tally.add(self._sent, good):
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tally.leave()

    def _send(self) -> None:
        self._sent = time.monotonic()
        self._transport.write(self._request)


class Tally:
    """Counts the answers of all clients until their time is over."""

    def __init__(self, order: Order) -> None:
        self._until = time.monotonic() + order.seconds
        self._began = time.monotonic()
        self._times: list[float] = []
        self._failures = 0
        self._left = order.clients
        self.over = asyncio.Event()

    def add(self, sent: float, good: bool) -> bool:
        """Count an answer; whether to go on."""
        now = time.monotonic()
        self._times.append(now - sent)
        self._failures += not good
        return now < self._until

    def leave(self) -> None:
        """A client ends."""
        self._left -= 1
        if not self._left:
            self.over.set()

    def seen(self) -> Seen:
        """What was counted."""
        times = sorted(self._times) or [0.0]
        seconds = time.monotonic() - self._began
        return Seen(len(self._times), self._failures, times[len(times) // 2], times[-1], seconds)


async def http(order: Order) -> Seen:
    """Send over HTTP."""
    body = Path(order.body).read_bytes() if order.body else b""
    lines = [
        f"{'POST' if order.body else 'GET'} {order.path} HTTP/1.1",
        f"host: 127.0.0.1:{order.port}",
        "content-type: application/json",
        *order.headers,
        f"content-length: {len(body)}",
    ]
    request = "\r\n".join([*lines, "", ""]).encode() + body
    tally = Tally(order)
    loop = asyncio.get_running_loop()
    for _ in range(order.clients):
        await loop.create_connection(lambda: Client(request, tally), "127.0.0.1", order.port)
    await tally.over.wait()
    return tally.seen()


async def rpc(order: Order) -> Seen:
    """Send over gRPC, all on one connection."""
    import grpc.aio

    body = Path(order.body).read_bytes()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{order.port}") as channel:
        call = channel.unary_unary(INFER)
        await channel.channel_ready()
        tally = Tally(order)

        async def client() -> None:
            going = True
            while going:
                sent = time.monotonic()
                try:
                    await call(body)
                    good = True
                except grpc.aio.AioRpcError:
                    good = False
                going = tally.add(sent, good)

        await asyncio.gather(*(client() for _ in range(order.clients)))
        return tally.seen()


def main(given: str) -> None:
    """Do what the order says."""
    order = Order(**json.loads(given))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    print(json.dumps(asdict(uvloop.run(rpc(order) if order.grpc else http(order)))))


if __name__ == "__main__":
    main(sys.argv[1])
