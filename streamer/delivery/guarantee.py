"""`Guarantee`: the delivery guarantee of a service: which positions are acknowledged, and when.

A guarantee decides at four points: when records arrive from a source, when positions are committed, when a source
loses lanes (a Kafka rebalance), and when a sink has lost messages that it had accepted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from connectors.records import Lane, Records
from connectors.source import Replays
from pipelines.errors import DefinitionError

if TYPE_CHECKING:
    from streamer.delivery.ledger import Ledger

NOTHING: Final[Mapping[Lane, int]] = {}
"""No position may be acknowledged."""


class Guarantee(ABC):
    """Says which positions are acknowledged when. Positions are those after the last record, by lane."""

    name: ClassVar[str]
    """As in the `delivery` field of a service."""
    may_gather_ahead: ClassVar[bool]
    """Whether the agent may gather several batches at once; `False` if a crash would lose their records."""
    transactional: ClassVar[bool] = False
    """Whether results and positions are committed by transactions, and the source commits none."""

    saves_state: ClassVar[bool] = False
    """Whether positions can be saved together with the state of steps, before they are acknowledged."""

    @abstractmethod
    def on_arrival(self, records: Records) -> Mapping[Lane, int]:
        """The positions that have to be acknowledged before these records are run. From an intake thread."""

    @abstractmethod
    def on_commit(self, ledger: Ledger, sources: Collection[str] | None = None) -> Mapping[Lane, int]:
        """The positions of these sources (`None`: of all) that may be acknowledged and moved since the last call."""

    @abstractmethod
    def on_revoke(self, ledger: Ledger, lanes: Iterable[Lane]) -> Mapping[Lane, int]:
        """The positions that may be acknowledged for lanes that are about to be lost, moved or not."""

    @abstractmethod
    def on_loss(self, source: Replays) -> Replays:
        """How the records of a lost message can be read again from a source that replays as `source` says."""


class AtMostOnce(Guarantee):
    """Records are acknowledged before they are run: none is run twice, and a crash loses those in flight."""

    name = "at_most_once"
    may_gather_ahead = False

    def on_arrival(self, records: Records) -> Mapping[Lane, int]:
        """The positions after all of them. Within a block the last span of a lane is the furthest."""
        return {lane: int(records.positions[stop - 1]) + 1 for lane, _, stop in records.spans}

    def on_commit(self, ledger: Ledger, sources: Collection[str] | None = None) -> Mapping[Lane, int]:
        """None: all were acknowledged on arrival."""
        return NOTHING

    def on_revoke(self, ledger: Ledger, lanes: Iterable[Lane]) -> Mapping[Lane, int]:
        """None: all were acknowledged on arrival."""
        return NOTHING

    def on_loss(self, source: Replays) -> Replays:
        """`Replays.NONE` for every source: an acknowledged record is not delivered again."""
        return Replays.NONE


class AtLeastOnce(Guarantee):
    """Records are acknowledged when their results are confirmed: none is lost, and a crash has some run twice."""

    name = "at_least_once"
    may_gather_ahead = True
    saves_state = True

    def on_arrival(self, records: Records) -> Mapping[Lane, int]:
        """None: they are acknowledged when they are complete."""
        return NOTHING

    def on_commit(self, ledger: Ledger, sources: Collection[str] | None = None) -> Mapping[Lane, int]:
        """The positions after the longest prefix of complete rows of each lane."""
        return ledger.marks(sources)

    def on_revoke(self, ledger: Ledger, lanes: Iterable[Lane]) -> Mapping[Lane, int]:
        """The positions after the longest prefix of complete rows of each lane."""
        return ledger.all_marks(lanes)

    def on_loss(self, source: Replays) -> Replays:
        """As the source can."""
        return source


class ExactlyOnce(AtLeastOnce):
    """Positions are committed with the results, in one transaction; the source is informed afterwards."""

    name = "exactly_once"
    transactional = True


GUARANTEES: Final[Mapping[str, Guarantee]] = {kind.name: kind for kind in (AtMostOnce(), AtLeastOnce(), ExactlyOnce())}


def guarantee(name: str) -> Guarantee:
    """The guarantee of this name. Raises `DefinitionError` if there is none."""
    known = GUARANTEES.get(name)
    if known is None:
        raise DefinitionError(f'there is no delivery "{name}"; use one of {", ".join(GUARANTEES)}')
    return known
