"""Services of strangers: `--no-code` refuses whatever runs code that a file holds or names.

That is what a step, a sink or a source says of itself (`code_keys`): PYTHON and FUNCTION steps, functions of SWITCH and
COMBINE, `when: module:function`, Kafka's `oauth_cb`, native libraries; also in pipelines inside a pipeline. Plug-ins
that are installed are not the file's, and stay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pipelines.errors import DefinitionError
from pipelines.walk import walk

if TYPE_CHECKING:
    from streamer.service import Service

VARIABLE: Final = "STREAMER_NO_CODE"
"""Environment variable that refuses code in every service of the process, whoever runs it: 1, or 0."""

REFUSED: Final = f"--no-code ({VARIABLE}) refuses code that files hold or name"

SHOWN: Final = 3
"""How many refusals one message lists."""

_OFF: Final = ("", "0", "false", "no", "off")


def code_allowed(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the environment (by default the process's) lets services run code. Anything but 0, no, false or off in
    `STREAMER_NO_CODE` says no."""
    return (os.environ if environment is None else environment).get(VARIABLE, "").strip().lower() in _OFF


def code_in(service: Service) -> dict[str, str]:
    """What of the service runs code, by its part (`step 0:PYTHON`, `sink kafka`), and by which of its keys.

    Raises `DefinitionError` for a pipeline's file that is wrong.
    """
    found = {f"step {part.name}": part.what.code_keys for part in walk(service.sequence())}
    found |= {f"source {config.label}": config.code_keys for config in service.sources}
    sinks = [*service.sinks, *([] if service.dead_letter is None else [service.dead_letter])]
    found |= {f"sink {config.label}": config.code_keys for config in sinks}
    return {part: ", ".join(keys) for part, keys in found.items() if keys}


def refused(service: Service) -> dict[str, str]:
    """Why parts of the service are refused, by part; empty if it may run code, or has none."""
    if service.allows_code:
        return {}
    return {part: f"{keys} runs code, and {REFUSED}; remove it or its step" for part, keys in code_in(service).items()}


def check_code(service: Service) -> None:
    """Raise `DefinitionError`, naming part and key, if the service has code and is not allowed to run it."""
    found = [f"service {service.name}: {part}: {why}" for part, why in refused(service).items()]
    if found:
        more = f" (and {len(found) - SHOWN} more)" if len(found) > SHOWN else ""
        raise DefinitionError("\n".join(found[:SHOWN]) + more)
