"""Konduit Serving over gRPC: the method `predict` of `ai.konduit.serving.Inference`, whose messages are ProtoData."""

from __future__ import annotations

import json
from collections.abc import Iterator

import grpc
import pytest

from connectors.http.endpoint.source import HttpSource
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.definition.konduit import KonduitWarning
from streamer.definition.loading import loads


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    """A connection to a service whose definition is Konduit's."""
    pipeline = {"steps": [{"@type": "LOGGING"}]}
    with pytest.warns(KonduitWarning):
        agent = Agent(loads(json.dumps({"protocol": "GRPC", "pipeline": pipeline})))
    agent.start()
    (source,) = agent.sources
    assert isinstance(source, HttpSource)
    assert source.grpc_address is not None
    with grpc.insecure_channel(f"localhost:{source.grpc_address[1]}") as connected:
        yield connected
    agent.stop()
    agent.join(30)


def test_predict_takes_and_gives_data(channel: grpc.Channel) -> None:
    data = Data({"a": 1, "b": [1.5, 2.5], "c": "text"})
    answer = channel.unary_unary("/ai.konduit.serving.Inference/predict")(data.to_bytes(), timeout=30)
    assert Data.from_bytes(answer) == data


def test_what_is_no_data_is_an_error(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary("/ai.konduit.serving.Inference/predict")(b"\xff\xff", timeout=30)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
