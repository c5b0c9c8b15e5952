"""Positions that the saved state does not lead to stop the service; the text names both places and both ways out."""

from __future__ import annotations

import pytest
from memorystore import MemoryStore

from connectors.records import Lane
from connectors.source import CheckpointNote
from pipelines.errors import DefinitionError
from streamer.state.otherposition import OtherPosition
from streamer.state.store import Loaded

OURS = CheckpointNote("memory", "here", 3)
OTHER = CheckpointNote("another", "there", 7)


def at(position: int, saved: Loaded, noted: CheckpointNote | None, *, begins_anew: bool = False) -> OtherPosition:
    store = MemoryStore()
    store.checkpoint, store.begins_anew = 3, begins_anew
    return OtherPosition(store, Lane("pumps", "pumps-0", 1), position, saved, noted)


@pytest.mark.parametrize(
    ("position", "saved", "noted"),
    [
        (0, Loaded(None, {}), None),
        (9, Loaded(None, {}), None),
        (5, Loaded(5, {}, 5), OURS),
        (4, Loaded(5, {}, 4), OURS),
        (4, Loaded(5, {}, None), None),
        # Behind the last record there is what is never delivered.
        (6, Loaded(5, {}, 5), OURS),
        (5, Loaded(5, {}, 4), OTHER),
        (4, Loaded(5, {}, 4), OTHER),
    ],
)
def test_a_position_that_the_state_leads_to_is_gone_on_with(
    position: int, saved: Loaded, noted: CheckpointNote | None
) -> None:
    here = at(position, saved, noted)
    here.check()
    assert not here.is_taken_over


@pytest.mark.parametrize(
    ("position", "saved", "noted", "why"),
    [
        (6, Loaded(5, {}, 5), None, "goes on at position 6, and the saved state has seen records only up to 5"),
        (3, Loaded(5, {}, 4), None, "goes on at position 3, though 4 was acknowledged"),
        (3, Loaded(5, {}, 4), OURS, "goes on at position 3, though 4 was acknowledged"),
        (5, Loaded(5, {}, 5), CheckpointNote("memory", "there", 4), "of save 4 on host there, and memory on host here"),
        (9, Loaded(None, {}), OTHER, "saved on host there .save 7., and memory on host here is new, or has nothing"),
        (9, Loaded(5, {}, 4), OTHER, "saved on host there .save 7., and memory on host here is another"),
        (3, Loaded(5, {}, 4), OTHER, "saved on host there .save 7., and memory on host here is another"),
    ],
)
def test_any_other_position_is_refused(position: int, saved: Loaded, noted: CheckpointNote | None, why: str) -> None:
    with pytest.raises(DefinitionError, match=f"state: pumps pumps-0: .*{why}.*streamer state forget memory"):
        at(position, saved, noted).check()


def test_a_state_that_was_emptied_on_purpose_begins_where_another_ended() -> None:
    here = at(9, Loaded(None, {}), OTHER, begins_anew=True)
    here.check()
    assert here.is_taken_over
    with pytest.raises(DefinitionError):
        at(9, Loaded(5, {}, 5), OTHER, begins_anew=True).check()


@pytest.mark.parametrize(
    ("position", "saved", "noted"),
    [(-1, Loaded(None, {}), None), (7, Loaded(None, {}), None), (5, Loaded(5, {}), OURS), (5, Loaded(5, {}), None)],
)
def test_the_position_of_one_transaction_with_the_state_is_gone_on_with(
    position: int, saved: Loaded, noted: CheckpointNote | None
) -> None:
    at(position, saved, noted).check_same()


@pytest.mark.parametrize(
    ("position", "saved", "noted", "why"),
    [
        (6, Loaded(5, {}), OURS, "at position 6, and the state in memory is of position 5"),
        (4, Loaded(5, {}), None, "at position 4, and the state in memory is of position 5"),
        (-1, Loaded(5, {}), None, "at the beginning, and the state in memory is of position 5"),
        (4, Loaded(None, {}), OURS, "at position 4, and memory has nothing of this partition"),
        (4, Loaded(None, {}), OTHER, "saved on host there .*, and memory on host here is new"),
    ],
)
def test_any_other_than_that_of_one_transaction_is_refused(
    position: int, saved: Loaded, noted: CheckpointNote | None, why: str
) -> None:
    with pytest.raises(DefinitionError, match=f"state: pumps pumps-0: .*{why}.*--from"):
        at(position, saved, noted).check_same()
