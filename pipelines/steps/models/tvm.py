"""TVM: run a model compiled by Apache TVM."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Key
from pipelines.steps.models.model import ModelUri, Place, placed


class Tvm(Step):
    """Run a model that Apache TVM has compiled: `Tvm("model.so", input_names=["x"], output_names=["y"])`."""

    type_name: ClassVar[str] = "TVM"
    run_by: ClassVar[RunBy | None] = RunBy("tvm", "pipelines.runners.models.tvm:TvmRunner", ("tvm",), extra="tvm")

    input_names: tuple[str, ...] | None = None
    """Keys of the arrays that the model takes, in the order of its parameters; default: the parameters' own names."""
    output_names: tuple[Key, ...] | None = None
    """Keys of the result, one for each of the model's outputs in its order; default: `default` for a single output."""
    model_uri: ModelUri = None
    """Path of the library that TVM's compiler Relax has written (`.so`, `.dylib`, `.dll`), or a `file:`, `http:` or
    `https:` URI."""
    lazy_init: bool = False
    """Whether the model is loaded with the first record instead of when the pipeline opens."""
    device: Annotated[str, EXTENSION] = "cpu"
    """Where it runs, by TVM's name: `cpu`, `cuda`, `cuda:1`, ..."""
    function: Annotated[str, EXTENSION] = "main"
    """The function of the model to call."""

    @property
    def code_keys(self) -> tuple[str, ...]:
        """The model: it is a library of machine code."""
        return (self.key("model_uri"),)

    def __init__(self, model_uri: Place = None, /, **fields: Any) -> None:
        super().__init__(**placed(model_uri, fields))
