"""A folder of small models, served as a repository."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper, save
from waiting import until

from pipelines import Data
from streamer.cli.commands.serve import _with_port
from streamer.definition.nocode import NoCode
from streamer.definition.serving import Serving
from streamer.models.repository.loading import Loader
from streamer.models.repository.repository import ModelRepository

BEGAN, ENDS = threading.Event(), threading.Event()


def wait(data: Data) -> Data:
    """A step that takes until `ENDS` is set."""
    BEGAN.set()
    assert ENDS.wait(20)
    return data


def model(file: Path, add: float = 0.0) -> Path:
    """A model that adds a number to `x`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    given, gives = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 2]) for name in "xy")
    node, number = helper.make_node("Add", ["x", "a"], ["y"]), helper.make_tensor("a", TensorProto.FLOAT, [], [add])
    graph = helper.make_graph([node], "add", [given], [gives], [number])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def free() -> str:
    return str(_with_port("127.0.0.1:0"))


@contextmanager
def served(
    folder: Path, *, controlled: bool = True, no_code: NoCode | None = None, **source: Any
) -> Iterator[ModelRepository]:
    fields = {"listen": free(), "token": "sesame", **source}
    repository = ModelRepository(Loader(folder, Serving(fields), no_code=no_code), controlled=controlled)
    repository.start()
    try:
        assert until(lambda: all(entry.state != "LOADING" for entry in repository.entries()))
        yield repository
    finally:
        repository.stop()
        repository.join()
