"""`delivery: exactly_once` under fire: every result once, with processes killed or frozen and brokers taken away.

The results are read as a reader of committed messages sees them. The long forms are in test_exactly_once_soak.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from exactlyonce import EXACTLY_ONCE, error_of, read_letters, stand_still_and_die, wait_for, write_poison
from kafkabus import set_largest_message

pytestmark = [pytest.mark.slow]


@pytest.mark.usefixtures("hot_path")
@pytest.mark.timeout(600)
def test_every_result_is_there_once_when_the_service_is_killed(ledger: Any, bench: Callable[..., Any]) -> None:
    records = 12_000
    ledger.write(records)
    # With an instance the next process aborts the transaction that the killed one left open.
    made = bench(ledger, EXACTLY_ONCE, instance="one")
    for done in (1, records // 4):
        member = made.start(0.05)
        wait_for(ledger, done, 120, member)
        member.kill()
    member = made.start()
    wait_for(ledger, records, 180, member)
    assert member.stop() == 0, member.text()
    ledger.check(once=made.members)


@pytest.mark.timeout(600)
def test_records_that_pass_by_are_acknowledged_in_transactions_when_the_service_is_killed(
    ledger: Any, bench: Callable[..., Any]
) -> None:
    where = """into: {key: id}
  where: id not like 'bad-%'"""
    # No codec reads those that pass by; one that was not left out would stop the service.
    passing = write_poison(ledger, undecodable=3000, too_large=0, seed=1)
    ledger.write(1000)
    passing += write_poison(ledger, undecodable=3000, too_large=0, seed=2)
    made = bench(ledger, EXACTLY_ONCE, instance="one", source=where)
    member = made.start(0.5)
    wait_for(ledger, passing // 2, 120, member)
    member.kill()
    member = made.start()
    wait_for(ledger, 1000 + passing, 180, member)
    assert member.stop() == 0, member.text()
    ledger.check(once=made.members)


@pytest.mark.timeout(600)
def test_every_result_is_there_once_when_a_member_stood_still_for_longer_than_its_transaction(
    ledger: Any, bench: Callable[..., Any]
) -> None:
    records = 8000
    ledger.write(records)
    made = bench(ledger, EXACTLY_ONCE)
    still, other = made.start(0.05), made.start(0.05)
    wait_for(ledger, records // 4, 120, still, other)
    still.process.send_signal(signal.SIGSTOP)
    # The group goes on without it, and the brokers abort the transaction that it left open.
    wait_for(ledger, records, 180, other)
    still.process.send_signal(signal.SIGCONT)
    ledger.write(1000, seed=2)
    wait_for(ledger, records + 1000, 180, still, other)
    for member in (still, other):
        assert member.stop() == 0, member.text()
    ledger.check(once=made.members)


@pytest.mark.timeout(600)
def test_every_result_is_there_once_when_the_broker_restarts_stands_still_dies_and_comes_back(
    private_kafka: Any, ledger_on: Callable[[str], Any], bench: Callable[..., Any]
) -> None:
    ledger = ledger_on(private_kafka.bootstrap)
    ledger.write(8000)
    made = bench(ledger, EXACTLY_ONCE)
    member = made.start(0.05)
    wait_for(ledger, 2000, 120, member)
    # It is the coordinator of the transactions, too.
    private_kafka.kill()
    private_kafka.restart()
    wait_for(ledger, 4000, 240, member)
    # In the midst of records, and longer than the transaction may take; killed when the client has made up for it. In
    # the soak it is killed before, too.
    ledger.write(6000, seed=2)
    stand_still_and_die(private_kafka, frozen=8, thawed=2)
    wait_for(ledger, 12_000, 240, member)
    ledger.write(1000, seed=3)
    wait_for(ledger, ledger.total(), 240, member)
    assert member.stop() == 0, member.text()
    ledger.check(once=made.members)


@pytest.mark.timeout(600)
def test_poisoned_records_become_dead_letters_once_and_hold_up_no_others(
    ledger: Any, bench: Callable[..., Any], topics: Any
) -> None:
    dead = topics(1, "ledger-dead")
    made = bench(ledger, f"{EXACTLY_ONCE}\ndead_letter: {{type: kafka, topic: {dead}}}")
    member = made.start(0.01)
    ledger.write(1000)
    wait_for(ledger, 1000, 120, member)
    # It learns the topic's limits when it begins: so the first of the large ones is refused by the brokers.
    set_largest_message(ledger.bootstrap, ledger.sink, 3000)
    poison = 0
    for seed in range(2, 5):
        ledger.write(1000, seed)
        poison += write_poison(ledger, undecodable=10, too_large=10, seed=seed)
    wait_for(ledger, 4000 + poison, 240, member)
    assert member.stop() == 0, member.text()
    ledger.check(once=made.members)
    letters = [error_of(letter) for letter in read_letters(ledger, dead)]
    assert len(letters) == poison
    assert sum("MSG_SIZE_TOO_LARGE" in text for text in letters) == poison // 2


@pytest.mark.timeout(600)
def test_a_service_whose_topic_is_deleted_stops_and_acknowledges_nothing_more(
    ledger: Any, bench: Callable[..., Any]
) -> None:
    ledger.write(2000)
    made = bench(ledger, EXACTLY_ONCE, sink="timeout: 4s, client: {allow.auto.create.topics: false}")
    member = made.start(0.01)
    wait_for(ledger, 2000, 120, member)
    admin = AdminClient({"bootstrap.servers": ledger.bootstrap})
    admin.delete_topics([ledger.sink])[ledger.sink].result()
    ledger.write(1000, seed=2)
    assert member.process.wait(120) == 1
    assert "is gone" in member.text()
    assert ledger.committed() == 2000
