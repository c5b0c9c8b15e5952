"""Models behind a listener, whose requests a thread answers, as a service's source and sink would."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.counts import Counts
from connectors.http.endpoint.inbox import Inbox
from connectors.http.endpoint.listener import Listener
from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.request import Answer, Request
from connectors.source import Served
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port
from protos import open_inference_pb2 as pb

PORTS = Ports(
    (Port("IN", np.dtype("float32"), ("N", 4)),),
    (Port("MASK", np.dtype("bool"), None),),
    (Port("OUT", np.dtype("float32"), (None, 4)), Port("NAME", np.dtype("O"), ("N",))),
)


class ServedByThread:
    """A model that answers each request by a function, in a thread; `None` answers nothing."""

    def __init__(
        self, config: HttpSourceConfig, answer: Callable[[Request], Answer | None], name: str = "echo"
    ) -> None:
        self.listener = Listener.of(config)
        self.inbox = Inbox(self.listener.loop, config.max_waiting, config.max_held)
        self.trouble: str | None = None
        served = Served(name, PORTS, answers=True, trouble=lambda: self.trouble)
        self.model = ServedModel(name, config, served, self.inbox, Counts())
        self.requests: list[Request] = []
        self.polls = threading.Event()
        """Cleared: no request is polled."""
        self.polls.set()
        self._answer = answer
        self._ends = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.listener.add(self.model)

    @property
    def grpc(self) -> str:
        """The address of gRPC."""
        assert self.listener.grpc_address is not None
        return f"localhost:{self.listener.grpc_address[1]}"

    def close(self) -> None:
        """As the source does when its service ends."""
        if self._ends:
            return
        self._ends = True
        self.polls.set()
        self.inbox.close(Answer.refusal(503, "the service is stopping"))
        self.inbox.wake()
        self._thread.join()
        self.listener.remove(self.model)

    def _run(self) -> None:
        while not self._ends:
            self.polls.wait()
            for request in self.inbox.take(100, 1 << 30, 0.02):
                self.requests.append(request)
                answer = self._answer(request)
                if answer is not None:
                    self.inbox.answer([(request.number, answer)])


def echo(request: Request) -> Answer | None:
    """The inputs as outputs; parameters of the request ask for an error, or for no answer at all."""
    message = pb.ModelInferRequest.FromString(request.body)
    if "fail" in message.parameters:
        return Answer.refusal(
            int(message.parameters["fail"].int64_param), message.parameters["text"].string_param or "it fails"
        )
    if "silent" in message.parameters:
        return None
    answer = pb.ModelInferResponse(model_name=message.model_name, model_version="1", id=message.id)
    for tensor in message.inputs:
        answer.outputs.add(name=tensor.name.replace("IN", "OUT"), datatype=tensor.datatype, shape=tensor.shape)
    answer.raw_output_contents.extend(message.raw_input_contents)
    return Answer(200, (), answer.SerializeToString())


Serve = Callable[..., ServedByThread]


def listening(
    answer: Callable[[Request], Answer | None] = echo, name: str = "echo", **fields: object
) -> ServedByThread:
    """A model at free ports."""
    config = HttpSourceConfig.model_validate({"listen": "127.0.0.1:0", "grpc": "127.0.0.1:0", **fields})
    return ServedByThread(config, answer, name)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a model at free ports: `serve(timeout="1s")`; closed when the test ends."""
    served: list[ServedByThread] = []

    def one(answer: Callable[[Request], Answer | None] = echo, name: str = "echo", **fields: object) -> ServedByThread:
        served.append(listening(answer, name, **fields))
        return served[-1]

    yield one
    for model in served:
        model.close()


@pytest.fixture(scope="module")
def echoing() -> Iterator[ServedByThread]:
    """A model that answers with its inputs, for all tests of a file."""
    model = listening()
    yield model
    model.close()
