"""Runs FUNCTION with `remember`: the user's function, and a state for each key that outlives the process."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.data.data import Data
from pipelines.data.result import Result
from pipelines.errors import RAISED, DataError, DefinitionError
from pipelines.runners.code.alldropped import AllDropped
from pipelines.runners.code.function import LOGGER, WHY_DROPPED, adopted, plain_dict
from pipelines.runners.code.usercode import UserCode
from pipelines.runners.keyed.keyedrunner import KeyedRunner
from pipelines.runners.runner import OpenContext, failure, listed, of_outcomes
from pipelines.steps.code.function import Function

LARGEST: Final = 64 * 1024
"""Bytes that the JSON text of a state may have."""
EMPTY: Final = "{}"
"""The state of a key that is new, or of which nothing is remembered any more."""
_log = logging.getLogger(LOGGER)


class RememberingRunner(KeyedRunner):
    """Calls a function with each record and the state of its key, `f(data, state, **args)`, one after the other.

    The state is a `dict` that the function changes; what it has then is JSON. Each call gets a `dict` of its own, read
    from that text, so that a call sees the same after a restart and without. A record whose call raises, or that fails
    as its result or its state is of no use, leaves the state as it was. A state that is empty is not saved.

    Raises:
        StreamerError: When it opens where code is not allowed.
        DefinitionError: The function does not exist, does not take a record, a state and `args`, takes whole batches or
            is `async`.
    """

    def __init__(self, step: Function, context: OpenContext) -> None:
        assert step.remember is not None
        self._texts: list[str] = []
        """The state of each key as JSON, by its code."""
        super().__init__(step.remember, step.most_keys, context, context.step or step.type_name)
        self._code = UserCode(
            step.label, step.resolved(allowed=context.allow_code), step.args or {}, given=("data", "state")
        )
        # Looked up for each record otherwise.
        self._call, self._takes_dict = self._code.call, self._code.takes_dict
        self._all_dropped = AllDropped(_log, step.label, WHY_DROPPED)
        if self._code.batched or self._code.waits:
            self.close()
            what = "takes whole batches" if self._code.batched else "is async"
            raise DefinitionError(
                f"remember is for functions that are called for one record after the other, and {step.label} {what}"
            )

    def close(self) -> None:
        """Close the user's object."""
        self._all_dropped.close()
        self._code.close()

    def run_batch(self, batch: Batch) -> Result:
        """The results of all rows, in order."""
        return self.table.in_portions(batch, self._run, self.table.by)

    def _run(self, batch: Batch) -> Result:
        failed: dict[int, Exception] = {}
        rows, codes = self.coded(batch, failed)
        given = batch.all_values()
        datas = batch.to_list(given)
        outcomes: list[list[Data] | Exception] = [failed.get(row, []) for row in range(batch.size)]
        changed: dict[int, None] = {}
        for row, code in zip(rows.tolist(), codes.tolist(), strict=True):
            try:
                outcomes[row] = self._called(datas[row], code, changed)
            except RAISED as error:  # any exception belongs to that record
                outcomes[row] = failure(error, datas[row])
        self._note(changed)
        result = of_outcomes(outcomes, batch, given)
        self._all_dropped.look(result)
        return result

    def _called(self, data: Data, code: int, changed: dict[int, None]) -> list[Data] | Exception:
        """What the function makes of a record; if that is of use, its state is that of the key from now on."""
        before = self._texts[code]
        state: dict[str, Any] = json.loads(before)
        returned = self._call(plain_dict(data) if self._takes_dict else data, state)
        outcome = listed(adopted(returned, data))
        if isinstance(outcome, Exception):
            return outcome
        after = _written(state)
        if after != before:
            self._texts[code] = after
            changed[code] = None
        return outcome

    def _note(self, changed: Iterable[int]) -> None:
        """The states of the keys of these codes have changed: those that are empty are saved no longer.

        Such keys stay in the table until others push them out: which these are must not depend on when a batch ends.
        """
        codes = np.fromiter(changed, np.int64)
        empty = np.fromiter((self._texts[code] == EMPTY for code in changed), np.bool_)
        self.pieces.change(codes[~empty])
        self.pieces.remove(codes[empty])

    def begin(self, codes: Rows) -> None:
        """Nothing is remembered of these keys."""
        self._texts += [EMPTY] * (self.table.capacity - len(self._texts))
        self.end(codes)

    def end(self, codes: Rows) -> None:
        """Nothing is remembered of these keys any more."""
        for code in codes.tolist():
            self._texts[code] = EMPTY

    def written(self, codes: Rows) -> Sequence[bytes]:
        """The states, as JSON."""
        return [self._texts[code].encode() for code in codes.tolist()]

    def read(self, code: int, state: bytes) -> None:
        """See `written`."""
        text = state.decode()
        if not isinstance(json.loads(text), dict):
            raise ValueError(f"it is no object of JSON: {text[:60]}")
        self._texts[code] = text


def _written(state: dict[str, Any]) -> str:
    """A state as JSON, in ASCII. Raises `DataError` for one that is not JSON, or too large."""
    try:
        text = _JSON.encode(state)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"the state cannot be remembered: {error}; it may have texts, numbers, booleans, None, and lists and dicts "
            "of these"
        ) from error
    if len(text) > LARGEST:
        raise DataError(
            f"the state cannot be remembered: it would have {len(text)} bytes as JSON, and {LARGEST} are the most; "
            "keep less in it"
        )
    return text


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        raise TypeError("it has an array; write its tolist() into it")
    raise TypeError(f"it has a value of the type {type(value).__name__}")


_JSON: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_plain)
