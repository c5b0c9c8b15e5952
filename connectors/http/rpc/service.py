"""`GrpcService`: the calls of the Open Inference Protocol and of Konduit Serving, over gRPC."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import grpc
from google.protobuf.json_format import ParseDict
from google.protobuf.message import DecodeError, Message

from connectors.http.endpoint import metadata
from connectors.http.endpoint.admission import UNKNOWN, Admission
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.names import Named, of_version
from connectors.http.endpoint.repository.models import Models, Verb
from connectors.http.endpoint.repository.requests import commanded, indexed
from connectors.http.endpoint.request import TRACEPARENT, Answer, Request
from connectors.http.rpc.messages import Asked, asked, streamed, streamed_error
from pipelines.errors import WireError
from protos import open_inference_pb2 as pb

INFERENCE: Final = "/inference.GRPCInferenceService/"
ENDPOINT: Final = "streamer-endpoint"
"""The metadata behind the answer to a load: the name by which requests reach the model."""
TRACE: Final = TRACEPARENT.decode()
"""The metadata behind an answer that name its span. Those of a stream are for the whole call, and say nothing."""
PREDICT: Final = "/ai.konduit.serving.Inference/predict"
HEALTH: Final = "/grpc.health.v1.Health/Check"
CODES: Final[Mapping[int, grpc.StatusCode]] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    409: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.FAILED_PRECONDITION,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""The code of gRPC for a status of HTTP."""
AHEAD: Final = 1000
"""How many requests of a stream may wait for their answers; then no more of it are read."""
MOST_DETAILS: Final = 6000
"""Bytes of the text of an error, as it is sent: clients refuse an answer whose headers are longer than 8 KiB."""
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
_OURS: Final = frozenset({"content-type", "inference-header-content-length"})
"""Headers that say how a body is to be read: a client's own would have it read wrongly."""
_CONTENT_TYPE: Final = (b"content-type", b"application/grpc")


class _Pending(NamedTuple):
    """A request that waits for its answer."""

    model: ServedModel
    request: Request
    future: asyncio.Future[Answer]


