"""Runs PYTHON: the code of a definition, with the values of each record as its variables."""

from __future__ import annotations

import ast
import builtins
import keyword
import linecache
import logging
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any, ClassVar, Final

from pipelines.data.data import Data
from pipelines.errors import DefinitionError, StreamerError, ValueNotFoundError
from pipelines.runners.code.pythonvalues import converter, variable
from pipelines.runners.runner import OpenContext, RowRunner
from pipelines.steps.code.python import Python, PythonConfig

LOGGER: Final = "pipelines.python"
"""Name of the logger that says which fields have no effect."""

NO_EFFECT: Final = (
    "python_config_type",
    "python_path",
    "environment_name",
    "append_type",
    "python_libraries_path",
    "python_inputs",
    "python_outputs",
    "extra_inputs",
    "return_all_inputs",
    "setup_and_run",
)
"""Fields that have no effect: they choose an interpreter, where ours is the only one, or Konduit ignores them too.
`python_path_resolution` and `job_suffix` are not among them: Konduit always writes them."""


class PythonCodeError(StreamerError):
    """The user's code raised: names the file, the line and the exception, which is also its `__cause__`."""


class PythonRunner(RowRunner):
    """Sets variables, runs the code, and takes the outputs from its variables.

    The code runs in one namespace, that of a script (`__name__` is `__main__`), which lasts while the step is open:
    variables that the code assigns keep their values from record to record. Variables that were set from a record's
    values do not: before the next record they get back the value of the import code, or are deleted. An output has to
    be set for each record: otherwise it is the value of the import code, or an error, never the value of an earlier
    record, though the code itself may read that. Two kinds are taken for state and are not reset: outputs that the
    import code makes and the code reads, and those that it looks up by a text, `globals()["y"]`.

    A value without an entry in `ioInputs` becomes a variable only if the name is free, so that no record replaces a
    name of the code or of Python. Values are data; nothing of a record is run. The result has the outputs, and the
    record's metadata.

    Raises when it opens: `StreamerError` where code is not allowed, `DefinitionError` if there is no code, its file is
    not there, it is not Python, its import code fails, or the types of an output do not go together. For a record:
    `PythonCodeError` naming file and line if the code raises; `ValueNotFoundError` for an output that was not set,
    `WrongTypeError` and `DataError` for one that does not fit its declared type.
    """

    keeps_rows: ClassVar[bool] = True
    writes: ClassVar[bool] = False
    # The code may keep state, such as counts.
    pure: ClassVar[bool] = False
    alone = True

    def __init__(self, step: Python, context: OpenContext) -> None:
        if not context.allow_code:
            raise StreamerError(
                "the step runs Python code, and code from definitions is not allowed here; allow it or remove the step"
            )
        config = step.python_config
        if config is None:
            raise DefinitionError('the step has no code: give it "pythonConfig" with "pythonCode" or "pythonCodePath"')
        self._files: list[str] = []
        name = context.step or step.name or step.type_name
        code = self._compiled(config, "python_code", name, context)
        if code is None:
            raise DefinitionError('the step has no code: give "pythonConfig" a "pythonCode" or "pythonCodePath"')
        outputs = config.io_outputs or {}
        self._outputs = {output: converter(output, io) for output, io in outputs.items()}
        self._declared = frozenset(config.io_inputs or ())
        # Python looks there for a name that the namespace lacks: for its own, and for outputs of the call before.
        self._fallback: dict[str, Any] = dict(vars(builtins))
        self._namespace: dict[str, Any] = {"__name__": "__main__", "__builtins__": self._fallback}
        importing = self._compiled(config, "import_code", name, context)
        if importing is not None:
            self._import(importing.code)
            self._fallback.update(vars(builtins))
        self._code = code.code
        self._imported = dict(self._namespace)
        both = [code] if importing is None else [code, importing]
        self._used_names = set().union(*(code.bound for code in both), self._imported, vars(builtins))
        read, asked = (set().union(*names) for names in zip(*((code.read, code.asked) for code in both), strict=True))
        self._renewed = [
            name for name in outputs if name not in asked and not (name in read and name in self._imported)
        ]
        self._set: set[str] = set()
        _log_ignored(config, name)

    def run(self, data: Data) -> Data:
        self._forget_inputs()
        self._retire_outputs()
        self._set_inputs(data)
        try:
            exec(self._code, self._namespace)  # noqa: S102 - the step is there to run its author's code
        except (Exception, SystemExit) as error:  # `sys.exit` in the code must not end the service
            raise self._located(error) from error
        values = {name: convert(self._output(name)) for name, convert in self._outputs.items()}
        return Data(values, metadata=data.metadata)

    def close(self) -> None:
        for file in self._files:
            linecache.cache.pop(file, None)
        self._namespace.clear()
        self._fallback.clear()

    def _forget_inputs(self) -> None:
        for name in self._set:
            if name in self._imported:
                self._namespace[name] = self._imported[name]
            else:
                self._namespace.pop(name, None)

    def _retire_outputs(self) -> None:
        for name in self._renewed:
            if name in self._imported:
                self._namespace[name] = self._imported[name]
            elif name in self._namespace:
                value = self._namespace.pop(name)
                if not hasattr(builtins, name):
                    self._fallback[name] = value

    def _set_inputs(self, data: Data) -> None:
        self._set = {name for name in data if name in self._declared or self._is_free(name)}
        for name in self._set:
            self._namespace[name] = variable(data[name])

    def _is_free(self, name: str) -> bool:
        return (
            name.isidentifier()
            and not name.startswith("__")
            and name not in self._used_names
            and not keyword.iskeyword(name)
            # A name that the code made by other means, `globals()` for example.
            and name not in self._namespace
        )

    def _output(self, name: str) -> Any:
        if name in self._namespace:
            return self._namespace[name]
        raise ValueNotFoundError(f'the code has set no variable "{name}" for this record, but ioOutputs names it')

    def _compiled(self, config: PythonConfig, field: str, step: str, context: OpenContext) -> _Compiled | None:
        """The code of a field, or of the file that the field beside it names."""
        text, file = getattr(config, field), f"<{step} {config.key(field)}>"
        path = getattr(config, f"{field}_path")
        if text is None and path is None:
            return None
        if text is None:
            place = context.path(path)
            try:
                text, file = place.read_text("utf-8"), str(place)
            except (OSError, UnicodeDecodeError) as error:
                raise DefinitionError(f"{config.key(f'{field}_path')}: {place} cannot be read: {error}") from None
        else:
            # A traceback shows the lines of files only; these are of none.
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        self._files.append(file)
        try:
            tree = ast.parse(text, file)
            code = compile(tree, file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
            message = error.msg if isinstance(error, SyntaxError) else error
            raise DefinitionError(f"{file}{line}: {type(error).__name__}: {message}") from None
        return _Compiled(code, frozenset(_bound(tree)), frozenset(_read(tree)), frozenset(_asked(tree)))

    def _import(self, code: CodeType) -> None:
        try:
            exec(code, self._namespace)  # noqa: S102 - as in `run`
        except (Exception, SystemExit) as error:
            raise DefinitionError(str(self._located(error))) from error

    def _located(self, error: BaseException) -> PythonCodeError:
        frames = ((frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__))
        places = [f"{file}:{line}: " for file, line in frames if file in self._files]
        text = f"{places[-1] if places else ''}{type(error).__name__}: {error}"
        if isinstance(error, NameError) and error.name in self._declared:
            text += "; the record has no such value, which ioInputs names"
        return PythonCodeError(text)


@dataclass(frozen=True, slots=True)
class _Compiled:
    code: CodeType
    bound: frozenset[str]
    """Names that it binds."""
    read: frozenset[str]
    """Names whose value it reads."""
    asked: frozenset[str]
    """Names that it may look up in `globals()`, and names that it deletes."""


def _bound(tree: ast.AST) -> Iterable[str]:
    """The names that code binds (assigns, defines, imports), at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            yield from node.names
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name is not None:
            yield node.name


def _read(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _asked(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.keyword) and node.arg is not None:
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            yield node.id


def _log_ignored(config: PythonConfig, step: str) -> None:
    given = [config.key(field) for field in NO_EFFECT if getattr(config, field)]
    given += [
        config.key(f"{field}_path")
        for field in ("python_code", "import_code")
        if getattr(config, field) is not None and getattr(config, f"{field}_path") is not None
    ]
    if given:
        logging.getLogger(LOGGER).info(
            "%s: %s without effect; the code runs in this interpreter, %s", step, ", ".join(given), sys.executable
        )
