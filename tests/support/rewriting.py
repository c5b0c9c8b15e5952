"""The assertions of all test files rewritten by all of xdist's workers together, where each would rewrite every file.

Rewriting is two thirds of what collecting costs in a fresh checkout, and workers collect at the same time, in the same
order. So each begins at another file, and finds those of the others done, as they are kept in `__pycache__`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_together(config: pytest.Config, folder: Path) -> None:
    """In a worker, rewrite the files of tests in `folder` that no other worker has rewritten; else do nothing.

    A file that cannot be parsed is left for pytest, which says why.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode or config.getoption("assertmode") != "rewrite":
        return
    files = sorted(folder.rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:] + files[:first]:
        kept = rewrite.get_cache_dir(file) / f"{file.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(file, kept) is not None:
            continue
        try:
            digest, code = rewrite._rewrite_test(file, config)
        except (SyntaxError, ValueError):
            continue
        kept.parent.mkdir(exist_ok=True)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, kept)
