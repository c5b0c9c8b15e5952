"""PYTHON: the user's Python code as a step."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Config, Key, Spelling

PythonType = Literal["bool", "list", "bytes", "numpy.ndarray", "str", "dict", "int", "float"]
"""Types of variables, as Konduit Serving names them."""

TypeName = Literal[
    "NDARRAY",
    "STRING",
    "BYTES",
    "IMAGE",
    "DOUBLE",
    "INT64",
    "BOOLEAN",
    "BOUNDING_BOX",
    "DATA",
    "LIST",
    "POINT",
    "BYTEBUFFER",
    "NONE",
]
"""Names of `ValueType`."""


class PythonIO(Config):
    """A variable of the code; its name is this entry's key."""

    name: str | None = None
    """No effect: the entry's key is the name of the variable."""
    python_type: PythonType | None = None
    """Type that the variable of an output must have; default: any that a record can hold. No effect for an input, which
    has the type of its value."""
    secondary_type: TypeName = "NONE"
    """Type that the elements of an output `list` are converted to; `NONE`: that of their Python type."""
    type: TypeName = "NONE"
    """Type that an output is converted to: `bytes` to `IMAGE`, `BYTES` (also with `NONE`), `BYTEBUFFER` or `STRING`,
    `dict` to `POINT`, `BOUNDING_BOX` or `DATA` (also with `NONE`)."""


class PythonConfig(Config):
    """The code of a PYTHON step and its variables.

    Paths are relative to the definition's folder. Konduit Serving embeds an interpreter, which fields select; here the
    code runs in the interpreter of the service, with the packages installed there. These fields, and those that Konduit
    itself ignores, are kept when a definition is written and have no effect.
    """

    python_config_type: Literal["JAVACPP", "PYTHON", "CONDA", "VENV", "CUSTOM"] | None = None
    """No effect: the code runs in the service's interpreter."""
    python_path: str | None = None
    """No effect."""
    environment_name: str | None = None
    """No effect."""
    append_type: Literal["BEFORE", "NONE", "AFTER"] | None = None
    """No effect."""
    python_path_resolution: Literal["STATIC", "DYNAMIC"] = "STATIC"
    """No effect."""
    python_inputs: dict[str, Any] | None = None
    """No effect, as in Konduit Serving: use `ioInputs`."""
    python_outputs: dict[str, Any] | None = None
    """No effect, as in Konduit Serving: use `ioOutputs`."""
    extra_inputs: dict[str, Any] | None = None
    """No effect, as in Konduit Serving."""
    job_suffix: str = "konduit_job"
    """No effect, as in Konduit Serving."""
    python_code: Annotated[str | None, Spelling(yaml="pythonCode")] = None
    """The code that runs for each record."""
    python_code_path: Annotated[str | None, Spelling(yaml="pythonCodePath")] = None
    """File with the code, if `pythonCode` is not given; read when the step is opened."""
    python_libraries_path: Annotated[str | None, Spelling(yaml="pythonLibrariesPath")] = None
    """No effect."""
    import_code: Annotated[str | None, Spelling(yaml="importCode")] = None
    """Code that runs once, before the first record: imports, functions, state."""
    import_code_path: Annotated[str | None, Spelling(yaml="importCodePath")] = None
    """File with this code, if `importCode` is not given."""
    return_all_inputs: Annotated[bool, Spelling(yaml="returnAllInputs")] = False
    """No effect, as in Konduit Serving."""
    setup_and_run: Annotated[bool, Spelling(yaml="setupAndRun")] = False
    """No effect, as in Konduit Serving."""
    io_inputs: Annotated[dict[str, PythonIO] | None, Spelling(yaml="ioInputs")] = None
    """Keys of the record whose values always become variables. Other keys do so only if the name is an identifier that
    neither the code nor Python uses."""
    io_outputs: Annotated[dict[Key, PythonIO] | None, Spelling(yaml="ioOutputs")] = None
    """The variables that become the keys of the result, which has no others."""


class Python(Step):
    """Run Python code for each record: its variables are the record's values, and variables that it sets the result.

    For new code the step FUNCTION is shorter and faster.
    """

    type_name: ClassVar[str] = "PYTHON"
    run_by: ClassVar[RunBy | None] = RunBy("python", "pipelines.runners.code.python:PythonRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    python_config: PythonConfig | None = None
    """The code and its variables; required to run."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files with its code."""
        config = self.python_config or PythonConfig()
        named = (
            config.python_code_path if config.python_code is None else None,
            config.import_code_path if config.import_code is None else None,
        )
        return tuple(path for path in named if path)

    @property
    def code_keys(self) -> tuple[str, ...]:
        """The key of its code: all its configuration."""
        return (self.key("python_config"),)
