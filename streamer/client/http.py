"""Requests over HTTP, by the Open Inference Protocol with binary tensors."""

from __future__ import annotations

import random
import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import httpx2
import msgspec

from connectors.codecs.inference.wire import HEADER_LENGTH, read_answer, write_request
from pipelines import Data
from pipelines.errors import DefinitionError, WireError
from pipelines.executors.ports import Ports
from streamer.client.errors import RequestError, RequestTimeout
from streamer.client.inputs import Inputs
from streamer.client.metadata import ports_of
from streamer.client.transport import Transport

MODELS: Final = "/v2/models/"
_IDLE: Final = 3.0
"""Seconds for which unused connections are kept: less than servers keep them, whose closing may cross a request."""
_BUSY: Final = 503
_SHOWN: Final = 500
"""Characters of an answer that is no JSON in an error."""


class _Known(NamedTuple):
    """A model of a server."""

    path: str
    ports: Ports
    inputs: Inputs
    binary: bool
    """Whether tensors are sent as bytes, rather than as JSON."""


class HttpTransport(Transport):
    """A server at `url`, with a pool of connections.

    A request that is answered with 503, as the server is busy or stops, is sent again until its deadline.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None,
        version: str | None,
        outputs: Sequence[str] | None,
        token: str | None,
        verify: bool | str | None,
        pending: int,
    ) -> None:
        """Arguments are those of `streamer.Client`. Raises `DefinitionError`."""
        self.pending = pending
        self._root, in_path = _split(url)
        if model is not None and in_path is not None and model != in_path:
            raise DefinitionError(f'the address names the model "{in_path}", and the argument "{model}"; leave one out')
        self._model = model or in_path
        self._version = version
        self._outputs = None if outputs is None else list(outputs)
        headers = {"accept-encoding": "identity", "user-agent": "streamer"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._http = httpx2.Client(
            # Making a context takes a while, and without TLS there is none.
            verify=_trusted(verify) if self._root.lower().startswith("https:") else False,
            headers=headers,
            limits=httpx2.Limits(max_connections=pending, max_keepalive_connections=pending, keepalive_expiry=_IDLE),
        )
        self._urls: dict[str, httpx2.URL] = {}
        """Addresses by path, as parsing one takes a while."""
        self._lock = threading.Lock()
        self._model_known: _Known | None = None
        self._threads = ThreadPoolExecutor(pending, thread_name_prefix="streamer-client")

    def open(self, deadline: float) -> None:
        """Nothing: the pool connects by itself."""

    def submit(self, values: Data, deadline: float) -> Future[Data]:
        """See `Transport.submit`."""
        return self._threads.submit(self.call, values, deadline)

    def call(self, values: Data, deadline: float) -> Data:
        """See `Transport.call`."""
        known = self._known(deadline)
        tensors = known.inputs.tensors(values)
        body, length = write_request(tensors.arrays, outputs=self._outputs, binary=known.binary)
        headers = {"content-type": "application/json"}
        if length is not None:
            headers = {"content-type": "application/octet-stream", HEADER_LENGTH: str(length)}
        answer = self._asked("POST", f"{known.path}/infer", deadline, body, headers)
        if answer.status_code == httpx2.codes.ACCEPTED:
            return Data()
        if answer.status_code != httpx2.codes.OK:
            # Perhaps another model has the name now.
            self._model_known = None
            raise self._refused(answer)
        said = answer.headers.get(HEADER_LENGTH)
        try:
            outputs = read_answer(answer.content, None if said is None else int(said))
        except ValueError as error:
            raise RequestError(f"the answer of {self._root} cannot be read: {error}", status=200) from error
        return known.inputs.result(outputs, tensors.single)

    def ports(self, deadline: float) -> Ports:
        """See `Transport.ports`."""
        return self._known(deadline).ports

    def trouble(self, deadline: float) -> str | None:
        """See `Transport.trouble`."""
        try:
            answer = self._once("GET", f"{self._path(deadline)}/ready", deadline)
        except RequestError as error:
            return str(error)
        return None if answer.status_code == httpx2.codes.OK else str(self._refused(answer))

    def close(self) -> None:
        """See `Transport.close`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def _known(self, deadline: float) -> _Known:
        """What is to be known of the model; asked for once."""
        known = self._model_known
        if known is not None:
            return known
        with self._lock:
            if self._model_known is None:
                path = self._path(deadline)
                answer = self._asked("GET", path, deadline)
                if answer.status_code != httpx2.codes.OK:
                    raise self._refused(answer)
                try:
                    ports = ports_of(_document(answer))
                except WireError as error:
                    raise RequestError(f"{self._root}: {error}", status=200) from error
                inputs = Inputs(f'the model "{self._model}"', ports)
                self._model_known = _Known(path, ports, inputs, self._takes_bytes(deadline))
            return self._model_known

    def _takes_bytes(self, deadline: float) -> bool:
        """Whether the server takes binary tensors: unless it lists its extensions, and that is not among them."""
        document = _document(self._asked("GET", "/v2", deadline))
        extensions = document.get("extensions") if isinstance(document, dict) else None
        return not isinstance(extensions, list) or "binary_tensor_data" in extensions

    def _path(self, deadline: float) -> str:
        if self._model is None:
            self._model = self._only_model(deadline)
        version = "" if self._version is None else f"/versions/{quote(self._version, safe='')}"
        return f"{MODELS}{quote(self._model, safe='')}{version}"

    def _only_model(self, deadline: float) -> str:
        answer = self._asked("POST", "/v2/repository/index", deadline, b"{}", {"content-type": "application/json"})
        entries = _document(answer) if answer.status_code == httpx2.codes.OK else None
        names = [
            str(entry["name"])
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict) and "name" in entry
        ]
        if len(set(names)) == 1:
            return names[0]
        there = f"has the models {', '.join(dict.fromkeys(names))}" if names else "does not list its models"
        raise RequestError(f'{self._root} {there}; name one: streamer.Client("{self._root}", "NAME")')

    def _asked(
        self, verb: str, path: str, deadline: float, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        """The answer; one of 503 if the server is busy until the deadline."""
        while True:
            answer = self._once(verb, path, deadline, body, headers)
            if answer.status_code != _BUSY:
                return answer
            pause = _pause(answer.headers.get("retry-after"))
            if time.monotonic() + pause >= deadline:
                return answer
            time.sleep(pause)

    def _once(
        self, verb: str, path: str, deadline: float, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = httpx2.URL(self._root + path)
        left = max(0.001, deadline - time.monotonic())
        try:
            return self._http.request(verb, url, content=body, headers=headers, timeout=left)
        except httpx2.TimeoutException as error:
            what = "cannot be connected to" if isinstance(error, httpx2.ConnectTimeout) else "has not answered"
            raise RequestTimeout(f"{self._root} {what} within the timeout, {left:.3g} s of which were left") from error
        except (httpx2.TransportError, RuntimeError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> RequestError:
        if self._http.is_closed:
            return RequestError("the client was closed")
        text = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in text:
            return RequestError(
                f"the certificate of {self._root} is not trusted ({text}); name a file with the authority that signed "
                'it: verify="ca.pem"'
            )
        if isinstance(error, httpx2.ConnectError):
            return RequestError(
                f"nothing answers at {self._root} ({text}); is the service running there, and is the address right? "
                "`streamer run FILE` says where it listens"
            )
        return RequestError(f"{self._root} has closed the connection without an answer ({text}); see its log")

    def _refused(self, answer: httpx2.Response) -> RequestError:
        document = _document(answer)
        text = document.get("error") if isinstance(document, dict) else None
        if not text:
            text = f"{self._root}: {answer.status_code} {answer.reason_phrase} {answer.text[:_SHOWN]}".rstrip()
        if answer.status_code == httpx2.codes.UNAUTHORIZED:
            text = f'{text} (give the client its token: token="...")'
        return RequestError(str(text), status=answer.status_code)


def _split(url: str) -> tuple[str, str | None]:
    """The root of a server and the model that the address names, if it does."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise DefinitionError("the address of a service holds a login, which errors would show; use token")
    try:
        httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise DefinitionError(f'"{url}" is not the address of a service: {error}') from None
    if not parts.hostname or parts.query or parts.fragment:
        raise DefinitionError(f'"{url}" is not the address of a service; write for example http://localhost:8000')
    root, _, model = url.partition(MODELS)
    return root.rstrip("/").removesuffix("/v2"), unquote(model.strip("/")) or None


def _trusted(verify: bool | str | None) -> ssl.SSLContext | bool:
    if not isinstance(verify, str):
        return verify is None or verify
    try:
        return ssl.create_default_context(cafile=verify)
    except (OSError, ValueError) as error:
        raise DefinitionError(f"verify: {error}; a file with certificates (PEM) is needed: {verify}") from None


def _document(answer: httpx2.Response) -> Any:
    try:
        return msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _pause(said: str | None) -> float:
    """Seconds until a request is sent again, by `Retry-After`. Half of it at least, so that not all come at once."""
    seconds = float(said) if said is not None and said.isdecimal() else 1.0
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - not for secrets
