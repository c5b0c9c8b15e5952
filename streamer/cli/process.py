"""Settings of the whole process, for a process that runs services only.

An agent inside a user's own program leaves them alone.
"""

from __future__ import annotations

import gc
from typing import Final

COLLECT_AFTER: Final = 50_000
"""New objects after which Python's garbage collector looks for reference cycles among them."""


def collect_less_often() -> None:
    """Have Python's garbage collector run less often: batches are many small objects and no reference cycles.

    By default it runs after every 700 new objects (2,000 in later versions of Python), in a batch of 512 records with
    headers several times, which takes up to a quarter of the CPU time. At full load tens of thousands of objects are in
    flight in plain Python, which would be looked through again and again. A collector that is off, or set to run even
    less often, stays as it is.
    """
    young, *older = gc.get_threshold()
    if 0 < young < COLLECT_AFTER:
        gc.set_threshold(COLLECT_AFTER, *older)


def pass_over_what_stays() -> None:
    """Have the garbage collector no more look at the objects that there are now; to be called when services are open.

    They are modules, classes, settings and pipelines, 100,000 and more, which stay. A pass over all objects takes about
    0.1 s, in which no thread runs, and comes when many new ones were made: when another version of a model is loaded,
    for example.
    """
    gc.collect()
    gc.freeze()
