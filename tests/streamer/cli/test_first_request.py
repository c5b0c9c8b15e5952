"""The line of curl that asks a service for the first time."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import pytest

from connectors.http.endpoint.config import HttpSourceConfig
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port
from streamer.cli.serving.example import curl, ports_in_words, url_of


def port(name: str, dtype: str, *shape: Any) -> Port:
    return Port(name, np.dtype(dtype), shape)


def asked(config: HttpSourceConfig, *inputs: Port) -> list[str]:
    return shlex.split(curl(config, url_of(config, "m"), Ports(inputs or None)))


INFERENCE = HttpSourceConfig(codec="inference")


@pytest.mark.parametrize(
    ("given", "body"),
    [
        (port("x", "f4", "N", 2), '{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[0,0]}]}'),
        (
            port("x", "?", None, None),
            '{"inputs":[{"name":"x","shape":[1,4],"datatype":"BOOL","data":[false,false,false,false]}]}',
        ),
        (port("x", "O", 3), '{"inputs":[{"name":"x","shape":[3],"datatype":"BYTES","data":["text","text","text"]}]}'),
        (Port("x", np.dtype("i8"), None), '{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[0]}]}'),
    ],
)
def test_a_small_request_is_json_of_the_right_shape(given: Port, body: str) -> None:
    assert asked(INFERENCE, given) == ["curl", "http://127.0.0.1:8000/v2/models/m/infer", "-d", body]


def test_a_large_request_has_its_zeros_as_bytes() -> None:
    line = curl(INFERENCE, "http://h/v2/models/m", Ports((port("x", "f4", "N", 3, 224, 224), port("n", "i8", "N"))))
    document = (
        '{"inputs":[{"name":"x","shape":[1,3,224,224],"datatype":"FP32","parameters":{"binary_data_size":602112}},'
    )
    document += '{"name":"n","shape":[1],"datatype":"INT64","parameters":{"binary_data_size":8}}]}'
    assert line == (
        f"(printf %s '{document}'; head -c 602120 /dev/zero) | curl http://h/v2/models/m/infer "
        f"-H 'inference-header-content-length: {len(document)}' --data-binary @-"
    )


def test_unknown_inputs_stand_for_what_the_user_knows() -> None:
    assert '"name":"NAME"' in asked(INFERENCE)[-1]
    assert asked(HttpSourceConfig(codec="raw"))[-1] == "@FILE"


def test_a_url_is_one_that_this_machine_can_ask() -> None:
    config = HttpSourceConfig.model_validate({"listen": "0.0.0.0:0", "tls": {}, "codec": "json"})
    assert url_of(config, "a model/x", ("0.0.0.0", 81)) == "https://127.0.0.1:81/v1/a%20model%2Fx"
    assert "-k" in asked(config)


def test_ports_are_told_in_words() -> None:
    ports = Ports((port("a", "f4", "N", 2),), (port("b", "i4"),), (port("c", "O", None),))
    assert ports_in_words(ports) == "takes a float32 [N, 2]; gives c string [?]; may get b int32 []"
    assert ports_in_words(Ports()) == ""
