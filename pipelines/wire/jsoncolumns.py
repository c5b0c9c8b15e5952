"""Many records of plain JSON to columns, and columns to records: the choice between the two ways to do it.

`pipelines.wire.plainjson` is plain Python, which runs everywhere; `pipelines.wire.compiled_json` uses the compiled
extension where it was built. Both give the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pipelines.data.batch import Batch
from pipelines.hotpath import choose
from pipelines.wire.jsonrecords import JsonOptions
from pipelines.wire.plainjson import JsonForm, ReadJson, WrittenJson, read_json, write_json

JsonReader = Callable[[Sequence[Any], frozenset[str]], ReadJson]
"""Reads payloads into columns and decodes the columns of the keys in the set."""
JsonRowsWriter = Callable[[Batch], WrittenJson]
"""Writes an object for each row of a batch."""


def json_reader(options: JsonOptions) -> JsonReader:
    """`read_json` with these options, as a function of the payloads and the wanted keys."""
    native = choose().native
    if native is not None:
        from pipelines.wire.compiled_json import CompiledJsonReader

        return CompiledJsonReader(native, options)
    return partial(read_json, options=options)


def json_writer(form: JsonForm) -> JsonRowsWriter:
    """`write_json` in this form, as a function of the batch. Indented JSON is written in plain Python."""
    native = choose().native
    if native is not None and not form.pretty:
        from pipelines.wire.compiled_json import write_compiled

        return partial(write_compiled, native, form)
    return partial(write_json, form=form)
