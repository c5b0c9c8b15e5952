"""Which hot path a Kafka client takes: the compiled bridge (docs/native.md), or plain Python.

confluent-kafka makes and owns the client in both. The bridge is loaded into it as a plug-in of librdkafka, which is how
it learns the client's handle; then it reads records, or writes messages, in blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from confluent_kafka import KafkaException, cimpl

from connectors.secrets import Scrubber
from pipelines.hotpath import Choice, HotPathError, HotPathReport

_log = logging.getLogger(__name__)

TESTED: Final = ((2, 3, 0), (2, 16, 255))
"""The oldest and the newest tested librdkafka; 255: any. With another version `auto` means plain Python."""
PLUGINS: Final = "plugin.library.paths"

Client = TypeVar("Client")
Handle = TypeVar("Handle")

_said: set[str] = set()


class Joined(NamedTuple, Generic[Client, Handle]):
    """A client, and the bridge to it."""

    client: Client
    handle: Handle | None
    """`None`: the client is used from plain Python."""
    report: HotPathReport


def report(choice: Choice) -> HotPathReport:
    """Which hot path a client will take, as far as is known before it exists. Raises `HotPathError` as `join` does."""
    bridge = _bridge(choice)
    return bridge if isinstance(bridge, HotPathReport) else choice.report


def join(
    make: Callable[[dict[str, Any]], Client],
    take: Callable[[ModuleType], Handle],
    properties: dict[str, Any],
    choice: Choice,
    label: str,
    scrub: Scrubber,
    *,
    producer: bool = False,
) -> Joined[Client, Handle]:
    """A client made of these properties, and the bridge to it.

    `make` makes a client, `take` gets the bridge to it from the extension. `label` names the connector, such as
    `source kafka`. With the bridge, a `producer` accepts messages from there only. If the bridge should work and does
    not, that is logged once. Raises `HotPathError` if `native` is chosen and cannot be used, and the errors of `make`.
    """
    bridge = _bridge(choice)
    if isinstance(bridge, HotPathReport):
        return Joined(make(properties), None, bridge)
    try:
        plugins = _with_ours(properties.get(PLUGINS), str(bridge.__file__))
        bridge.kafka_expect(producer)
        client = make({**properties, PLUGINS: plugins})
        handle = take(bridge)
    except (KafkaException, ValueError, TypeError, RuntimeError) as error:
        # A mistake in the configuration fails without the bridge, too: then this call raises its error.
        plain = make(properties)
        return Joined(plain, None, _refused(f"it cannot join the client: {scrub(str(error))}", choice, label))
    return Joined(client, handle, choice.report)


def _bridge(choice: Choice) -> ModuleType | HotPathReport:
    module = choice.native
    if module is None:
        return choice.report
    try:
        version, has_plugins = module.kafka_load(str(cimpl.__file__))
    except OSError as error:
        return _refused(f"librdkafka cannot be joined: {error}", choice)
    if not has_plugins:
        return _refused("this librdkafka was built without plug-ins", choice)
    number = (version >> 24, version >> 16 & 0xFF, version >> 8 & 0xFF)
    if TESTED[0] <= number <= TESTED[1]:
        return module
    text = (
        f"librdkafka {_dotted(number)} is not among the tested versions, {_dotted(TESTED[0])} to {_dotted(TESTED[1])}"
    )
    if not choice.required:
        return _refused(text, choice)
    _say_once(f"{text}: the compiled hot path is used all the same, as native is chosen")
    return module


def _with_ours(theirs: object, ours: str) -> str:
    if ";" in ours:
        raise ValueError(f"librdkafka takes no path with a semicolon: {ours}")
    return f"{theirs};{ours}" if theirs else ours


def _refused(reason: str, choice: Choice, label: str = "") -> HotPathReport:
    if choice.required:
        raise HotPathError(f"{label or 'Kafka'}: the compiled hot path cannot be used: {reason}")
    _say_once(f"Kafka goes through plain Python, at about twice the CPU time: {reason}")
    return HotPathReport("python", reason)


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        _log.warning("%s", text)


def _dotted(number: tuple[int, ...]) -> str:
    return ".".join(map(str, number))
