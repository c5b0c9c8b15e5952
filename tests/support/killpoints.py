"""`python killpoints.py run FILE`: the command `streamer`, as a process that kills itself at a point of a checkpoint.

It is killed once `order` has named the point; or it stands still there, with `SIGSTOP` as the signal.
Points of a checkpoint whose state is in a file:

- `confirmed`: all results are confirmed, and nothing is saved;
- `inside`: all is written in the transaction of the file, which has not ended;
- `saved`: the transaction has ended, and the position is not acknowledged to the group;
- `asked`: the acknowledgement is on its way to the group;
- `committed`: the group has it, and the process has not taken the answer.

If it is in a topic, the positions are committed with the state:

- `confirmed`: as above;
- `inside`: brokers have all of the transaction, whose end is not asked for;
- `asked`: the end of the transaction is on its way;
- `committed`: the transaction has ended, and the store does not know it;
- `saved`: the store knows it, and the source does not.

With `delivery: exactly_once` results are in the same transaction, and `confirmed` is where all of them have been sent.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from connectors.databasefile import DatabaseFile
from connectors.kafka.consumer.commits import Commits
from connectors.kafka.source import KafkaSource
from connectors.kafka.transactionalsink import KafkaTransactionalSink
from connectors.records import Lane
from connectors.source import TransactionToken
from pipelines.runners.state.item import Change
from streamer.cli import main
from streamer.state.filestore import FileStore
from streamer.state.store import NOTHING, Scope
from streamer.state.topicstore import TopicStore
from streamer.state.transactionalcheckpoints import TransactionalCheckpoints

POINTS: Final = ("confirmed", "inside", "saved", "asked", "committed")
_ORDER: Final = "kill"
_MOST: Final = 0.01
"""Seconds within which something that was asked for is on its way, or done."""
_times: Final[Counter[str]] = Counter()


def order(folder: Path, point: str, times: int, sent: signal.Signals = signal.SIGKILL) -> None:
    """Have the process that runs in this folder killed when it comes to `point`, the `times`th time from now on.

    `sent` is the signal that it sends itself; `SIGSTOP` not at `asked`, nor at `committed` of a file.
    """
    written = folder / f"{_ORDER}.new"
    written.write_text(f"{point} {times} {int(sent)}")
    written.replace(folder / _ORDER)


def withdraw(folder: Path) -> None:
    """Take back the order, before another process starts in this folder."""
    (folder / _ORDER).unlink()


def _is_due(point: str) -> bool:
    """Whether the process is to be killed now that it has come to this point."""
    try:
        ordered, times, _ = Path(_ORDER).read_text().split()
    except FileNotFoundError:
        return False
    _times[point] += ordered == point
    return ordered == point and _times[point] == int(times)


def _halt() -> None:
    os.kill(os.getpid(), int(Path(_ORDER).read_text().split()[-1]))


def _die() -> NoReturn:
    _halt()
    raise AssertionError("a process that has killed itself goes on")


def _reached(point: str) -> None:
    if _is_due(point):
        _halt()


def _on_its_way() -> None:
    time.sleep(random.uniform(0, _MOST))


def _watch_store(store: Any) -> None:
    save = store.save

    def watched(
        self: Any,
        changes: Iterable[tuple[Scope, str, Change]],
        positions: Mapping[Scope, int],
        acknowledged: Mapping[Scope, int] = NOTHING,
    ) -> int:
        listed = list(changes)
        # Saves without changes are those of acknowledged positions alone.
        if listed:
            _reached("confirmed")
        number = int(save(self, listed, positions, acknowledged))
        if listed:
            _reached("saved")
        return number

    store.save = watched


def _watch_checkpoints(checkpoints: Any) -> None:
    saving, was_saved = checkpoints.saving, checkpoints.was_saved

    def watched(self: Any, *arguments: Any) -> Any:
        asked = saving(self, *arguments)
        if len(asked.positions):
            _reached("confirmed")
        return asked

    def watched_end(self: Any, *arguments: Any) -> None:
        was_saved(self, *arguments)
        _reached("saved")

    checkpoints.saving, checkpoints.was_saved = watched, watched_end


def _watch_file(file: Any) -> None:
    transaction = file.transaction

    @contextmanager
    def watched(self: DatabaseFile, *, safe: bool = True) -> Iterator[sqlite3.Connection]:
        with transaction(self, safe=safe) as connection:
            yield connection
            _reached("inside")

    file.transaction = watched


def _watch_acknowledgements(source: Any, commits: Any) -> None:
    acknowledge, answered = source.acknowledge, commits.answered

    def asked(self: KafkaSource, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        acknowledge(self, positions, wait=wait)
        # With state in a topic it is asked for, and known, before the source is told.
        if positions and _is_due("asked"):
            _on_its_way()
            _die()

    def committed(self: Commits, *answer: Any) -> None:
        _reached("committed")
        answered(self, *answer)

    source.acknowledge, commits.answered = asked, committed


def _watch_transactions(sink: Any) -> None:
    commit = sink.commit

    def watched(
        self: KafkaTransactionalSink, positions: Mapping[Lane, int], token: TransactionToken, deadline: float
    ) -> None:
        for point in ("inside", "asked"):
            if _is_due(point):
                self.add_positions(positions, token, deadline)
                self.barrier(deadline)
                if point == "asked":
                    threading.Thread(target=commit, args=(self, positions, token, deadline)).start()
                    _on_its_way()
                    _die()
                _halt()
        commit(self, positions, token, deadline)
        _reached("committed")

    sink.commit = watched


if __name__ == "__main__":
    for store in (FileStore, TopicStore):
        _watch_store(store)
    _watch_checkpoints(TransactionalCheckpoints)
    _watch_file(DatabaseFile)
    _watch_acknowledgements(KafkaSource, Commits)
    _watch_transactions(KafkaTransactionalSink)
    main()
