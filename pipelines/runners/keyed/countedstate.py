"""`CountedState`: what WINDOW knows of each key whose windows are so many samples long, and how that is saved."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from pipelines.data.columns import Rows
from pipelines.errors import StreamerError
from pipelines.runners.keyed.ringstore import RingStore
from pipelines.runners.keyed.samples import SampleForm
from pipelines.runners.state.item import Change, Item
from pipelines.runners.state.keytable import KeyTable, grown
from pipelines.runners.state.lastrecords import NO_RECORD, LastRecords

VERSION: Final = 1
"""The first byte of each saved piece."""
_VERSION: Final = bytes([VERSION])
_HEADER: Final = struct.Struct("<BII?qH")
"""Version, head, fill, closed, last, and the length of the form's text, which follows."""
_TIME: Final = struct.Struct("<q")
_NO_FORM: Final = -1


class CountedState:
    """Columns indexed by the code of a key. A window begins at `head` of the key's ring and has `fill` samples.

    With windows that overlap, the beginning of each later one is in the ring too: `starts` has the times of the samples
    at which windows begin, itself a ring that begins at `mark`.
    """

    def __init__(
        self, by: Sequence[str], most: int, size: int, every: int, *, evict: Callable[[Rows, Rows], None]
    ) -> None:
        """`evict` is called for keys that go because there are more than `most`, as `KeyTable` does."""
        self.size, self.every = size, every
        self.marks = -(-size // every)
        """How many windows may have begun."""
        self.stores: list[RingStore] = []
        """The samples, by their form."""
        self._evict = evict
        self._numbers: dict[SampleForm, int] = {}
        self._numbers_of_saved: dict[bytes, int] = {}
        self._gone: dict[tuple[Hashable, str], set[int]] = {}
        self.keys = KeyTable(by, most, begin=self._begin, evict=self._evicted)
        capacity = self.keys.capacity
        self.form = np.full(capacity, _NO_FORM, np.int64)
        """The number of the store of the key's samples."""
        self.slot = np.zeros(capacity, np.int64)
        self.head = np.zeros(capacity, np.int64)
        self.fill = np.zeros(capacity, np.int64)
        self.mark = np.zeros(capacity, np.int64)
        self.starts = np.zeros((capacity, self.marks), np.int64)
        self.last = np.zeros(capacity, np.int64)
        """The time of the key's last record, in milliseconds."""
        self.closed = np.zeros(capacity, np.bool_)
        """Whether a window has closed, so that with overlap the first samples were in a result already."""
        self.written = np.zeros(capacity, np.int64)
        """Samples since the last save."""
        self.changed = np.zeros(capacity, np.bool_)
        self._saved = np.zeros(capacity, np.bool_)
        self.records = LastRecords()
        """The records that results belong to which time makes, where such results may come."""

    def number_of(self, form: SampleForm) -> int:
        """The number of the store for samples of this form. Raises `DataError` for samples that are too large."""
        number = self._numbers.get(form)
        if number is None:
            store = RingStore(form, self.size)
            number = self._numbers[form] = len(self.stores)
            self.stores.append(store)
        return number

    def settle(self, code: int, number: int) -> None:
        """The key's samples are of this form from now on."""
        self.form[code] = number
        self.slot[code] = self.stores[number].slot()

    def fresh(self, codes: Rows) -> Rows:
        """How many samples of each key were in no window yet."""
        fresh: Rows = self.fill[codes] - np.where(self.closed[codes], self.size - self.every, 0)
        return fresh

    def begin_anew(self, code: int) -> None:
        """The key's next sample begins a window, and no sample before it counts."""
        self.head[code] = self.fill[code] = self.mark[code] = 0
        self.closed[code] = False
        self.written[code] = 0
        self.changed[code] = True

    def drop(self, codes: Rows) -> None:
        """These keys are gone."""
        self._release(codes)
        self.keys.drop(codes.tolist())

    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Discard what is known of these lanes, and write nothing of it."""
        lanes = set(lanes)
        codes = self.keys.forget(lanes)
        self._free(codes)
        self._gone = {place: parts for place, parts in self._gone.items() if place[0] not in lanes}

    def changes(self) -> Iterator[Change]:
        """The pieces that are new, changed or gone since the last call."""
        gone, self._gone = self._gone, {}
        codes = self.keys.codes
        codes = codes[self.changed[codes]]
        new = np.minimum(self.written[codes], self.fill[codes]).tolist()
        self.changed[codes], self.written[codes], self._saved[codes] = False, 0, True
        for code, header, samples in zip(codes.tolist(), self._headers(codes), new, strict=True):
            lane, text = self.keys.lane(code), self.keys.text(code)
            left = gone.get((lane, text)) if gone else None
            yield Change(lane, text, 0, header)
            if left is not None:
                left.discard(0)
            for number, data in self._store_of(code).pieces(int(self.slot[code]), self._end(code), samples):
                yield Change(lane, text, number + 1, _VERSION + data)
                if left is not None:
                    left.discard(number + 1)
        for (lane, text), parts in gone.items():
            for part in sorted(parts):
                yield Change(lane, text, part, None)

    def load(self, lane: Hashable, items: Iterable[Item]) -> Rows:
        """Begin a lane with these pieces; returns the codes of its keys. Raises `StreamerError` for damaged ones."""
        self.forget([lane])
        pieces: dict[str, dict[int, bytes]] = {}
        for item in items:
            pieces.setdefault(item.key, {})[item.part] = item.value
        for (key, parts), code in zip(pieces.items(), self.keys.loaded(lane, pieces), strict=True):
            try:
                self._load(code, lane, parts)
            except (StreamerError, ValueError, KeyError, TypeError, IndexError, OverflowError, struct.error) as error:
                raise StreamerError(
                    f"the saved window of {key[:60]} cannot be read: {error}; `streamer state forget` discards it"
                ) from error
        return self.keys.codes_of(lane)

    def _headers(self, codes: Rows) -> Iterator[bytes]:
        """The first piece of each key: counts, form, the times at which its windows begin, and its record."""
        forms = [f"{store.form.dtype.str} {json.dumps(store.form.shape)}".encode() for store in self.stores]
        columns = (self.form, self.head, self.fill, self.closed, self.last)
        for code, number, *counts in zip(codes.tolist(), *(column[codes].tolist() for column in columns), strict=True):
            form = forms[number]
            yield _HEADER.pack(VERSION, *counts, len(form)) + form + self._begins(code) + self._record(code)

    def _begins(self, code: int) -> bytes:
        """The times at which the windows of a key begin, `int64`."""
        begun = -(-int(self.fill[code]) // self.every)
        places = (int(self.mark[code]) + np.arange(begun)) % self.marks if self.marks > 1 else slice(begun)
        return self.starts[code, places].astype("<i8").tobytes()

    def _record(self, code: int) -> bytes:
        return b"" if self.records.record(code) is NO_RECORD else json.dumps(self.records.saved(code)).encode()

    def _end(self, code: int) -> int:
        """The place in the ring behind the last sample of a key."""
        return (int(self.head[code]) + int(self.fill[code])) % self.size or self.size

    def _load(self, code: int, lane: Hashable, parts: dict[int, bytes]) -> None:
        for value in parts.values():
            if value[:1] != _VERSION:
                raise StreamerError(f"it is of version {value[0] if value else None}, and version {VERSION} is known")
        if 0 not in parts:
            raise StreamerError("its first piece is missing")
        header = parts.pop(0)
        _, head, fill, closed, last, length = _HEADER.unpack_from(header)
        rest = header[_HEADER.size :]
        begun = -(-fill // self.every)
        times, record = rest[length : length + 8 * begun], rest[length + 8 * begun :]
        if fill >= self.size or head >= self.size or len(times) < 8 * begun:
            raise StreamerError("its counts are damaged")
        self.settle(code, self._number_of_saved(rest[:length]))
        self.head[code], self.fill[code], self.closed[code], self.last[code] = head, fill, closed, last
        # Nearly always a single one, for which an array costs more than it is.
        self.starts[code, :begun] = _TIME.unpack(times)[0] if begun == 1 else np.frombuffer(times, "<i8")
        if record:
            self.records.load(code, json.loads(record), lane)
        store, slot = self._store_of(code), int(self.slot[code])
        for number, value in parts.items():
            store.load(slot, number - 1, value[1:])
        if missing := store.numbers(self._end(code), fill) - {number - 1 for number in parts}:
            raise StreamerError(f"piece {min(missing)} of its samples is missing")
        self.changed[code], self._saved[code] = False, True

    def _number_of_saved(self, written: bytes) -> int:
        """The number of the store for samples of a form as a header has it."""
        number = self._numbers_of_saved.get(written)
        if number is None:
            dtype, _, shape = written.decode().partition(" ")
            form = SampleForm(np.dtype(dtype), tuple(json.loads(shape)))
            if form.dtype.kind not in "biuf":
                raise StreamerError("its counts are damaged")
            number = self._numbers_of_saved[written] = self.number_of(form)
        return number

    def _begin(self, codes: Rows) -> None:
        capacity = self.keys.capacity
        if capacity > len(self.fill):
            for name in ("form", "slot", "head", "fill", "mark", "starts", "last", "closed", "written", "changed"):
                setattr(self, name, grown(getattr(self, name), capacity))
            self._saved = grown(self._saved, capacity)
        self.form[codes] = _NO_FORM
        for column in (self.head, self.fill, self.mark, self.last, self.written):
            column[codes] = 0
        for flags in (self.closed, self.changed, self._saved):
            flags[codes] = False

    def _evicted(self, codes: Rows, rows: Rows) -> None:
        self._evict(codes, rows)
        self._release(codes)

    def _release(self, codes: Rows) -> None:
        for code in codes.tolist():
            if self._saved[code]:
                parts = self._gone.setdefault((self.keys.lane(code), self.keys.text(code)), set())
                parts.add(0)
                parts.update(number + 1 for number in self._store_of(code).saved(int(self.slot[code])).tolist())
        self._free(codes)

    def _free(self, codes: Rows) -> None:
        for code in codes[self.form[codes] != _NO_FORM].tolist():
            self._store_of(code).release(int(self.slot[code]))
        self.form[codes] = _NO_FORM
        self.records.drop(codes)

    def _store_of(self, code: int) -> RingStore:
        return self.stores[int(self.form[code])]
