"""Records of files as requests over HTTP, and their answers in the same order: `streamer send --http`."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from connectors.codecs.registry import codec_of
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import StreamerError
from streamer.client.client import Client
from streamer.client.errors import RequestError

TIMEOUT: Final = 60.0
AT_ONCE: Final = 8
"""The most requests that are under way: a test of a service, no load."""
_SHOWN: Final = 500
"""Characters of an answer in an error."""
_PLAIN: Final = ("/v1/", "/predict")
_TYPES: Final = {"json": "application/json", "konduit-json": "application/json", "msgpack": "application/msgpack"}


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of a request: the answer as plain data, or an error."""

    number: int
    """The number of the record, from 1."""
    answer: Any
    error: str | None = None
    status: int | None = None
    """The status of HTTP of an error; `None` where nothing answered."""


class Asking:
    """Sends records to a URL, and gives their answers in the order of the records.

    A URL of `/v1/NAME` or `/predict` gets payloads as they are encoded; any other is a server of the Open Inference
    Protocol, `http://host:port/v2/models/NAME`, whose requests are made by `streamer.Client`.
    """

    def __init__(self, url: str, token: str | None, setting: str | dict[str, object] | None, *, raw: bool) -> None:
        """`setting` is the codec of payloads; `raw`: they are bodies as they are."""
        self.url = url
        self._stack = ExitStack()
        self._under_way: deque[Future[Answered]] = deque()
        self._sent = 0
        path = urlsplit(url).path
        plain = any(path.startswith(start) for start in _PLAIN)
        self.codec: str | dict[str, object] = "objects" if not (plain or raw) else setting or "json"
        """The codec that makes payloads of records."""
        if plain or raw:
            self._ask = self._post(url if plain or path.endswith("/infer") else f"{url.rstrip('/')}/infer", token)
        else:
            self._ask = self._call(url.removesuffix("/infer"), token)

    def send(self, payload: Any) -> Iterator[Answered]:
        """Send a payload of `codec`; the answers that had to come first."""
        while len(self._under_way) >= AT_ONCE:
            yield self._under_way.popleft().result()
        self._sent += 1
        self._under_way.append(self._ask(self._sent, payload))

    def rest(self) -> Iterator[Answered]:
        """The answers that are missing yet."""
        while self._under_way:
            yield self._under_way.popleft().result()

    def close(self) -> None:
        """Disconnect."""
        self._stack.close()

    def _call(self, url: str, token: str | None) -> Callable[[int, Any], Future[Answered]]:
        client = self._stack.enter_context(Client(url, token=token, timeout=TIMEOUT, pending=AT_ONCE))
        pool = self._stack.enter_context(ThreadPoolExecutor(AT_ONCE))

        def ask(number: int, record: Data) -> Answered:
            try:
                return Answered(number, _of_result(client(record)))
            except RequestError as error:
                return Answered(number, None, str(error), error.status)
            except StreamerError as error:
                return Answered(number, None, str(error))

        return lambda number, record: pool.submit(ask, number, record)

    def _post(self, url: str, token: str | None) -> Callable[[int, Any], Future[Answered]]:
        kind = self.codec if isinstance(self.codec, str) else str(self.codec.get("type"))
        headers = {"content-type": _TYPES.get(kind, "application/octet-stream")}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        client = self._stack.enter_context(httpx2.Client(headers=headers, timeout=TIMEOUT))
        pool = self._stack.enter_context(ThreadPoolExecutor(AT_ONCE))

        def ask(number: int, body: bytes) -> Answered:
            try:
                answer = client.post(url, content=body)
            except httpx2.TransportError as error:
                return Answered(number, None, f"{url} does not answer: {error}")
            if answer.is_success:
                return Answered(number, _plain(answer))
            return Answered(number, None, _error(answer), answer.status_code)

        return lambda number, body: pool.submit(ask, number, body)


def _plain(answer: httpx2.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return answer.text


def _of_result(result: Data) -> Any:
    encoded = codec_of("json").encode(Batch.of([result]))
    for error in encoded.failed.values():
        raise error
    return json.loads(encoded.values[0] or b"{}")


def _error(answer: httpx2.Response) -> str:
    try:
        document = answer.json()
    except ValueError:
        return answer.text[:_SHOWN]
    text = document.get("error", document.get("errorMessage")) if isinstance(document, dict) else None
    return str(text or answer.text[:_SHOWN])
