"""What is committed with a position: read back as it was written, and nothing of what others wrote."""

from __future__ import annotations

import json

import pytest

from connectors.kafka.consumer.lanes import CommitMetadata
from connectors.source import CheckpointNote

NOTE = CheckpointNote("0123456789abcdef", "edge-7.example.org", 41)


@pytest.mark.parametrize(
    "metadata",
    [
        CommitMetadata(),
        CommitMetadata("AbC"),
        CommitMetadata("AbC", "0011"),
        CommitMetadata("AbC", "", NOTE),
        CommitMetadata(noted=NOTE),
        CommitMetadata(noted=CheckpointNote("x", "", 0)),
    ],
)
def test_what_was_committed_is_read_back(metadata: CommitMetadata) -> None:
    assert CommitMetadata.of(metadata.text()) == metadata


def test_the_name_of_a_host_does_not_make_the_text_longer_than_brokers_accept() -> None:
    text = CommitMetadata("A" * 22, "0" * 16, CheckpointNote("0" * 16, "h" * 10_000, 2**63)).text()
    assert len(text) < 500


def test_nothing_to_say_is_no_text() -> None:
    assert CommitMetadata().text() == ""


@pytest.mark.parametrize(
    "text", ["", "NoneOfOurs", "[1]", "1", "null", '{"store": 3}', '{"store": "a", "host": "b", "checkpoint": "7"}']
)
def test_the_metadata_of_other_programs_says_nothing(text: str) -> None:
    assert CommitMetadata.of(text) == CommitMetadata()


def test_a_wrong_checkpoint_does_not_hide_the_id_of_the_topic() -> None:
    text = json.dumps({"topic_id": "AbC", "store": "a", "host": "b", "checkpoint": True})
    assert CommitMetadata.of(text) == CommitMetadata("AbC")
