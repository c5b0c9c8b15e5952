"""The sizes of messages, by which sinks refuse one alone before brokers refuse a whole request."""

from __future__ import annotations

import numpy as np

from connectors.headers import Headers
from connectors.kafka.producer.messagesizes import message_sizes
from connectors.records import Messages


def test_payload_key_and_headers_of_a_message_are_counted_each_for_its_own() -> None:
    headers = [[("a", b"12"), ("bc", None)], None, [("d", b"")]]
    messages = Messages(
        rows=np.arange(3), values=[b"12345", None, b""], keys=[b"k", b"key", None], headers=Headers.of(headers)
    )
    assert message_sizes(messages).tolist() == [5 + 1 + 13 + 12, 3, 11]
    assert message_sizes(messages, headers=False).tolist() == [6, 3, 0]
    assert message_sizes(messages.take(np.array([2, 0]))).tolist() == [11, 31]


def test_messages_without_keys_and_headers_have_the_size_of_their_payload() -> None:
    assert message_sizes(Messages(rows=np.arange(2), values=[b"12", b""])).tolist() == [2, 0]
    assert message_sizes(Messages(rows=np.arange(0), values=[])).tolist() == []
