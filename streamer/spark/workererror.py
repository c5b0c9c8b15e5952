"""The error of a worker in the text of a query's error, which has tracebacks of Python and Java around it."""

from __future__ import annotations

import re
from typing import Final

_ERROR: Final = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Stopped): (.+)$", re.MULTILINE)


def reason_of(text: str) -> str:
    """Why a query failed: what its worker says, else the first line of the error."""
    _, traceback, of_python = text.partition("Traceback (most recent call last)")
    # Of errors that have causes the last is that which was raised.
    errors = _ERROR.findall(of_python.partition("JVM stacktrace")[0]) if traceback else []
    if errors:
        return str(errors[-1])
    return next((line for line in text.splitlines() if line.strip()), "the query has failed")
