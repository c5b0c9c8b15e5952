"""The same service on Spark Structured Streaming: `start` makes a streaming query of a service file.

Needs the extra `spark`, which is looked for when `start` is first named: Spark's worker processes import parts of this
package that need no session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.plugins.requirements import Package, all_of

if TYPE_CHECKING:
    from streamer.spark.starting import start

__all__ = ["start"]


def __getattr__(name: str) -> Any:
    if name != "start":
        raise AttributeError(f"module 'streamer.spark' has no attribute {name!r}")
    all_of(Package("pyspark", "spark"), Package("pandas", "spark"), Package("pyarrow", "spark")).check("streamer.spark")
    from streamer.spark.starting import start

    return start


def __dir__() -> list[str]:
    return __all__
