"""The user's function of a step: found by its configuration, opened, called and closed."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipelines.definitions.functions import is_batched
from pipelines.errors import DefinitionError, nearest
from pipelines.runners.code.eventloop import EventLoop


class UserCode:
    """A function, or an object of a class that is called like one, with its further arguments.

    An object may have `open()`, called before the first record, and `close()`, called after the last. The function,
    `open` and `close` may each be `async`: they run in one event loop then, `loop`.

    Raises `DefinitionError` if the function or class does not take `args`, or if objects of the class cannot be called;
    exceptions of the class and of `open` go through.
    """

    def __init__(
        self, label: str, function: Callable[..., Any], args: Mapping[str, Any], given: Sequence[str] = ("data",)
    ) -> None:
        """`given` says what each call is given, in order, before the further arguments."""
        self.loop: EventLoop | None = None
        """Where the function is awaited; `None` for one that is not `async`."""
        self._object: Any = None
        _check_args(label, function, args, () if isinstance(function, type) else given)
        if isinstance(function, type):
            self._object = function(**args)
            if not callable(self._object):
                raise DefinitionError(
                    f"objects of the class {label} cannot be called: give it a __call__(self, {', '.join(given)})"
                )
            _check_args(label, self._object, {}, given)
            # Looked up at the class, as a call is.
            called, self.call = self._object.__call__, self._object
        else:
            called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
            self.call = functools.partial(function, **args) if args else function
        self.batched = is_batched(function if self._object is None else self._object)
        """Whether it takes and returns a `Batch`."""
        self.waits = inspect.iscoroutinefunction(called)
        """Whether it is `async`."""
        self.takes_dict = not self.batched and _takes_dict(called)
        """Whether its first argument is annotated as a `dict`."""
        parts = (getattr(self._object, "open", None), getattr(self._object, "close", None))
        if self.waits or any(inspect.iscoroutinefunction(part) for part in parts):
            self.loop = EventLoop(f"streamer-{label}")
        try:
            self._do("open")
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Close the object and end the loop."""
        try:
            self._do("close")
        finally:
            self._end()

    def _do(self, name: str) -> None:
        method = getattr(self._object, name, None)
        if method is None:
            return
        if inspect.iscoroutinefunction(method):
            assert self.loop is not None
            self.loop.wait_for(method())
        else:
            method()

    def _end(self) -> None:
        if self.loop is not None:
            self.loop.close()


def _check_args(label: str, function: Callable[..., Any], args: Mapping[str, Any], given: Sequence[str]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # functions written in C have no signature
    try:
        signature.bind(*given, **args)
    except TypeError as error:
        params = list(signature.parameters.values())[len(given) :]
        known = [param.name for param in params if param.kind is not param.VAR_KEYWORD]
        unknown = next((name for name in args if name not in known), None)
        hint = "" if unknown is None else nearest(unknown, known)
        called = f"({', '.join(given)})" + (f" and args {dict(args)}" if args or not given else "")
        raise DefinitionError(f"{label}{signature} cannot be called with {called}: {error}{hint}") from error


def _takes_dict(function: Callable[..., Any]) -> bool:
    try:
        first = next(iter(inspect.signature(function).parameters.values()))
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, ValueError, StopIteration, AttributeError):
        return False  # annotated with names that are not imported, or not at all
    kind = hints.get(first.name)
    return (typing.get_origin(kind) or kind) is dict