class GrpcService:
    """Answers calls in the thread of the listener's loop; what grpc calls a generic handler.

    The messages of `ModelInfer` go into the inbox of their model as they came, and its answers out as they are: only
    the names are read. The requests of a `ModelStreamInfer` are answered in their order; one that fails is answered
    with `error_message`, and those after it as ever.
    """

    def __init__(self, config: HttpSourceConfig, models: Models) -> None:
        self._models = models
        self._admission = Admission(config)
        self._readers: set[asyncio.Task[None]] = set()
        self._stopping = False
        unary = grpc.unary_unary_rpc_method_handler
        self._open = {
            f"{INFERENCE}ServerLive": unary(self._live),
            f"{INFERENCE}ServerReady": unary(self._ready),
            HEALTH: unary(self._health),
        }
        """Calls that need no token."""
        self._guarded = {
            f"{INFERENCE}ModelInfer": unary(self._infer),
            f"{INFERENCE}ModelStreamInfer": grpc.stream_stream_rpc_method_handler(self._stream),
            f"{INFERENCE}ModelReady": unary(self._model_ready),
            f"{INFERENCE}ServerMetadata": unary(self._server_metadata),
            f"{INFERENCE}ModelMetadata": unary(self._model_metadata),
            f"{INFERENCE}ModelConfig": unary(self._model_config),
            f"{INFERENCE}RepositoryIndex": unary(self._index),
            f"{INFERENCE}RepositoryModelLoad": unary(self._load),
            f"{INFERENCE}RepositoryModelUnload": unary(self._unload),
            PREDICT: unary(self._predict),
        }

    def service(self, call: Any) -> Any:
        """The handler of a call, as grpc asks for it."""
        method: str = call.method
        handler = self._guarded.get(method)
        if handler is None:
            handler = self._open.get(method)
            return _refusing(Answer.refusal(501, self._no_method(method))) if handler is None else handler
        if self._admission.token is not None and not self._has_token(call.invocation_metadata):
            return _REFUSING_STRANGERS
        return handler

    def stop(self) -> None:
        """Read no more of any stream; each ends once the requests that were read are answered."""
        self._stopping = True
        for reader in self._readers:
            reader.cancel()

    async def _infer(self, message: bytes, context: Any) -> bytes:
        try:
            names = asked(message)
        except WireError as error:
            return await _abort(context, _broken(error))
        named = self._inferring(names)
        return await (_abort(context, named) if isinstance(named, Answer) else self._run(named, message, context))

    async def _predict(self, message: bytes, context: Any) -> bytes:
        models = [model for model in self._models.values() if not model.speaks_inference]
        if len(models) == 1:
            return await self._run(Named(models[0]), message, context, PREDICT)
        there = ", ".join(model.name for model in models)
        return await _abort(
            context,
            Answer.refusal(404, f"predict names no service, and there are several: {there}")
            if models
            else Answer.refusal(404, "no service here has another codec than inference; call ModelInfer"),
        )

    async def _run(self, named: Named, message: bytes, context: Any, method: str = f"{INFERENCE}ModelInfer") -> bytes:
        left = context.time_remaining()
        headers = _headers(context.invocation_metadata())
        pending = self._put(named, message, method, headers, _address(context.peer()), left)
        if isinstance(pending, Answer):
            return await _abort(context, pending)
        try:
            answer = await pending.future
        except asyncio.CancelledError:
            self._gone(pending, late=left is not None and pending.request.deadline <= time.monotonic())
            raise
        _count(named.model, answer)
        if (trace := pending.request.trace) is not None:
            context.set_trailing_metadata(((TRACE, trace.decode()),))
        return answer.body if answer.error is None else await _abort(context, answer)

    async def _stream(self, _: Any, context: Any) -> None:
        room, answers = asyncio.Semaphore(AHEAD), asyncio.Queue[tuple[str, _Pending | Answer] | None]()
        reader = asyncio.get_running_loop().create_task(self._read(context, room, answers))
        self._readers.add(reader)
        if self._stopping:
            reader.cancel()
        item: tuple[str, _Pending | Answer] | None = None
        try:
            while (item := await answers.get()) is not None:
                request_id, pending = item
                if isinstance(pending, Answer):
                    answer = pending
                else:
                    answer = await pending.future
                    _count(pending.model, answer)
                item = None
                error = answer.error
                await context.write(streamed(answer.body) if error is None else streamed_error(error, request_id))
                room.release()
        finally:
            reader.cancel()
            self._readers.discard(reader)
            while True:
                if item is not None and not isinstance(item[1], Answer):
                    self._gone(item[1])
                if answers.empty():
                    break
                item = answers.get_nowait()
        if self._stopping:
            await _abort(context, Answer.refusal(503, "the service is stopping; send the request again"))
        # What it raised is the answer, too.
        await reader

    async def _read(
        self, context: Any, room: asyncio.Semaphore, answers: asyncio.Queue[tuple[str, _Pending | Answer] | None]
    ) -> None:
        headers, client = _headers(context.invocation_metadata()), _address(context.peer())
        try:
            while await room.acquire() and (message := await context.read()) is not grpc.aio.EOF:
                try:
                    names = asked(message)
                except WireError as error:
                    answers.put_nowait(("", _broken(error)))
                    continue
                named = self._inferring(names)
                pending = (
                    named
                    if isinstance(named, Answer)
                    else self._put(named, message, f"{INFERENCE}ModelStreamInfer", headers, client, None)
                )
                answers.put_nowait((names.id, pending))
        except (grpc.RpcError, grpc.aio.BaseError):
            # The client has gone; the call is cancelled.
            return
        finally:
            answers.put_nowait(None)

    def _put(
        self,
        named: Named,
        message: bytes,
        method: str,
        headers: Sequence[tuple[bytes, bytes]],
        client: str,
        left: float | None,
    ) -> _Pending | Answer:
        model = named.model
        config = model.config
        if len(message) > config.max_body:
            return _counted(
                model, Answer.refusal(413, f"the message is larger than {config.max_body} bytes (max_body)")
            )
        now = time.monotonic()
        future = asyncio.get_running_loop().create_future()
        request = Request(
            message,
            headers,
            future,
            "grpc",
            method,
            client,
            now + (config.timeout if left is None else min(left, config.timeout)),
            now,
            int(time.time() * 1000),
            version=named.version,
        )
        refusal = model.put(request)
        if refusal is not None:
            return _counted(model, refusal)
        return _Pending(model, request, future)

    def _gone(self, pending: _Pending, *, late: bool = False) -> None:
        """The client of a request has gone, or has its deadline behind it."""
        pending.model.inbox.withdraw(pending.request)
        pending.future.cancel()
        if late:
            pending.model.counts.answered["grpc", 504] += 1
        else:
            pending.model.counts.cancelled += 1

    def _inferring(self, names: Asked) -> Named | Answer:
        named = of_version(self._models, names.model, names.version)
        if isinstance(named, Answer) or named.model.speaks_inference:
            return named
        model = named.model
        return Answer.refusal(400, f'"{model.name}" has the codec {model.codec}: send such messages to {PREDICT}')

    async def _live(self, _: bytes, context: Any) -> bytes:
        live = all(model.served.stuck() is None for model in list(self._models.values()))
        return pb.ServerLiveResponse(live=live).SerializeToString()

    async def _ready(self, _: bytes, context: Any) -> bytes:
        return pb.ServerReadyResponse(ready=self._all_ready()).SerializeToString()

    async def _model_ready(self, message: bytes, context: Any) -> bytes:
        model = self._named(message)
        if isinstance(model, Answer):
            return await _abort(context, model)
        return pb.ModelReadyResponse(ready=model.served.trouble() is None).SerializeToString()

    async def _health(self, message: bytes, context: Any) -> bytes:
        try:
            name = asked(message).model
        except WireError as error:
            return await _abort(context, _broken(error))
        if name in ("", INFERENCE.strip("/")):
            return _SERVING if self._all_ready() else _NOT_SERVING
        named = of_version(self._models, name, "")
        if isinstance(named, Answer):
            return await _abort(context, named)
        return _SERVING if named.model.served.trouble() is None else _NOT_SERVING

    async def _server_metadata(self, _: bytes, context: Any) -> bytes:
        return _message(pb.ServerMetadataResponse(), metadata.server(controlled=self._models.controlled))

    async def _model_metadata(self, message: bytes, context: Any) -> bytes:
        model = self._named(message)
        if isinstance(model, Answer):
            return await _abort(context, model)
        return _message(pb.ModelMetadataResponse(), metadata.model(model))

    async def _model_config(self, message: bytes, context: Any) -> bytes:
        model = self._named(message)
        if isinstance(model, Answer):
            return await _abort(context, model)
        return _message(pb.ModelConfigResponse(), {"config": metadata.configuration(model)})

    async def _index(self, message: bytes, context: Any) -> bytes:
        try:
            wanted = pb.RepositoryIndexRequest.FromString(message)
        except DecodeError as error:
            return await _abort(context, _broken(error))
        models = await indexed(self._models, only_ready=wanted.ready)
        return _message(pb.RepositoryIndexResponse(), {"models": models})

    async def _load(self, message: bytes, context: Any) -> bytes:
        return await self._command("load", pb.RepositoryModelLoadRequest(), message, context)

    async def _unload(self, message: bytes, context: Any) -> bytes:
        return await self._command("unload", pb.RepositoryModelUnloadRequest(), message, context)

    async def _command(self, verb: Verb, request: Any, message: bytes, context: Any) -> bytes:
        if self._models.repository is None:
            return await _abort(context, Answer.refusal(501, f"{verb} is not offered: models are those of services"))
        try:
            request.MergeFromString(message)
        except DecodeError as error:
            return await _abort(context, _broken(error))
        parameters = {name: _value(parameter) for name, parameter in request.parameters.items()}
        outcome = await commanded(self._models, verb, request.model_name, parameters)
        if outcome.error is not None:
            return await _abort(context, Answer.refusal(outcome.status, outcome.error))
        # The message has no field for it.
        context.set_trailing_metadata(((ENDPOINT, quote(outcome.name)),))
        return b""

    def _named(self, message: bytes) -> ServedModel | Answer:
        try:
            names = asked(message)
        except WireError as error:
            return _broken(error)
        named = of_version(self._models, names.model, names.version)
        return named if isinstance(named, Answer) else named.model

    def _all_ready(self) -> bool:
        return self._models.trouble() is None

    def _has_token(self, given: Iterable[tuple[str, str | bytes]]) -> bool:
        values = [value for name, value in given if name == "authorization"]
        return len(values) == 1 and self._admission.has_token(_bytes(values[0]))

    def _no_method(self, method: str) -> str:
        if method.startswith(INFERENCE):
            name = method.removeprefix(INFERENCE)
            calls = (*self._open, *self._guarded)
            known = ", ".join(call.removeprefix(INFERENCE) for call in calls if call.startswith(INFERENCE))
            return f"{name} is not offered here; there is {known}"
        return f"there is no method {method[:200]}; there are those of {INFERENCE.strip('/')}"


