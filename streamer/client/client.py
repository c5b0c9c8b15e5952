"""`Client`: asks a service for the results of records, over HTTP, Kafka or MQTT."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from pipelines import Data
from pipelines.data.data import as_data
from pipelines.errors import DefinitionError, nearest
from pipelines.executors.ports import Ports
from streamer.client.errors import RequestError, RequestTimeout
from streamer.client.slots import Slots
from streamer.client.transport import Transport

SCHEMES: Final = ("http", "https", "kafka", "mqtt", "mqtts")
_OF_HTTP: Final = ("model", "version", "outputs", "token", "verify")
_OF_TOPICS: Final = ("codec", "reply_to", "options")
_LONGEST_PAUSE: Final = 1.0


class Client:
    """Asks a service: `client(image=array)` sends a record and returns its result, both with named values.

    The address says by what way, and everything else is the same:

    - `Client("http://host:8000", "digits")`: a service with a source of type `http`, or another server of the Open
      Inference Protocol. Names, element types and shapes are checked before anything is sent, where the server tells
      them.
    - `Client("kafka://host:9092/requests")`: a service that reads that topic and answers at the topic that the header
      `reply-to` names.
    - `Client("mqtt://host:1883/requests")`: the same over MQTT 5, with its response topics.

    Values are arrays, numbers, texts and lists; over topics whatever the codec can write. An array has the samples of a
    record as its first axis; where all arrays of a request lack that axis, it is one sample, and the arrays of its
    result lack it, too. The result is a `Data`.

    A client may be used by several threads and event loops at a time. It connects at the first call; close it, or use
    it as a context manager.

    Args:
        url: The address of the service.
        model: The name of the service. May be left out where a server has just one.
        version: The version of the model; by default the current one.
        outputs: The names of the outputs to ask for, in this order; by default all.
        token: Sent as `Authorization: Bearer TOKEN`.
        verify: For https, how the server's certificate is checked: against the authorities of the system, against those
            in a file (PEM), or not at all (`False`: anybody on the network can read and change what is sent).
        timeout: Seconds that a call may take, with waiting and repetitions.
        pending: The most calls at a time; one more waits. By default 32 over HTTP, each with a connection, and 1000
            over topics.
        codec: Over topics, the form of payloads, as in a service file: a name, or `{"type": NAME, ...}`. By default
            protodata.
        reply_to: Over topics, the topic of the answers. By default `TOPIC.replies` on Kafka, which is made if it is
            missing, and `TOPIC/replies/RANDOM` on MQTT.
        options: Over topics, how the broker is reached: properties of librdkafka, or fields of a source of type `mqtt`
            such as `username`, `password` and `tls`.

    Raises:
        DefinitionError: An address, or an argument, that cannot be used.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        version: str | None = None,
        outputs: Sequence[str] | None = None,
        token: str | None = None,
        verify: bool | str = True,
        timeout: float = 30.0,
        pending: int | None = None,
        codec: str | Mapping[str, Any] | None = None,
        reply_to: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if timeout <= 0 or (pending is not None and pending < 1):
            raise DefinitionError(f"timeout and pending must be above 0, not {timeout} and {pending}")
        of_http = dict(zip(_OF_HTTP, (model, version, outputs, token, None if verify is True else verify), strict=True))
        of_topics = dict(zip(_OF_TOPICS, (codec, reply_to, options), strict=True))
        self._url = url
        self._timeout = timeout
        self._transport = _transport(url, of_http, of_topics, pending, timeout)
        self._slots = Slots(self._transport.pending)
        self._opening = threading.Lock()
        self._closed = False

    def __call__(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Data:
        """The result for these values. Names that are no identifiers of Python are given in a mapping.

        Raises:
            RequestError: The service answered with an error, or cannot be asked; `RequestTimeout`: not in time.
            DataError: Values that the service does not take.
            MissingPackageError: The client library of Kafka is not installed.
        """
        record, deadline = self._begun(values, named)
        self._take(deadline)
        try:
            self._open(deadline)
            return self._transport.call(record, deadline)
        finally:
            self._slots.free()

    def submit(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Future[Data]:
        """Send these values; the future has the result, or the error that a call would raise.

        Waits while `pending` calls are under way.
        """
        record, deadline = self._begun(values, named)
        self._take(deadline)
        try:
            self._open(deadline)
            return self._submitted(record, deadline)
        except BaseException:
            self._slots.free()
            raise

    async def acall(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Data:
        """As a call, in asyncio: other tasks run meanwhile."""
        record, deadline = self._begun(values, named)
        if not await self._slots.taken_by_task(deadline):
            raise self._too_many()
        try:
            if not self._transport.is_open:
                await asyncio.to_thread(self._open, deadline)
            future = self._submitted(record, deadline)
        except BaseException:
            self._slots.free()
            raise
        return await asyncio.wrap_future(future)

    def map(self, records: Iterable[Mapping[str, Any]], *, pending: int | None = None) -> Iterator[Data]:
        """The results of records, in their order. The first error is raised in the place of its result, and ends it.

        At most `pending` records are read ahead and under way; by default as many as the client allows.
        """
        most = min(pending or self._transport.pending, self._transport.pending)
        futures: deque[Future[Data]] = deque()
        try:
            for record in records:
                if len(futures) >= most:
                    yield futures.popleft().result()
                futures.append(self.submit(record))
            while futures:
                yield futures.popleft().result()
        finally:
            for future in futures:
                future.cancel()

    @property
    def ports(self) -> Ports:
        """The names, element types and shapes that the service takes and gives.

        `None` in it: not known, as over topics, and where the pipeline begins or ends with a step that is no model.

        Raises:
            RequestError: The server cannot be asked.
        """
        return self._transport.ports(time.monotonic() + self._timeout)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the service can be asked.

        Over topics: until the broker answers and the topic exists; whether a service reads it is not known there.

        Raises:
            RequestTimeout: It could not within `timeout` seconds, by default those of the client; says why.
        """
        self._check_open()
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        pause = 0.05
        while (trouble := self._trouble(deadline)) is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise RequestTimeout(f"{self._url} is not ready: {trouble}")
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    @property
    def strangers(self) -> int:
        """How many answers over topics belonged to no call that was waiting: late ones, and those to other clients."""
        return self._transport.strangers

    def close(self) -> None:
        """Disconnect. Calls that are under way fail. Idempotent."""
        self._closed = True
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self._url}>"

    def _begun(self, values: Mapping[str, Any] | None, named: Mapping[str, Any]) -> tuple[Data, float]:
        self._check_open()
        given = {key: _plain(value) for key, value in {**(values or {}), **named}.items()}
        return as_data(given), time.monotonic() + self._timeout

    def _check_open(self) -> None:
        if self._closed:
            raise RequestError("the client is closed; make a new one")

    def _take(self, deadline: float) -> None:
        if not self._slots.take(deadline):
            raise self._too_many()

    def _too_many(self) -> RequestTimeout:
        return RequestTimeout(
            f"{self._transport.pending} calls were under way for {self._timeout:g} s, so that this one could not "
            "begin; raise pending or timeout, or run more of the service"
        )

    def _trouble(self, deadline: float) -> str | None:
        try:
            self._open(deadline)
        except RequestError as error:
            return str(error)
        return self._transport.trouble(deadline)

    def _open(self, deadline: float) -> None:
        if self._transport.is_open:
            return
        if not self._opening.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise RequestTimeout(f"{self._url}: another call has been connecting for {self._timeout:g} s")
        try:
            self._transport.open(deadline)
        finally:
            self._opening.release()

    def _submitted(self, record: Data, deadline: float) -> Future[Data]:
        future = self._transport.submit(record, deadline)
        future.add_done_callback(lambda _: self._slots.free())
        return future


def _transport(
    url: str, of_http: Mapping[str, Any], of_topics: Mapping[str, Any], pending: int | None, timeout: float
) -> Transport:
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme not in SCHEMES:
        hint = nearest(scheme, SCHEMES) if scheme else "; write for example http://localhost:8000"
        raise DefinitionError(
            f'"{url}" is not the address of a service: it begins with none of {", ".join(SCHEMES)}{hint}'
        )
    over_http = scheme in ("http", "https")
    for name, value in (of_topics if over_http else of_http).items():
        if value is not None:
            raise DefinitionError(f"{name} is nothing that a client of {scheme}:// has; leave it out")
    # Imported here: each has a client library, and one of them is used.
    if over_http:
        from streamer.client.http import HttpTransport

        return HttpTransport(url, **of_http, pending=pending or 32)
    if scheme == "kafka":
        from streamer.client.kafka import KafkaTransport

        return KafkaTransport(url, **of_topics, pending=pending or 1000, timeout=timeout)
    from streamer.client.mqtt import MqttTransport

    return MqttTransport(url, **of_topics, pending=pending or 1000, timeout=timeout)


def _plain(value: Any) -> Any:
    """Arrays of texts as lists, as a `Data` holds them."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUS":
        return value.tolist()
    return value
