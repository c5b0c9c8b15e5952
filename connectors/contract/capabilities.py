"""Capabilities that a bus may lack, and how a contract leaves out the tests that need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

CAPABILITIES: Mapping[str, str] = {
    "bytes": "payloads are bytes, not objects",
    "read": "messages of a sink can be read back unchanged (bus.read_back), rather than as pictures drawn of them",
    "keys": "messages have keys",
    "binary_keys": "a key may be any bytes",
    "same_key": "messages with the same key are all kept, rather than only the last one",
    "headers": "messages have headers: text, in an order, names may be repeated",
    "binary_headers": "a header's value may be any bytes, or none at all",
    "timestamps": "messages have timestamps that the sender sets",
    "tombstones": "a message may have no payload",
    "empty": "a payload may be empty, which is not the same as none",
    "huge": "a payload may have 5 MB",
    "partitions": "the source has several lanes (bus.partitions > 1)",
    "live": "messages that are fed while the source is open arrive",
    "positions": "positions are those of the bus, the same for another process and another lane",
    "restart": "unacknowledged records come again in another process",
    "rewind": "unacknowledged records come again after `rewind`",
    "revoke": "lanes can be taken away and given back (bus.take_away, bus.give_back)",
    "backlog": "messages that were fed are there for a poll, rather than fetched or decoded while it waits",
    "end": "the source can come to an end (bus.end)",
    "held": "the bytes that the source holds can be measured (bus.held_bytes)",
    "confirmed": "the sink names confirmed rows, at the latest after a barrier",
    "limit": "the sink refuses some payloads (bus.too_large)",
    "topics": "a message can name its own topic",
    "override": "a second message with the same key takes the place of the first",
    "reopen": "messages of a sink are kept when another sink opens",
    "cut": "the peer can be cut off and mended (bus.cut, bus.mend)",
    "waits": "messages that are sent while the peer is cut off are confirmed when the peer is back, not before",
    "vanish": "the place that the sink writes to can be deleted and created again (bus.vanish, bus.restore)",
    "lose": "messages that the sink accepted can be lost (bus.lose)",
    "late": "a message can be refused after a transactional sink accepted it (bus.refused_late)",
    "fence": "another process can take over the identity of a transactional sink (bus.fence)",
}
"""Every capability that a test of the contract may need, and its meaning."""

Test = TypeVar("Test", bound=Callable[..., Any])


def needs(*capabilities: str) -> Callable[[Test], Test]:
    """Mark a test as one for connectors with these capabilities. `TypeError` for an unknown one."""
    if unknown := set(capabilities) - CAPABILITIES.keys():
        raise TypeError(f"unknown capability {', '.join(sorted(unknown))}")

    def mark(test: Test) -> Test:
        test.needs = capabilities  # type: ignore[attr-defined]
        return test

    return mark


class Contract:
    """Base of the contracts. `cannot` names the capabilities that the connector's bus lacks, with the reasons."""

    cannot: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for capability, reason in cls.cannot.items():
            if capability not in CAPABILITIES or not reason:
                raise TypeError(f'{cls.__name__}.cannot: "{capability}" is unknown or has no reason')
        for name in dir(cls):
            test = getattr(cls, name)
            if name.startswith("test_") and any(capability in cls.cannot for capability in getattr(test, "needs", ())):
                # pytest collects callables only: so a test that is left out does not exist, rather than being skipped.
                setattr(cls, name, None)
