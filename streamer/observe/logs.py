"""Logs: one event a line, as text on a terminal and as JSON elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog
from stamina.instrumentation import LoggingOnRetryHook, set_on_retry_hooks
from structlog.types import EventDict

from streamer.observe.shown import escaped, masked

_CLIENTS: Final = (
    *(
        "httpx",
        "httpx2",
        "httpcore",
        "httpcore2",
        "urllib3",
        "requests",
        "requests_oauthlib",
        "authlib",
        "aiohttp",
        "websockets",
        "hpack",
    ),
    *("azure", "msal", "boto3", "botocore", "s3transfer", "aiobotocore", "s3fs", "google", "gcsfs", "adlfs", "hvac"),
    *("fsspec", "huggingface_hub", "filelock", "grpc", "confluent_kafka", "paho", "asyncio", "py4j"),
    *("docker", "testcontainers", "PIL", "h5py", "tensorflow", "absl", "onnxruntime"),
)
"""Loggers of client libraries, which log at level info what only their own developers ask for, such as each request.
What is less than a warning is heard at level debug only. A user's own code, and plug-ins, log as they like."""

NAME = "streamer"
"""The name of the standard library's logger that all events of streamer go through."""


def configure(level: str = "info", *, as_json: bool | None = None) -> None:
    """Send events of streamer and of libraries to stderr, without secrets, and as text without control sequences for
    the terminal. `as_json` `None`: JSON unless stderr is a terminal.

    For the command line; in a user's program events go to the logger `streamer` as plain text.
    """
    if as_json is None:
        as_json = not sys.stderr.isatty()
    last: list[Any] = [_masked, structlog.processors.JSONRenderer()]
    if not as_json:
        last = [_masked, _escaped, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                *last,
            ],
            foreign_pre_chain=[_STAMP, structlog.stdlib.add_log_level, structlog.stdlib.ExtraAdder()],
        )
    )
    # By default stamina prints retries to stdout, in another format, with the secrets that their errors contain.
    set_on_retry_hooks([LoggingOnRetryHook])
    root = logging.getLogger()
    root.handlers[:] = [handler]
    lowest = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(lowest)
    for name in _CLIENTS:
        logging.getLogger(name).setLevel(logging.NOTSET if lowest < logging.INFO else max(lowest, logging.WARNING))


def logger(**bound: Any) -> Any:
    """A logger that adds `bound` to each of its events."""
    processors: list[Any] = [structlog.stdlib.filter_by_level, _STAMP, structlog.stdlib.add_log_level, _handed_over]
    wrapped = structlog.wrap_logger(
        logging.getLogger(NAME), processors=processors, wrapper_class=structlog.stdlib.BoundLogger
    )
    return wrapped.bind(**bound)


_STAMP = structlog.processors.TimeStamper(fmt="iso", utc=True)


def _handed_over(log: Any, method: str, event: EventDict) -> Any:
    """The event in the form that the formatter of `configure` takes, or as text where the handlers are the user's."""
    handlers = logging.getLogger().handlers
    if any(isinstance(handler.formatter, structlog.stdlib.ProcessorFormatter) for handler in handlers):
        return structlog.stdlib.ProcessorFormatter.wrap_for_formatter(log, method, event)
    pairs = " ".join(f"{key}={value!r}" for key, value in event.items() if key not in _PLAIN)
    return f"{event['event']} {pairs}".rstrip()


def _masked(log: Any, method: str, event: EventDict) -> EventDict:
    return {key: _without_secrets(value) for key, value in event.items()}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {_without_secrets(key): _without_secrets(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item) for item in value]
    return value


def _escaped(log: Any, method: str, event: EventDict) -> EventDict:
    """The event without control sequences for the terminal; a traceback keeps its lines. Values other than
    strings are shown as `repr`."""
    shown = {key: escaped(value) if isinstance(value, str) else value for key, value in event.items()}
    if "exception" in event:
        shown["exception"] = "\n".join(map(escaped, str(event["exception"]).splitlines()))
    return shown


_PLAIN = ("event", "level", "timestamp")
