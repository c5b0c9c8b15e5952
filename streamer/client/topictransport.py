"""`TopicTransport`: requests as messages to a topic, and answers as messages from another."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import msgspec

from connectors.message import Message
from connectors.records import Header
from pipelines import Data
from pipelines.errors import StreamerError
from streamer.client.calls import Calls
from streamer.client.errors import RequestError, RequestTimeout
from streamer.client.payloads import PROTODATA, Payloads
from streamer.client.transport import Transport

ERROR: Final = "streamer-error"
"""The header by which a service tells an error from a result; its value is the class of the error."""
TURN: Final = 0.1
"""Seconds between two looks for calls whose deadline is over."""


class TopicTransport(Transport):
    """What Kafka and MQTT share: a thread receives the answers, and gives each to the call whose id it has."""

    def __init__(self, address: str, topic: str, codec: str | Mapping[str, Any] | None, pending: int) -> None:
        """`address` and `topic` are for errors. Raises `DefinitionError` for a codec that there is not."""
        self.pending = pending
        self._address = address
        self._topic = topic
        self._payloads = Payloads.of(codec or PROTODATA)
        self._calls = Calls()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        """See `Transport.is_open`."""
        return self._thread is not None

    @property
    def strangers(self) -> int:
        """See `Transport.strangers`."""
        return self._calls.strangers

    def open(self, deadline: float) -> None:
        """See `Transport.open`."""
        if self._thread is not None:
            return
        try:
            self._connect(deadline)
        except StreamerError as error:
            self._disconnect()
            raise error if isinstance(error, (RequestError, ImportError)) else RequestError(str(error)) from error
        self._thread = threading.Thread(target=self._run, name="streamer-client", daemon=True)
        self._thread.start()

    def submit(self, values: Data, deadline: float) -> Future[Data]:
        """See `Transport.submit`."""
        future: Future[Data] = Future()
        try:
            payload, headers = self._payloads.written(values)
            number = self._calls.begin(future, deadline)
        except Exception as error:  # noqa: BLE001 - whatever a codec raises is the error of this call
            future.set_exception(error)
            return future
        try:
            self._send(number, payload, headers, deadline)
        except StreamerError as error:
            self._calls.fail(number, error)
        return future

    def close(self) -> None:
        """See `Transport.close`."""
        self._closing.set()
        self._calls.fail_all(RequestError("the client was closed"), close=True)
        self._wake()
        if self._thread is not None:
            self._thread.join()

    @abstractmethod
    def _connect(self, deadline: float) -> None:
        """Connect, until answers to all later requests will be received. Raises `StreamerError`."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Let go of the connection, whole or not."""

    @abstractmethod
    def _send(self, number: bytes, payload: bytes, headers: Sequence[Header], deadline: float) -> None:
        """Send a request. From any thread. Raises `RequestError`."""

    @abstractmethod
    def _turn(self) -> None:
        """Receive what has come, after `TURN` seconds of waiting at most, and give it to `_received`.

        Raises `StreamerError` where all calls that wait have failed.
        """

    def _after_timeouts(self) -> None:
        """Called after calls have ended without an answer, to look for the reason. In the thread of `_turn`."""

    @abstractmethod
    def _wake(self) -> None:
        """Let the thread notice soon that it has to end. From any thread."""

    def _received(self, answers: Sequence[tuple[bytes | None, Message]]) -> None:
        """Ends the calls with these ids; the answers of others are counted and dropped."""
        waiting = [(future, message) for number, message in answers if (future := self._calls.end(number)) is not None]
        if not waiting:
            return
        failed = [any(name == ERROR for name, _ in message.headers) for _, message in waiting]
        try:
            results = self._payloads.read([message for _, message in waiting])
        except Exception as error:  # noqa: BLE001 - such as a schema registry that does not answer
            results = [error] * len(waiting)
        for (future, message), is_error, result in zip(waiting, failed, results, strict=True):
            if is_error:
                future.set_exception(_error_of(message, result))
            elif isinstance(result, Exception):
                future.set_exception(RequestError(f"the answer cannot be read: {result}"))
            else:
                future.set_result(result)

    def _run(self) -> None:
        next_look = 0.0
        try:
            while not self._closing.is_set():
                try:
                    self._turn()
                except StreamerError as error:
                    self._calls.fail_all(RequestError(str(error)))
                    self._closing.wait(TURN)
                if (now := time.monotonic()) < next_look:
                    continue
                next_look = now + TURN
                expired = self._calls.expired(now)
                for future in expired:
                    future.set_exception(RequestTimeout(self._late))
                if expired:
                    self._after_timeouts()
        except BaseException as error:
            self._calls.fail_all(RequestError(f"the client has failed: {type(error).__name__}: {error}"), close=True)
            raise
        finally:
            self._disconnect()

    @property
    def _late(self) -> str:
        return (
            f'there was no answer in time to a request at the topic "{self._topic}" of {self._address}; does a service '
            "read it, and does its sink answer where it is asked to (docs/client.md)?"
        )


def _error_of(message: Message, result: Data | Exception) -> RequestError:
    """The error that a service answered with: `{"error": TEXT, "step": NAME}` in its codec, else in JSON."""
    document: Any = result
    if isinstance(result, Exception) or "error" not in result:
        try:
            document = msgspec.json.decode(message.value or b"")
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = None
    if not isinstance(document, Mapping):
        document = {}
    kind = next((value or b"" for name, value in message.headers if name == ERROR), b"").decode(errors="replace")
    text, step = str(document.get("error") or ""), str(document.get("step") or "")
    said = f"{kind}: {text}" if kind and text else text or kind
    return RequestError(f"step {step}: {said}" if step else said, step=step)
