"""Every error this project raises on purpose. A message says what is wrong and what to do next."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeVar

from pipelines.outofmemory import give_back

E = TypeVar("E", bound=BaseException)

SHOWN_PROBLEMS = 3
"""How many problems one message lists."""
SHOWN_KEYS = 8
"""How many keys of the path to a value an error names: the first and last ones."""

DISTRIBUTION = "streamer-inference"
"""Name of the distribution in the package registry; `pip install` hints are built from it."""


class StreamerError(Exception):
    """Base of all our errors: catch this to catch them all."""


class DataError(StreamerError):
    """A `Data` cannot hold the value, or has no value like the one asked for."""


class ValueNotFoundError(DataError, KeyError):
    """The key is not in the `Data`."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class WrongTypeError(DataError, TypeError):
    """The value has another type than the one asked for."""


class ReservedKeyError(DataError, ValueError):
    """The key is one that the JSON form uses for itself."""


class WireError(StreamerError, ValueError):
    """Bytes or text that are not a `Data`, or a `Data` that the form cannot carry.

    `key` is the record's key whose value is wrong, where the message begins with it. `keys` are all that lead to the
    value, from the outermost to that of the value itself, and `why` says what is wrong with it; both are empty where
    the error is of no value.
    """

    key: str | None = None
    keys: tuple[str, ...] = ()
    why: object = ""

    @classmethod
    def within(cls, key: object, why: object, done: Literal["read", "written"] = "read") -> WireError:
        """The error of an object whose value of `key` cannot be read or written.

        Args:
            key: The key in the object.
            why: The reason, or the error of a value inside of that value, whose key is then added to `key`.
            done: What cannot be done to it.
        """
        inner = why if isinstance(why, WireError) and why.keys else None
        keys = (str(key), *(inner.keys if inner else ()))
        reason = inner.why if inner else why
        named = ".".join(keys)
        if len(keys) > SHOWN_KEYS:
            named = f"{'.'.join(keys[: SHOWN_KEYS // 2])} ... {'.'.join(keys[-SHOWN_KEYS // 2 :])}"
        error = cls(f'key "{named}" cannot be {done}: {reason}')
        error.keys, error.why = keys, reason
        return error

    @classmethod
    def unreadable(cls, key: str, why: object) -> WireError:
        """The error of a record whose value of `key` cannot be read."""
        error = cls.within(key, why)
        error.key = key
        return error


class DefinitionError(StreamerError, ValueError):
    """A pipeline or service file is wrong. The message starts with `file:line: key:` as far as known.

    `problems` are all that were found, in a line each; the message holds the first three, and how many more there are.
    """

    def __init__(self, *problems: str) -> None:
        more = len(problems) - SHOWN_PROBLEMS
        text = "\n".join(problems[:SHOWN_PROBLEMS])
        super().__init__(text if more <= 0 else f"{text} (and {more} more)")
        self.problems = problems


class StepError(StreamerError):
    """A step failed for a record.

    `step` is the step's name in its pipeline (`None` outside one), `__cause__` the exception that the step raised.
    """

    def __init__(self, message: str, *, step: str | None = None) -> None:
        super().__init__(message)
        self.step = step

    @classmethod
    def of(cls, step: str, cause: BaseException) -> StepError:
        """`cause` as the failure of `step`; one that is a `StepError` with a step already stays as it is."""
        if isinstance(cause, StepError):
            if cause.step is None:
                cause.step = step
            return cause
        error = cls(f"{step}: {type(cause).__name__}: {cause}", step=step)
        error.__cause__ = cause
        return error


def step_of(error: BaseException) -> str:
    """The name of the step that failed with this error; empty if that is not known, or it was not a step."""
    return (error.step or "") if isinstance(error, StepError) else ""


RAISED: Final = (Exception, SystemExit)
"""What the code of others may raise about a record, or while it is opened: some libraries call `sys.exit`, and that is
to end no service. `blamed` makes an `Exception` of it. `KeyboardInterrupt` is raised on."""


class ExitCalledError(StreamerError):
    """The code of a step called `sys.exit`; `__cause__` is the `SystemExit`."""


def blamed(raised: BaseException) -> Exception:
    """What was raised as the error of a record or step. If memory ran out, what that call took is given back."""
    give_back(raised)
    if isinstance(raised, Exception):
        return raised
    error = ExitCalledError(f"sys.exit({getattr(raised, 'code', None)!r}) was called, which ends no service")
    error.__cause__ = raised
    return error


class RowsFailed(StreamerError):
    """Some rows of a batch failed: `failures` maps the position of each to its error.

    A runner or column raises it instead of a plain error to spare the executor the search by halves.
    `of` is the column or batch whose positions these are; `None`: the batch that the step was given. Positions in a
    part that the step made of that batch, by `take` for example, say nothing about its rows: then halves are searched.
    """

    def __init__(self, failures: Mapping[int, Exception], of: object = None) -> None:
        first = next(iter(failures.values()))
        super().__init__(f"{len(failures)} rows failed, the first with {type(first).__name__}: {first}")
        self.failures = failures
        self.of = of


class KeyNotInBatchError(RowsFailed, ValueNotFoundError):
    """No row of a batch has the key: all `size` of them fail."""

    def __init__(self, message: str, size: int, of: object) -> None:
        super().__init__(dict.fromkeys(range(size), ValueNotFoundError(message)), of)
        self.args = (message,)


class MissingPackageError(StreamerError, ImportError):
    """An optional package is not installed.

    `extra` of our distribution installs it, or else `how` says how; `needs` are several packages instead of the one.
    """

    def __init__(
        self, package: str, extra: str | None, purpose: str, *, needs: str | None = None, how: str | None = None
    ) -> None:
        how = how if extra is None else f"pip install '{DISTRIBUTION}[{extra}]'"
        several = needs is not None and needs != package
        what = f"the packages {needs}" if several else f"the package {package}"
        super().__init__(f"{purpose} needs {what}: {how or 'it is not installed'}", name=package)


class ConnectorError(StreamerError):
    """A source or sink cannot go on. `retriable` says whether trying again later can help."""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


MOST_KEYS = 200
"""Keys of a record that are compared with a wrong one at most: there may be thousands."""


def without_traceback(error: E) -> E:
    """The error to be kept for later, without its traceback and those of its causes.

    The frames in a traceback keep their local variables alive, a whole batch, until the garbage collector runs.
    """
    if error.__cause__ is not None:
        without_traceback(error.__cause__)
    error.__context__ = None
    return error.with_traceback(None)


def nearest(name: str, known: Iterable[str], most: int | None = None) -> str:
    """`; did you mean "X"?` for the known name closest to `name`, or an empty string. Looks at the first `most`."""
    names = list(itertools.islice(known, most))
    close = [candidate for candidate in names if candidate.lower() == name.lower()]
    close = close or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f'; did you mean "{close[0]}"?' if close else ""
