"""Errors of records for which there was not enough memory: what such a record took is given back at once."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

_LIBRARIES = ("onnxruntime", "cv2")
"""Libraries that have an error of their own instead of `MemoryError`."""
_SAYS = ("allocate", "bad_alloc")
"""What the texts of these errors say if an allocation failed."""


class _Freeing:
    room: Callable[[], AbstractContextManager[None]] = nullcontext


def free_with(room: Callable[[], AbstractContextManager[None]]) -> None:
    """Have `give_back` free memory within the context that `room` returns, which gives other threads some meanwhile."""
    _Freeing.room = staticmethod(room)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error or one that led to it says that an allocation failed."""
    return any(map(_is_failed_allocation, _chain(error)))


def give_back(error: BaseException) -> None:
    """If memory ran out, free what the calls that raised the error hold.

    An error is kept until its dead letter is sent, and the frames in its traceback keep their local variables alive:
    all that the record took before there was no more, which the next records then lack. The traceback stays, with the
    lines and without the variables.
    """
    if not is_out_of_memory(error):
        return
    with _Freeing.room():
        for cause in _chain(error):
            # Frames that still run, such as the caller's, are left alone.
            traceback.clear_frames(cause.__traceback__)
        gc.collect()


def _is_failed_allocation(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    return type(error).__module__.partition(".")[0] in _LIBRARIES and any(text in str(error) for text in _SAYS)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that led to it."""
    left, seen = [error], set[int]()
    while left:
        cause = left.pop()
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        left += [further for further in (cause.__cause__, cause.__context__) if further is not None]