def _refusing(answer: Answer) -> Any:
    """A handler that refuses calls of any kind, without waiting for their messages."""

    async def refuse(_: Any, context: Any) -> None:
        await _abort(context, answer)

    return grpc.stream_stream_rpc_method_handler(refuse)


_REFUSING_STRANGERS: Final = _refusing(UNKNOWN)


async def _abort(context: Any, answer: Answer) -> bytes:
    """End a call with the code and the text of an answer. Raises what ends it."""
    await context.abort(CODES.get(answer.status, grpc.StatusCode.UNKNOWN), _details(answer.error or ""))
    return b""


def _details(text: str) -> str:
    """An error's text, shortened to what a client accepts. What is not ASCII takes three bytes for one when sent."""
    if 9 * len(text) <= MOST_DETAILS:
        return text
    while len(quote(text, safe=" !\"#$&'()*+,/:;<=>?@[\\]^`{|}", errors="replace")) > MOST_DETAILS:
        text = text[: len(text) * 3 // 4] + "..."
    return text


def _broken(error: Exception) -> Answer:
    return Answer.refusal(400, f"the message cannot be read: {error}")


def _count(model: ServedModel, answer: Answer) -> None:
    model.counts.answered["grpc", answer.status] += 1


def _counted(model: ServedModel, answer: Answer) -> Answer:
    _count(model, answer)
    return answer


def _headers(given: Iterable[tuple[str, str | bytes]]) -> list[tuple[bytes, bytes]]:
    headers = [_CONTENT_TYPE]
    headers += [(name.encode(), _bytes(value)) for name, value in given if name not in _OURS]
    return headers


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def _value(parameter: Any) -> Any:
    """The value of a parameter of a command, whichever field it is in; `None`: it has none."""
    kind = parameter.WhichOneof("parameter_choice")
    return None if kind is None else getattr(parameter, kind)


def _message(message: Message, content: Mapping[str, Any]) -> bytes:
    return ParseDict(dict(content), message, ignore_unknown_fields=True).SerializeToString()


def _address(peer: str) -> str:
    """`host:port` of what grpc calls `ipv4:host:port`, or `ipv6:%5Bhost%5D:port`."""
    return peer.partition(":")[2].replace("%5B", "[").replace("%5D", "]")
