"""What each guarantee acknowledges, and when."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import streamer
from connectors.records import Lane, Records, Span
from connectors.source import Replays
from pipelines.errors import DefinitionError
from streamer.delivery.guarantee import AtLeastOnce, AtMostOnce, guarantee
from streamer.delivery.ledger import Ledger

A, B = Lane("s", "0", 0), Lane("s", "1", 0)


def records() -> Records:
    spans = [Span(A, 0, 2), Span(B, 2, 3), Span(A, 3, 4)]
    return Records("s", [b""] * 4, None, np.array([7, 8, 40, 9]), spans, ["t"] * 3, [0, 1, 0], 4)


def half_done() -> Ledger:
    """A ledger in which lane A is complete up to its second record, and lane B not at all."""
    ledger = Ledger()
    ledger.enter(records(), 0)
    ledger.decide(np.array([0, 1]))
    return ledger


def test_at_least_once_acknowledges_what_is_complete_and_nothing_earlier() -> None:
    ledger = half_done()
    assert guarantee("at_least_once").on_arrival(records()) == {}
    assert guarantee("at_least_once").on_commit(ledger) == {A: 9}
    assert guarantee("at_least_once").on_commit(ledger) == {}, "it has not moved since"
    assert guarantee("at_least_once").on_revoke(ledger, [A, B]) == {A: 9}


def test_at_most_once_acknowledges_all_before_it_is_run_and_nothing_later() -> None:
    ledger = half_done()
    assert guarantee("at_most_once").on_arrival(records()) == {A: 10, B: 41}
    assert guarantee("at_most_once").on_commit(ledger) == {}
    assert guarantee("at_most_once").on_revoke(ledger, [A, B]) == {}


@pytest.mark.parametrize("source", list(Replays))
def test_a_lost_message_is_made_good_by_the_source_unless_its_record_was_acknowledged(source: Replays) -> None:
    assert AtLeastOnce().on_loss(source) is source
    assert AtMostOnce().on_loss(source) is Replays.NONE


def test_a_guarantee_that_is_none_is_refused() -> None:
    with pytest.raises(DefinitionError, match='no delivery "perhaps"; use one of at_most_once, at_least_once, exactly'):
        guarantee("perhaps")


def test_nothing_else_compares_names_of_guarantees() -> None:
    compared = re.compile(r"""(==|!=|\bin\b|\bcase\b)[^#\n]*["'](at_most|at_least|exactly)_once["']""")
    folder = Path(streamer.__file__).parent
    assert [path.name for path in folder.rglob("*.py") if compared.search(path.read_text("utf-8"))] == []
