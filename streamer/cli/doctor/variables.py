"""The environment variables that streamer reads: which are set, and whether they can be used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from connectors.kafka.client.brokers import VARIABLE as BROKERS
from connectors.models.cache import CACHE_VARIABLE
from connectors.models.download import LIMIT_VARIABLE, TIMEOUT_VARIABLE
from connectors.units import seconds, size_in_bytes
from pipelines.errors import StreamerError, nearest
from pipelines.hotpath import VARIABLE as HOT_PATH
from pipelines.hotpath import choose
from streamer.cli.doctor.line import Line
from streamer.definition.loading import CONTROL_VARIABLE
from streamer.definition.nocode import ENV_VARIABLE, FILES_VARIABLE
from streamer.definition.nocode import VARIABLE as NO_CODE
from streamer.observe.logchoice import VARIABLE as LOG
from streamer.observe.logchoice import from_environment
from streamer.observe.shown import MASK, names_a_secret
from streamer.workers.layout import PAGES_VARIABLE, WORKER_VARIABLE

OURS: Final = (
    *(HOT_PATH, CONTROL_VARIABLE, NO_CODE, ENV_VARIABLE, FILES_VARIABLE, LOG),
    *(CACHE_VARIABLE, LIMIT_VARIABLE, TIMEOUT_VARIABLE, WORKER_VARIABLE, PAGES_VARIABLE),
)
"""The variables that only streamer has."""
_OTHERS: Final = (
    *(BROKERS, "MQTT_BROKER", "XDG_CACHE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "CUDA_VISIBLE_DEVICES"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
"""Variables of others that change what streamer, or a library below it, does."""
_PREFIX: Final = "STREAMER_"


def variables(named: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> list[Line]:
    """The variables that are set, with their values but for secrets, and names that nothing reads.

    Args:
        named: Variables that service files name: they are theirs.
        environment: By default that of the process.
    """
    given = os.environ if environment is None else environment
    lines = [_line(name, given[name]) for name in (*OURS, *_OTHERS) if given.get(name)]
    lines += _unknown(given, set(named))
    return lines or [Line("variables", "ok", "none of those that streamer reads is set")]


def _line(name: str, value: str) -> Line:
    text = MASK if names_a_secret(name) else _without_login(value)
    try:
        if check := _CHECKS.get(name):
            check(value)
    except (StreamerError, ValueError) as error:
        return Line(name, "wrong", str(error), "correct it or unset it")
    return Line(name, "ok", text)


_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    LOG: lambda value: from_environment({LOG: value}),
    HOT_PATH: lambda value: choose(),
    LIMIT_VARIABLE: size_in_bytes,
    TIMEOUT_VARIABLE: seconds,
}


def _without_login(value: str) -> str:
    """The value without what may be `user:password@`, also where no scheme is before it."""
    _, at, host = value.rpartition("@")
    return f"{MASK}@{host}" if at else value


def _unknown(given: Mapping[str, str], named: set[str]) -> Iterator[Line]:
    for name in sorted(given):
        if name.startswith(_PREFIX) and name not in OURS and name not in named:
            text = f"streamer reads no variable of this name{nearest(name, OURS)}"
            yield Line(name, "warning", text, "rename it or unset it")
