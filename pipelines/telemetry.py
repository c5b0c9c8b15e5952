"""Keeps onnxruntime from sending data about its use to its makers, which its packages do by default."""

from __future__ import annotations

import os
from typing import Any, Final

VARIABLE: Final = "ORT_DISABLE_TELEMETRY"
"""onnxruntime reads it while it is imported; `1` means that nothing is collected, stored or sent."""


def disable_telemetry() -> None:
    """Set ORT_DISABLE_TELEMETRY=1, here and for processes that are started later, unless the variable has a value.

    Has its full effect only before onnxruntime is imported for the first time.
    """
    if not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = "1"


def import_onnxruntime() -> Any:
    """The module `onnxruntime`, with its telemetry off unless ORT_DISABLE_TELEMETRY is `0`.

    All of streamer's code imports onnxruntime by this function.

    Raises:
        ImportError: It is not installed, or cannot be loaded.
    """
    disable_telemetry()
    import onnxruntime

    if os.environ[VARIABLE] != "0":
        # For builds that do not read the variable, and where other code has imported onnxruntime before.
        onnxruntime.disable_telemetry_events()
    return onnxruntime
